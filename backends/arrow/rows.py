"""Rows of one table as Arrow batches with typed columns, and back.

| column | of | type |
|---|---|---|
| `key_group` | keyed state | int32, ascending |
| `slot` | operator state | int32 |
| `key` | keyed state | see `keys.py` |
| `namespace` | state with namespaces | see `keys.py` |
| `map_key` | maps | see `keys.py` |
| `time` | timers: their moment, in milliseconds | int64 |
| `position` | lists: the number of the element in its list | int64 |
| `value` | all but timers | see `values.py` |
| `last_used_ms` | state with time to live: when it last began, in milliseconds since 1970 | int64 |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.backends.arrow.keys import KeyForm
from holdfast.backends.arrow.values import Unfit, ValueForm
from holdfast.backends.blocks.block import Block, Column
from holdfast.backends.blocks.columns import join_values, split_values
from holdfast.backends.values.codec import ValueCodec, pack_value
from holdfast.backends.values.type_descriptions import Schema
from holdfast.storage.errors import UNREADABLE, Corrupt, HoldfastError

__all__ = ["COMPLETE", "TYPES", "Positions", "RowForm", "TypedTable"]

COMPLETE = "holdfast.complete"
"""In the metadata of a file: `true` if each record has all fields that its type has."""
TYPES = "holdfast.types"
"""In the metadata of a file: the descriptions of its keys and values, as JSON."""

_MILLISECONDS = pa.int64()
_READ_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""Python's errors for values that are not of a type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedTable:
    """The columns of a table, by its snapshot. Keyed state has keys; operator state has a slot."""

    name: str
    kind: str
    """The kind of state; `timers` and `list` have columns of their own."""
    keys: Schema | None = None
    slot: int | None = None
    namespaces: Schema | None = None
    map_keys: Schema | None = None
    values: Schema
    stamped: bool = False
    metadata: Mapping[str, str]
    """The metadata of its files."""

    @property
    def is_timers(self) -> bool:
        """Whether the map keys are moments of timers, so that there is no column of values."""
        return self.kind == "timers"


class RowForm:
    """Conversion between the rows of a table and Arrow batches.

    Values that were written before their type changed may lack fields with a default. With
    `is_complete` such values are encoded again by the codec.
    """

    def __init__(
        self, table: TypedTable, codec: ValueCodec[Any] | None = None, *, is_complete: bool
    ) -> None:
        self.table = table
        self.is_complete = is_complete
        self._codec = codec
        self._keys = None if table.keys is None else KeyForm(table.keys)
        self._namespaces = None if table.namespaces is None else KeyForm(table.namespaces)
        self._map_keys = None if table.map_keys is None else KeyForm(table.map_keys)
        self._values = ValueForm(table.values, checked=is_complete)
        metadata = {**table.metadata, COMPLETE: "true" if is_complete else "false"}
        self.schema = pa.schema(list(self._fields()), metadata)
        """The schema of the batches and of their file."""

    def batches(self, blocks: Iterable[Block]) -> Iterator[pa.RecordBatch]:
        """The batch of each block; takes all blocks of a table, in order.

        Raises:
            Corrupt: a key or a value is not of the type that the table is described with.
        """
        positions = Positions()
        for block in blocks:
            if block.count:
                columns = list(self._columns(block, positions))
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def block(self, batch: pa.RecordBatch, where: str) -> Block:
        """The rows of a batch.

        Raises:
            Corrupt: it is not a batch of this table; `where` names the file.
        """
        try:
            return self._block(batch)
        except (*_READ_ERRORS, pa.ArrowException, HoldfastError, *UNREADABLE) as error:
            raise Corrupt(
                "a row of state cannot be read",
                where=where,
                expected=f"keys and values of table {self.table.name!r}, as it is described",
                found=str(error),
                fix="Restore another savepoint, or bring the file back from a copy",
            ) from error

    def _fields(self) -> Iterator[pa.Field]:
        table = self.table
        if table.slot is not None:
            yield pa.field("slot", pa.int32(), nullable=False)
        if self._keys is not None:
            yield pa.field("key_group", pa.int32(), nullable=False)
            yield pa.field("key", self._keys.type)
        if self._namespaces is not None:
            yield pa.field("namespace", self._namespaces.type)
        if table.is_timers:
            yield pa.field("time", _MILLISECONDS, nullable=False)
            return
        if self._map_keys is not None:
            yield pa.field("map_key", self._map_keys.type)
        if _is_list(table):
            yield pa.field("position", pa.int64(), nullable=False)
        yield self._values.field
        if table.stamped:
            yield pa.field("last_used_ms", _MILLISECONDS, nullable=False)

    def _columns(self, block: Block, positions: Positions) -> Iterator[pa.Array]:
        table, count = self.table, block.count
        if table.slot is not None:
            yield pa.array(np.full(count, table.slot, np.int32))
        if self._keys is not None:
            yield pa.array(block.group_array.astype(np.int32))
            yield self._keys.to_arrow(block.keys, count)
        if self._namespaces is not None and block.namespaces is not None:
            yield self._namespaces.to_arrow(block.namespaces, count)
        if self._map_keys is not None and block.map_keys is not None:
            yield self._map_keys.to_arrow(block.map_keys, count)
        if table.is_timers:
            return
        if _is_list(table):
            yield pa.array(positions.of(block))
        yield self._to_arrow(block.values)
        stamps = block.stamp_array
        if stamps is not None:
            yield pa.array(stamps)

    def _to_arrow(self, values: bytes) -> pa.Array:
        codec, where = self._codec, f"state {self.table.name!r}"
        try:
            try:
                return self._values.to_arrow(values)
            except Unfit:
                if codec is None:
                    raise
                items = codec.decode_many(split_values(codec, values, where))
                return self._values.to_arrow(join_values(codec, codec.encode_many(items)))
        except Unfit as error:
            raise Corrupt(
                "a value is not of the type that its state is described with",
                where=where,
                expected=msgspec.json.encode(self.table.values).decode(),
                found=str(error),
            ) from error

    def _block(self, batch: pa.RecordBatch) -> Block:
        table, count = self.table, batch.num_rows
        columns = {field.name: batch.column(place) for place, field in enumerate(self.schema)}
        groups, keys = b"", Column(b"")
        if self._keys is not None:
            groups = columns["key_group"].to_numpy().astype(np.uint16).tobytes()
            keys = self._keys.from_arrow(columns["key"])
        map_keys = None
        if self._map_keys is not None:
            map_keys = self._map_keys.from_arrow(columns["time" if table.is_timers else "map_key"])
        namespaces = None
        if self._namespaces is not None:
            namespaces = self._namespaces.from_arrow(columns["namespace"])
        stamps = None
        if table.stamped:
            stamps = columns["last_used_ms"].to_numpy().tobytes()
        return Block(
            count=count,
            groups=groups,
            keys=keys,
            namespaces=namespaces,
            map_keys=map_keys,
            values=(
                pack_value([True] * count)
                if table.is_timers
                else self._values.from_arrow(columns["value"])
            ),
            stamps=stamps,
        )


def _is_list(table: TypedTable) -> bool:
    return table.map_keys is None and table.kind in ("list", "union-list")


class Positions:
    """Counts the elements of lists, whose rows are side by side, also over the end of a block."""

    def __init__(self) -> None:
        self._last: tuple[bytes, bytes] | None = None
        self._count = 0

    def of(self, block: Block) -> npt.NDArray[np.int64]:
        """The number of each row's element in its list."""
        count = block.count
        keys = block.keys.to_arrow(count)
        spaces = keys if block.namespaces is None else block.namespaces.to_arrow(count)
        is_first = np.ones(count, np.bool_)
        is_first[1:] = _differs(keys) | _differs(spaces)
        begin = keys[0].as_py(), spaces[0].as_py()
        rows = np.arange(count)
        starts = np.maximum.accumulate(np.where(is_first, rows, 0))
        positions: npt.NDArray[np.int64] = rows - starts
        if begin == self._last:
            positions[starts == 0] += self._count
        self._last = keys[-1].as_py(), spaces[-1].as_py()
        self._count = int(positions[-1]) + 1
        return positions


def _differs(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Of each row but the first, whether it differs from the one before."""
    differs: npt.NDArray[np.bool_] = pc.not_equal(column[1:], column[:-1]).to_numpy(
        zero_copy_only=False
    )
    return differs
