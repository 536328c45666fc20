"""Each sink of the house passes the suite of two-phase-commit sinks."""

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import fsspec
import pyarrow.dataset as ds
import pytest

from holdfast.runtime.sinks import CollectSink, FileSink, TwoPhaseCommitSink, collected_table
from holdfast.runtime.sinks.testing.conformance import SinkConformance, Stage
from holdfast.runtime.sinks.testing.sink_jobs import SCHEMA
from support.documents.pages import ROOT, Page, programs


class CollectStage(Stage):
    def sink(self) -> TwoPhaseCommitSink[Any]:
        return CollectSink()

    def seen(self) -> list[int]:
        return sorted(collected_table(self.driver.parts, SCHEMA)["number"].to_pylist())

    def hidden(self) -> list[str]:
        return []


class FileStage(Stage):
    """Files in a directory of this machine or of fsspec, read by pyarrow."""

    def __init__(self, place: Path | str, file_format: str, **options: Any) -> None:
        super().__init__()
        self.url = place.as_uri() if isinstance(place, Path) else place
        self.file_format = file_format
        self.options = options
        self.files, self.root = fsspec.core.url_to_fs(str(place))
        self.files.makedirs(self.root, exist_ok=True)

    def sink(self) -> TwoPhaseCommitSink[Any]:
        return FileSink(self.url, self.file_format, **self.options)

    def seen(self) -> list[int]:
        found = ds.dataset(
            self.root, SCHEMA, format=self.file_format, filesystem=self.files
        ).to_table()
        assert found["text"].to_pylist() == [f"row {each}" for each in found["number"].to_pylist()]
        return sorted(found["number"].to_pylist())

    def hidden(self) -> list[str]:
        return [
            path for path in self.files.find(f"{self.root}/_holdfast") if not path.endswith("/")
        ]


def sink_of_the_guide() -> Any:
    """The class of docs/write-a-sink.md, in a module of its own, so that it can be pickled."""
    (program,) = programs(Page("docs/write-a-sink.md", (ROOT / "docs/write-a-sink.md").read_text()))
    module = ModuleType("sink_of_the_guide")
    sys.modules[module.__name__] = module
    exec(program.partition("\nenv = ")[0], vars(module))
    return module


class TableStage(Stage):
    """The table of the guide: its two columns are those of the suite, under other names."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = str(path)
        self.guide = sink_of_the_guide()
        body = {
            "check": lambda sink, _: sink.run(lambda db: db.executescript(self.guide.TABLES)),
            "__module__": self.guide.__name__,
        }
        self.guide.AnyColumns = type("AnyColumns", (self.guide.TableSink,), body)
        self.sink().check(SCHEMA)

    def sink(self) -> TwoPhaseCommitSink[Any]:
        sink: TwoPhaseCommitSink[Any] = self.guide.AnyColumns(self.path)
        return sink

    def rows(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as db:
            return [found for (found,) in db.execute(query)]

    def seen(self) -> list[int]:
        return sorted(map(int, self.rows("SELECT user FROM spending")))

    def hidden(self) -> list[str]:
        return self.rows("SELECT part FROM rows WHERE part NOT IN (SELECT part FROM parts)")


class TestCollectSink(SinkConformance):
    @pytest.fixture
    def stage(self) -> Stage:
        return CollectStage()


@pytest.mark.dealt("class")  # the three differ only in the format and the size of files
class TestParquetFiles(SinkConformance):
    @pytest.fixture
    def stage(self, quick_path: Path) -> Stage:
        return FileStage(quick_path / "out", "parquet", max_rows=3)


@pytest.mark.dealt("class")
class TestJsonFiles(SinkConformance):
    @pytest.fixture
    def stage(self, quick_path: Path) -> Stage:
        return FileStage(quick_path / "ou t", "json", max_file_bytes=100)


@pytest.mark.dealt("class")
class TestCsvFiles(SinkConformance):
    @pytest.fixture
    def stage(self, quick_path: Path) -> Stage:
        return FileStage(f"{quick_path}/out", "csv", compression="gzip")


class TestFilesOfAnObjectStore(SinkConformance):
    """`memory` goes the way of S3: copy, then remove."""

    @pytest.fixture
    def stage(self) -> Iterator[Stage]:
        stage = FileStage(f"memory://sink-{os.getpid()}/out", "parquet")
        yield stage
        stage.files.rm(stage.root, recursive=True)


@pytest.mark.slow  # it syncs each transaction
class TestTableOfTheGuide(SinkConformance):
    @pytest.fixture
    def stage(self, quick_path: Path) -> Stage:
        return TableStage(quick_path / "spending.db")
