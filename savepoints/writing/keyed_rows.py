"""Keyed state from columns of a DataFrame, through a shuffle by key group.

Any process encodes rows of the DataFrame as rows of bytes (`SHUFFLED`). The caller shuffles them to
the writer of their key groups and sorts them by `SORTED_BY`; `blocks_of` turns them into blocks of
a table. Types and nulls are checked before the shuffle, duplicate keys after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.backends.blocks.block import Block, Column
from holdfast.backends.blocks.columns import join_packed
from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.codec import key_codec_described, key_codec_for
from holdfast.backends.keys.groups import key_groups
from holdfast.backends.snapshots.neutral import TableInfo
from holdfast.backends.state.descriptors import StateDescriptor
from holdfast.backends.state.from_descriptors import shape_of
from holdfast.backends.state.timers import timer_table
from holdfast.backends.values.codec import pack_value, value_codec_for
from holdfast.backends.values.type_descriptions import Schema
from holdfast.savepoints.writing.column_casts import fitted
from holdfast.savepoints.writing.encoded_columns import KeyPart, ValuePart, has_null
from holdfast.storage.errors import Invalid

__all__ = [
    "SHUFFLED",
    "SORTED_BY",
    "RowColumns",
    "RowEncoder",
    "blocks_of",
    "table_of_state",
    "table_of_timers",
]

SHUFFLED = pa.schema(
    [
        pa.field("part", pa.int32(), nullable=False),
        pa.field("key_group", pa.int32(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("namespace", pa.binary()),
        pa.field("map_key", pa.binary()),
        pa.field("position", pa.int64()),
        pa.field("value", pa.binary()),
        pa.field("last_used_ms", pa.int64()),
    ]
)
"""A row in the shuffle: `part` is the number of the writer, keys are ordered bytes, values are
MessagePack."""

SORTED_BY = ("key_group", "key", "namespace", "map_key", "position")
"""The order that `blocks_of` expects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowColumns:
    """The roles of the columns of a DataFrame. Several key columns make one key, a tuple.

    A list state is a column of lists, or a column of elements with their `position`. A map state is
    a column of maps, or a column of values with their `map_key`. Timers have no value, and their
    time is in `map_key`.
    """

    key: tuple[str, ...]
    value: str | None = None
    namespace: str | None = None
    map_key: str | None = None
    position: str | None = None
    last_used: str | None = None
    is_packed: bool | None = None
    """Whether bytes in place of types that are stored as MessagePack are MessagePack already.

    None: not known, which is an error if there are such bytes.
    """


def table_of_state(descriptor: StateDescriptor) -> TableInfo:
    """The description of the table of a declared state.

    Raises:
        Invalid: its values are pickles, which columns cannot hold, or a type is not supported.
    """
    if descriptor.pickle:
        raise Invalid(
            f"state {descriptor.name!r} cannot be written from columns",
            expected="a type that has a typed encoding",
            found="pickle=True in its descriptor",
            fix="Declare the type, or fill this state in the job",
        )
    shape = shape_of(descriptor, allow_pickle=False)
    return TableInfo(
        name=descriptor.name,
        kind=shape.kind,
        map_keys=None if shape.map_keys is None else shape.map_keys.describe(),
        values=shape.values.describe(),
        stamped=descriptor.ttl is not None,
    )


def table_of_timers(name: str, domain: str) -> TableInfo:
    """The description of the table of timers of a service; `domain` is `event` or `processing`."""
    return TableInfo(
        name=timer_table(name, domain),
        kind="timers",
        map_keys=key_codec_for(int).describe(),
        values=value_codec_for(bool).describe(),
    )


class RowEncoder:
    """Encodes the rows of one table for the shuffle. Not picklable: create it where it is used."""

    def __init__(
        self,
        info: TableInfo,
        keys: Schema,
        columns: RowColumns,
        *,
        parallelism: int,
        max_parallelism: int,
        descriptor: StateDescriptor | None = None,
    ) -> None:
        """`descriptor` has the Python types of the values. Timers have none."""
        self._info = info
        self._columns = columns
        self._parallelism, self._max_parallelism = parallelism, max_parallelism
        self._keys = KeyPart(keys, "key")
        self._spaces = None if info.namespaces is None else KeyPart(info.namespaces, "namespace")
        self._map_keys = None if info.map_keys is None else KeyPart(info.map_keys, "map key")
        self._values: ValuePart | None = None
        if descriptor is not None:
            codec = shape_of(descriptor, allow_pickle=False).values
            self._values = ValuePart(codec, is_packed=columns.is_packed)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Encode a batch of the DataFrame.

        Raises:
            Invalid: a column does not fit its type, or has a null that is not allowed; names the
                state and the column.
        """
        try:
            return self._rows(batch)
        except Invalid as error:
            what = f"rows are not state {self._info.name!r}: {error.what}"
            raise error.replaced(what=what) from error

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names, info = self._columns, self._info
        keys = _column(batch, names.key)
        spaces = None if names.namespace is None else batch.column(names.namespace)
        stamps = None if names.last_used is None else batch.column(names.last_used)
        map_keys = None if names.map_key is None else batch.column(names.map_key)
        positions = None if names.position is None else batch.column(names.position)
        values = None if names.value is None else batch.column(names.value)
        counts = None
        if info.kind == "list" and positions is None and values is not None:
            counts, values = _unrolled(values, names.value, pa.types.is_list)
            positions = pa.array(_positions(counts))
        elif info.kind == "map" and map_keys is None and values is not None:
            counts, values = _unrolled(values, names.value, pa.types.is_map)
            map_keys, values = values.flatten()
        if counts is not None:
            places = pa.array(np.repeat(np.arange(len(counts)), counts))
            keys = keys.take(places)
            spaces = None if spaces is None else spaces.take(places)
            stamps = None if stamps is None else stamps.take(places)
        return self._encoded(keys, spaces, map_keys, positions, values, stamps)

    def _encoded(
        self,
        keys: pa.Array,
        spaces: pa.Array | None,
        map_keys: pa.Array | None,
        positions: pa.Array | None,
        values: pa.Array | None,
        stamps: pa.Array | None,
    ) -> pa.RecordBatch:
        count = len(keys)
        encoded, hashes = self._keys.hashed(keys, " and ".join(self._columns.key))
        groups = key_groups(hashes, self._max_parallelism).astype(np.int32)
        parts = groups.astype(np.int64) * self._parallelism // self._max_parallelism
        columns = {
            "part": pa.array(parts.astype(np.int32)),
            "key_group": pa.array(groups),
            "key": encoded,
        }
        if self._spaces is not None and spaces is not None:
            columns["namespace"] = self._spaces.encoded(spaces, self._columns.namespace or "")
        if self._map_keys is not None and map_keys is not None:
            name = self._columns.map_key or self._columns.value or ""
            if self._info.kind == "timers":
                map_keys = _milliseconds(map_keys, name)
            columns["map_key"] = self._map_keys.encoded(map_keys, name)
        if positions is not None:
            name = self._columns.position or ""
            columns["position"] = _numbers(positions, name, "the number of the element")
        if self._values is not None and values is not None and self._columns.value is not None:
            columns["value"] = self._values.packed(values, self._columns.value)
        if stamps is not None and self._columns.last_used is not None:
            columns["last_used_ms"] = _milliseconds(stamps, self._columns.last_used)
        listed = [columns.get(each.name, pa.nulls(count, each.type)) for each in SHUFFLED]
        return pa.RecordBatch.from_arrays(listed, schema=SHUFFLED)


def _column(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.Array:
    columns = [batch.column(name) for name in names]
    if len(columns) == 1:
        return columns[0]
    for name, column in zip(names, columns, strict=True):
        if column.null_count:
            raise has_null("key", name, column)
    return pa.StructArray.from_arrays(columns, [f"_{place + 1}" for place in range(len(columns))])


def _unrolled(column: pa.Array, name: str | None, test: Any) -> tuple[npt.NDArray[np.int64], Any]:
    """The number of elements in each row, and all elements."""
    if pa.types.is_large_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    if not test(column.type):
        raise Invalid(
            f"column {name!r} does not have whole lists or maps",
            expected="lists, or a column with the `position` of each element; maps, or a column "
            "with the `map_key` of each entry",
            found=str(column.type),
        )
    offsets = column.offsets.to_numpy()
    counts = np.diff(offsets)
    if column.null_count:
        counts[column.is_null().to_numpy(zero_copy_only=False)] = 0
    if pa.types.is_map(column.type):
        fields = [column.type.key_field, column.type.item_field]
        start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        both = [each.slice(start, count) for each in (column.keys, column.items)]
        return counts.astype(np.int64), pa.StructArray.from_arrays(both, fields=fields)
    return counts.astype(np.int64), column.flatten()


def _positions(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    starts = np.cumsum(counts) - counts
    numbers: npt.NDArray[np.int64] = np.arange(counts.sum()) - np.repeat(starts, counts)
    return numbers


def _numbers(column: pa.Array, name: str, what: str) -> pa.Array:
    fit = fitted(column, {"type": "int"}, pa.int64(), name=name)
    if fit.null_count:
        raise has_null(what, name, fit)
    return fit


def _milliseconds(column: pa.Array, name: str) -> pa.Array:
    """Times in milliseconds, from numbers or timestamps."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return _numbers(column, name, "time")


def blocks_of(
    batches: Iterable[pa.RecordBatch], info: TableInfo, keys: Schema, *, now_ms: int
) -> Iterator[Block]:
    """The blocks of a table from sorted rows. Without a time of last use, it is `now_ms`.

    Raises:
        Invalid: a key is there twice, or a position or map key of one key; names the key.
    """
    once = _DuplicateCheck(info, keys)
    for batch in batches:
        if batch.num_rows:
            once.check(batch)
            yield _block(batch, info, now_ms)


def _block(batch: pa.RecordBatch, info: TableInfo, now_ms: int) -> Block:
    count = batch.num_rows
    stamps = None
    if info.stamped:
        filled = pc.fill_null(batch.column("last_used_ms"), now_ms)
        stamps = filled.to_numpy().astype(np.int64).tobytes()
    is_timers = info.kind == "timers"
    return Block(
        count=count,
        groups=batch.column("key_group").to_numpy().astype(np.uint16).tobytes(),
        keys=_binary(batch, "key"),
        namespaces=None if info.namespaces is None else _binary(batch, "namespace"),
        map_keys=None if info.map_keys is None else _binary(batch, "map_key"),
        values=pack_value([True] * count) if is_timers else join_packed(batch.column("value")),
        stamps=stamps,
    )


def _binary(batch: pa.RecordBatch, name: str) -> Column:
    return Column.of_arrow(batch.column(name).cast(pa.large_binary()))


class _DuplicateCheck:
    """Refuses two rows for the same key, or for the same entry of its list or map."""

    def __init__(self, info: TableInfo, keys: Schema) -> None:
        self._info = info
        self._codec: KeyCodec[Any] = key_codec_described(keys)
        self._names = ["key"]
        self._names += ["namespace"] if info.namespaces is not None else []
        self._names += ["map_key"] if info.map_keys is not None else []
        self._names += ["position"] if info.kind == "list" else []
        self._last: tuple[Any, ...] | None = None

    def check(self, batch: pa.RecordBatch) -> None:
        columns = [batch.column(name) for name in self._names]
        same = np.ones(batch.num_rows - 1, np.bool_)
        for column in columns:
            same &= pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
        first, last = (tuple(column[place].as_py() for column in columns) for place in (0, -1))
        if first == self._last:
            raise self._twice(columns[0][0].as_py())
        if same.any():
            raise self._twice(columns[0][int(np.argmax(same))].as_py())
        self._last = last

    def _twice(self, key: bytes) -> Invalid:
        what = {"list": "place in its list", "map": "entry of its map", "timers": "timer"}
        place = what.get(self._info.kind, "value")
        return Invalid(
            f"rows are not state {self._info.name!r}: a key has a {place} twice",
            expected="each of them in one row",
            found=f"two rows for key {self._codec.decode(key)!r}",
            fix="Aggregate the DataFrame, or drop its duplicates, before it is written",
        )
