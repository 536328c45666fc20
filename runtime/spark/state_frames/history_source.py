"""The checkpoints of jobs as a DataFrame: `spark.read.format("holdfast-checkpoints")`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from holdfast.runtime.control.history import history_of
from holdfast.runtime.spark.state_frames.session_source import SessionSource
from holdfast.savepoints.history import HISTORY

__all__ = ["HistorySource"]


class HistorySource(SessionSource):
    """What `checkpoint_history` answers; `path` is the name of a running job, or a place."""

    @classmethod
    def name(cls) -> str:
        return "holdfast-checkpoints"

    def schema(self) -> StructType:
        return from_arrow_schema(HISTORY)

    def reader(self, schema: StructType) -> DataSourceReader:
        """See `DataSource.reader`. Called when a query is planned, on the driver's machine."""
        del schema
        asked = self._asked("path")
        return _Reader(history_of(asked["path"], self._open_storage()).to_pylist())


class _Reader(DataSourceReader):
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        del partition
        for row in self._rows:
            operators = row["operators"]
            shown = {**row, "operators": None if operators is None else dict(operators)}
            yield tuple(shown.values())
