"""Partitioning by key: each row goes to the slot that keeps the state of its key."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import check_parallelism, key_groups, slot_of_key_group
from holdfast.storage import Invalid

__all__ = ["Partitioner", "key_type"]

_FEW_SLOTS = 8
"""Up to this many slots, a search for the rows of each is faster than a sort by slot."""

_PLAIN_TYPES: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_boolean, bool),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
    (pa.types.is_string_view, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_large_binary, bytes),
    (pa.types.is_binary_view, bytes),
    (pa.types.is_fixed_size_binary, bytes),
    (pa.types.is_date, dt.date),
    (pa.types.is_timestamp, dt.datetime),
    (pa.types.is_decimal, Decimal),
)


def key_type(kind: pa.DataType, *, column: str) -> Any:
    """The Python type of keys that come from an Arrow column, as keyed state takes it.

    Structs give tuples of their fields, by place.

    Raises:
        Invalid: such a column cannot be a key; names it.
    """
    for test, python_type in _PLAIN_TYPES:
        if test(kind):
            return python_type
    if pa.types.is_dictionary(kind):
        return key_type(kind.value_type, column=column)
    if isinstance(kind, pa.BaseExtensionType):
        return key_type(kind.storage_type, column=column)
    if pa.types.is_struct(kind):
        fields = [key_type(field.type, column=f"{column}.{field.name}") for field in kind]
        return tuple.__class_getitem__(tuple(fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return tuple.__class_getitem__((key_type(kind.value_type, column=f"{column}[]"), ...))
    raise Invalid(
        "a column of this type cannot be a key",
        where=f"column {column!r}",
        expected="numbers, text, bytes, truth, days, times or decimals; structs and lists of those",
        found=str(kind),
        fix="Key by another column, or cast this one",
    )


class Partitioner:
    """Splits batches of one schema by key, over the slots of a job.

    The key of a row is its value in the key column, or the tuple of its values in several: each row
    goes where the key group of that key is. Stateless, so safe in several threads.
    """

    def __init__(
        self,
        key_columns: Sequence[str],
        schema: pa.Schema,
        parallelism: int,
        max_parallelism: int,
    ) -> None:
        """Prepare for batches of `schema`.

        Raises:
            Invalid: a key column is missing, named twice or of a type that cannot be a key; or the
                parallelism is not legal.
        """
        check_parallelism(parallelism, max_parallelism)
        self._columns = [_place_of(name, schema) for name in key_columns]
        if not self._columns:
            raise Invalid("there is no key column", fix="Name at least one")
        types = [key_type(schema.field(i).type, column=schema.field(i).name) for i in self._columns]
        self._codecs = list(map(key_codec_for, types))
        self._codec: KeyCodec[Any] = (
            self._codecs[0]
            if len(types) == 1
            else key_codec_for(tuple.__class_getitem__(tuple(types)))
        )
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        groups = range(max_parallelism)
        self._slot_of_group = np.array(
            [slot_of_key_group(group, parallelism, max_parallelism) for group in groups],
            np.min_scalar_type(parallelism),
        )

    def split(self, batch: pa.RecordBatch) -> list[pa.RecordBatch | None]:
        """The rows of each slot, by slot, in their order; None where there are none.

        When all rows are of one slot, that is the batch itself.

        Raises:
            Invalid: a key is null, or has a value that cannot be a key; names the column.
        """
        parts: list[pa.RecordBatch | None] = [None] * self._parallelism
        if not batch.num_rows:
            return parts
        slots = self._slots(batch)
        order, counts = _order(slots, self._parallelism)
        if len(order) == 0:
            parts[slots[0]] = batch
            return parts
        ordered = batch.take(pa.array(order))
        start = 0
        for slot, count in enumerate(counts):
            if count:
                parts[slot] = ordered.slice(start, count)
                start += count
        return parts

    def _slots(self, batch: pa.RecordBatch) -> npt.NDArray[Any]:
        columns = [batch.column(place) for place in self._columns]
        for column, place in zip(columns, self._columns, strict=True):
            if column.null_count:
                raise _null_key(batch.schema.field(place).name, column)
        if self._parallelism == 1:
            return np.zeros(batch.num_rows, np.uint8)
        keys = columns[0] if len(columns) == 1 else _struct(columns)
        try:
            hashes = self._codec.hash_column(keys)
        except Invalid as error:
            raise self._blamed(batch, error) from error
        groups = key_groups(hashes, self._max_parallelism)
        slots: npt.NDArray[Any] = self._slot_of_group.take(groups, mode="clip")
        return slots

    def _blamed(self, batch: pa.RecordBatch, error: Invalid) -> Invalid:
        """The error with the name of its column."""
        for codec, place in zip(self._codecs, self._columns, strict=True):
            try:
                codec.hash_column(batch.column(place))
            except Invalid as cause:
                return cause.replaced(where=f"key column {batch.schema.field(place).name!r}")
        return error


def _order(slots: npt.NDArray[Any], parallelism: int) -> tuple[npt.NDArray[Any], list[int]]:
    """The places of rows slot by slot, and how many each slot has; no places if all are of one."""
    if parallelism > _FEW_SLOTS:
        counts = np.bincount(slots, minlength=parallelism).tolist()
        is_one = max(counts) == len(slots)
        return np.argsort(slots[:0] if is_one else slots, kind="stable"), counts
    places = [np.flatnonzero(slots == slot) for slot in range(parallelism)]
    counts = list(map(len, places))
    return np.concatenate(places) if max(counts) < len(slots) else places[0][:0], counts


def _place_of(name: str, schema: pa.Schema) -> int:
    places: list[int] = schema.get_all_field_indices(name)
    if len(places) == 1:
        return places[0]
    raise Invalid(
        "a key column is missing" if not places else "the name of a key column is not unique",
        where=f"column {name!r}",
        expected=", ".join(map(repr, schema.names)) if not places else "one column of this name",
        found="no such column" if not places else f"{len(places)} columns",
    )


def _struct(columns: Sequence[pa.Array]) -> pa.StructArray:
    return pa.StructArray.from_arrays(columns, [str(place) for place in range(len(columns))])


def _null_key(name: str, column: pa.Array) -> Invalid:
    row = int(np.argmin(column.is_valid().to_numpy(zero_copy_only=False)))
    return Invalid(
        "a row has no key",
        where=f"key column {name!r}",
        expected="a value in each row",
        found=f"null in row {row} of a batch, and {column.null_count} of {len(column)} in all",
        fix="Drop those rows, or fill the column, before the stream is keyed",
    )
