"""The key of each row: the value of one column, or of several together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.runtime.api.functions import BatchOrder
from holdfast.runtime.columns.types import check_no_nulls, type_of_column
from holdfast.runtime.planning.partitioning import key_type
from holdfast.storage import Invalid

__all__ = ["KeyColumns", "key_type_of"]


def key_type_of(schema: pa.Schema, columns: Sequence[str], uid: str) -> Any:
    """The type of the keys that these columns make: that of the one, or a tuple of several.

    Raises:
        Invalid: there are no columns, or not these; or a column's type cannot be a key.
    """
    where = f"operator {uid!r}"
    if not columns or len(set(columns)) != len(columns):
        raise Invalid(
            "the key is not made of columns",
            where=where,
            expected="names of one column or more, each once",
            found=", ".join(map(repr, columns)) or "none",
        )
    types = tuple(_key_type(schema, name, where) for name in columns)
    return types[0] if len(types) == 1 else tuple.__class_getitem__(types)


def _key_type(schema: pa.Schema, name: str, where: str) -> Any:
    missing = f"there is no key column {name!r}"
    kind = type_of_column(schema, name, missing=missing, where=where)
    try:
        if not pa.types.is_nested(kind):
            return key_type(kind, column=name)
    except Invalid:
        pass  # said below, with the operator
    raise Invalid(
        f"column {name!r} cannot be a key",
        where=where,
        expected="whole numbers, text, bytes, truth, floats, dates, timestamps or decimals",
        found=str(kind),
        fix="Make a column of such a type of it first",
    )


class KeyColumns:
    """The key columns of batches of a schema."""

    def __init__(self, schema: pa.Schema, columns: Sequence[str], uid: str) -> None:
        """Raises as `key_type_of` does."""
        self.key_type = key_type_of(schema, columns, uid)
        self._uid = uid
        self._names = list(columns)
        self._places = [schema.get_field_index(name) for name in columns]

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """The keys of the rows, as state takes them: the column, or a struct of several.

        Raises:
            Invalid: a key is null; names the column.
        """
        columns = self._columns(batch)
        return columns[0] if len(columns) == 1 else pa.StructArray.from_arrays(columns, self._names)

    def arranged(self, batch: pa.RecordBatch, order: BatchOrder) -> pa.RecordBatch:
        """The same rows in the order that a function asks for; rows of one key keep theirs.

        Raises:
            Invalid: as `of` does.
        """
        columns = self._columns(batch)
        if order is BatchOrder.AS_THEY_COME or batch.num_rows < 2:
            return batch
        columns = list(map(_sortable, columns))
        if order is BatchOrder.SORTED:
            table = pa.Table.from_arrays(columns, names=list(map(str, self._places)))
            keys = [(name, "ascending") for name in table.column_names]
            return batch.take(pc.sort_indices(table, sort_keys=keys))
        return batch.take(pa.array(_grouping(columns)))

    def _columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        columns = [batch.column(place) for place in self._places]
        for name, column in zip(self._names, columns, strict=True):
            check_no_nulls(
                column,
                f"key column {name!r} has a null",
                where=f"operator {self._uid!r}",
                expected="a key in each row",
                fix="Drop such rows before key_by, or fill in a value",
            )
        return columns


def _sortable(column: pa.Array) -> pa.Array:
    """The column such that equal keys are equal to Arrow, and in a layout that it sorts."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        return pc.add(column.cast(pa.float64()), 0.0)  # makes 0.0 of -0.0
    if pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.binary())
    return column


def _grouping(columns: Sequence[pa.Array]) -> Any:
    """The places of rows, those of one key together, keys in the order of their first row."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.dictionary_encode()
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        codes = pa.array(codes).dictionary_encode().indices.to_numpy().astype(np.int64)
    if codes.max() <= np.iinfo(np.uint16).max:
        codes = codes.astype(np.uint16)  # which NumPy sorts by radix, several times as fast
    return np.argsort(codes, kind="stable")
