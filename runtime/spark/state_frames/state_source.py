"""State as a DataFrame: `spark.read.format("holdfast")`, a Python data source of Spark.

Spark creates and plans it in processes of its own, on the driver's machine, and reads in tasks,
each with a range of key groups. Filters on keys or key groups decide which tasks there are and what
they read. They only leave out key groups and keys, and all of them go back to Spark, which applies
them to every row. So a literal that matches no key's spelling, or a comparison that Spark
interprets otherwise, costs time and loses no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from holdfast.backends.arrow.values import ENCODING
from holdfast.runtime.columns.types import cast_to
from holdfast.runtime.spark.state_frames.frame_columns import encoding_of
from holdfast.runtime.spark.state_frames.session_source import SessionSource
from holdfast.savepoints.finding import find_snapshot
from holdfast.savepoints.reading.columns import StateColumns
from holdfast.savepoints.showing.selections import Path, Selection, asked_for, select
from holdfast.savepoints.showing.state_reader import state_of, timers_name
from holdfast.storage import Invalid

__all__ = ["StateSource", "equalities", "place_bounds"]

_PARTITION_ROWS = 2_500_000
_PLACES = (("key_group",), ("slot",))
_WANTED = ("key", "keys", "keyGroups")


class StateSource(SessionSource):
    """The rows of one state of an operator in a checkpoint or savepoint.

    Options: `operator`, `state` or `timers`, and `kind`, all as `read_state` has them; `key`, as
    text or JSON, or `keys`, a JSON array; `keyGroups`, such as `0-9`. `partitionRows` is about how
    many rows a task reads.
    """

    names: ClassVar[Mapping[str, str]] = {
        "operator": "operator",
        "state": "state",
        "timers": "timers",
        "kind": "kind",
        "key": "key",
        "keys": "keys",
        "keygroups": "keyGroups",
        "partitionrows": "partitionRows",
    }

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> StructType:
        """The columns of docs/savepoint-format.md."""
        return _spark_schema(self._columns().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """See `DataSource.reader`.

        Raises:
            Invalid: another schema was requested.
        """
        if schema.names != self.schema().names:
            raise Invalid(
                f"format {self.name()!r} has a schema of its own",
                expected=", ".join(self.schema().names),
                found=", ".join(schema.names),
                fix="Leave schema() out, and select columns",
            )
        reader = _FilteringReader if self.takes_filters else _PlainReader
        columns = self._columns()
        asked = asked_for(columns, {name: self.options.get(name) for name in _WANTED})
        return reader(columns, schema, self._partition_rows(), asked)

    def _columns(self) -> StateColumns:
        asked = self._asked("path", "operator")
        snapshot = find_snapshot(asked["path"], self._open_storage())
        name = timers_name(asked.get("state"), asked.get("timers"))
        return state_of(snapshot, asked["operator"], name, kind=asked.get("kind"))

    def _partition_rows(self) -> int:
        text = self.options.get("partitionRows", str(_PARTITION_ROWS))
        if not text.isdecimal() or int(text) < 1:
            raise Invalid(
                "partitionRows is not legal", expected="a whole number from 1", found=repr(text)
            )
        return int(text)


def _spark_schema(schema: pa.Schema) -> StructType:
    """The schema in Spark's types. All columns may be null, as in every table that Spark reads."""
    found = from_arrow_schema(pa.schema([field.with_nullable(True) for field in schema]))
    for mine, its in zip(schema, found, strict=True):
        encoding = encoding_of(mine)
        if encoding:
            its.metadata = {ENCODING: encoding}
    return found


class _Part(InputPartition):
    """A range of key groups, or of slots."""

    def __init__(self, places: tuple[int, int] | None) -> None:
        super().__init__(places)


class _PlainReader(DataSourceReader):
    """Reads everything, for sessions that pass no filters."""

    def __init__(
        self, columns: StateColumns, schema: StructType, rows: int, asked: Selection
    ) -> None:
        self._columns = columns
        self._schema = schema
        self._rows = rows
        self._selection = asked

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges that can have selected rows; an empty one if none can."""
        parts = self._selection.of(self._columns.parts(self._rows))
        return list(map(_Part, parts)) or [_Part(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(self._schema, timezone="UTC")
        if partition.value is None:
            return
        for batch in self._columns.batches(partition.value, self._selection.keys):
            yield cast_to(batch.columns, schema)


class _FilteringReader(_PlainReader):
    """Reads what filters select."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow the selection. All filters are returned, so Spark applies them to each row too."""
        found = select(self._columns, equalities(filters), place_bounds(filters))
        self._selection = self._selection.and_also(found)
        return filters


def equalities(filters: Iterable[Filter]) -> dict[Path, list[Any]]:
    """The values that filters allow, by column."""
    found: dict[Path, list[Any]] = {}
    for each in filters:
        match each:
            case EqualTo(attribute, value) | EqualNullSafe(attribute, value):
                values = [value]
            case In(attribute, value):
                values = list(value)
            case _:
                continue
        there = found.get(attribute)
        found[attribute] = (
            values if there is None else [value for value in there if value in values]
        )
    return found


def place_bounds(filters: Iterable[Filter]) -> tuple[int | None, int | None]:
    """The lowest and the highest key group, or slot, that filters allow; None is no bound."""
    lows: list[int] = []
    highs: list[int] = []
    for each in filters:
        if getattr(each, "attribute", None) not in _PLACES:
            continue
        match each:
            case EqualTo(_, int(value)):
                lows.append(value)
                highs.append(value)
            case In(_, value) if value and all(type(one) is int for one in value):
                lows.append(min(value))
                highs.append(max(value))
            case GreaterThan(_, int(value)):
                lows.append(value + 1)
            case GreaterThanOrEqual(_, int(value)):
                lows.append(value)
            case LessThan(_, int(value)):
                highs.append(value - 1)
            case LessThanOrEqual(_, int(value)):
                highs.append(value)
    return max(lows, default=None), min(highs, default=None)
