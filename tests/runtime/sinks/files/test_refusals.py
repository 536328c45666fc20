"""What a `FileSink` refuses before a job starts, and how it says so."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.runtime.sinks import FileSink
from holdfast.runtime.sinks.testing.sink_jobs import SCHEMA
from holdfast.storage import Invalid
from support.jobs.sink_files import facts, files_in

OPTIONS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"format": "xml"}, "format", "one of parquet, json, csv", "'xml'"),
    ({"format": ["csv"]}, "format", "one of parquet, json, csv", "['csv']"),
    (
        {"compression": "zip"},
        "compression",
        "one of snappy, none, gzip, zstd, lz4",
        "'zip'",
    ),
    (
        {"format": "csv", "compression": "snappy"},
        "compression",
        "one of none, gzip, bz2, zstd",
        "'snappy'",
    ),
    ({"header": True}, "header", "none: parquet files have no header", "True"),
    ({"format": "csv", "header": "yes"}, "header", "True or False", "'yes'"),
    ({"max_rows": 0}, "max_rows", "a whole number, 1 or more", "0"),
    ({"max_rows": True}, "max_rows", "a whole number, 1 or more", "True"),
    ({"max_file_bytes": 1.5}, "max_file_bytes", "a whole number, 1 or more", "1.5"),
    ({"storage_options": {"key": "k"}}, "storage_options", "none for a local directory", "['key']"),
]


@pytest.mark.parametrize(("options", "name", "expected", "found"), OPTIONS)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, options: dict[str, Any], name: str, expected: str, found: str
) -> None:
    with pytest.raises(Invalid) as caught:  # when it is made, and not when the job starts
        FileSink(str(tmp_path), **options)
    what = f"option {name} of a file sink does not fit"
    assert facts(caught) == (what, str(tmp_path), expected, found)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("file_format", "kind", "found"),
    [
        ("csv", pa.list_(pa.int8()), "list<item: int8>"),
        ("csv", pa.binary(), "binary"),
        ("json", pa.map_(pa.int8(), pa.int8()), "map<int8, int8>"),
        ("json", pa.list_(pa.duration("s")), "duration[s] inside it"),
        ("parquet", pa.month_day_nano_interval(), "month_day_nano_interval"),
        ("parquet", pa.struct([]), "struct<>"),
    ],
)
def test_columns_that_a_format_cannot_hold_are_named(
    tmp_path: Path, file_format: str, kind: pa.DataType, found: str
) -> None:
    sink = FileSink(str(tmp_path), file_format)
    with pytest.raises(Invalid) as caught:
        sink.check(pa.schema([("fine", pa.int8()), ("odd", kind)]))
    what = f"{file_format} files cannot hold column 'odd'"
    assert facts(caught) == (what, str(tmp_path), "a type that the format has", found)
    assert caught.value.fix.startswith("Convert the column before the sink")


@pytest.mark.parametrize(
    ("names", "found"), [(["a", "b", "a"], "a more than once"), ([], "no column")]
)
def test_columns_must_be_there_and_told_apart(tmp_path: Path, names: list[str], found: str) -> None:
    with pytest.raises(Invalid) as caught:
        FileSink(str(tmp_path)).check(pa.schema([(name, pa.int8()) for name in names]))
    assert caught.value.expected == "one column or more, each name once"
    assert caught.value.found == found


@pytest.mark.parametrize(
    ("url", "what", "where"),
    [
        ("", "the URL of a sink names no place", ""),
        ("file://host/out", "a file URL does not name an absolute path", "file://host/out"),
        ("ftq://u:p@h/out", "no file system is known for URLs of scheme 'ftq'", "ftq://u@h/out"),
        ("data://x", "a data file system cannot make a file appear as a whole", "data://x"),
        ("smb://h/out", "a package that smb URLs need is not installed", "smb://h/out"),
    ],
)
def test_urls_that_cannot_be_used_are_refused(url: str, what: str, where: str) -> None:
    with pytest.raises(Invalid) as caught:
        FileSink(url).check(SCHEMA)
    assert caught.value.what.startswith(what)
    assert caught.value.where == where


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runtime.sinks.files.fsspec_folder.find_spec", lambda _: None)
    with pytest.raises(Invalid) as caught:
        FileSink("s3a://bucket/out").check(SCHEMA)
    assert caught.value.found == "no package s3fs"
    assert caught.value.fix == 'pip install "holdfast-spark[s3]"'


def test_a_place_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("I was here first")
    with pytest.raises(Invalid) as caught:
        FileSink(str(tmp_path / "file" / "out")).check(SCHEMA)
    assert caught.value.what == "cannot write to the place of a sink"
    assert caught.value.where == str(tmp_path / "file" / "out")
    assert caught.value.expected == "a directory that can be written to"
    assert files_in(tmp_path) == ["file"]


def test_a_place_that_refuses_is_invalid_and_one_that_is_full_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        FileSink("/proc/out").check(SCHEMA)
    assert caught.value.where == "/proc/out"
    sink = FileSink(str(tmp_path / "new" / "out"))
    sink.check(SCHEMA)
    assert files_in(tmp_path) == []
