"""Rows as user functions see them: out of Arrow batches, and back into them.

All is done by the column, with Python's and Arrow's own loops; nothing here is called once a row
unless a row is odd.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from holdfast.backends.values.normalizing import shown
from holdfast.runtime.columns.reading import reader_of, row_maker
from holdfast.runtime.columns.writing import FieldsWriter, Misfit
from holdfast.storage import Invalid

__all__ = ["RowReader", "RowWriter"]


class RowReader:
    """Makes named tuples of batches that begin with the columns of a schema.

    Columns whose names Python cannot have are `_` and their number. Nested values are Python's,
    structs named tuples too; see `column_reading`.
    """

    def __init__(self, schema: pa.Schema, *, uid: str) -> None:
        self._uid = uid
        self._names = schema.names
        self._make = row_maker(schema.names)
        self._readers = [reader_of(kind) for kind in schema.types]

    def read(self, batch: pa.RecordBatch) -> Iterator[Any]:
        """The rows of a batch. All columns are read by this call, the tuples made on the way.

        Raises:
            Invalid: a value is none that Python has, such as a time of nanoseconds.
        """
        columns = []
        for place, read in enumerate(self._readers):
            try:
                columns.append(read(batch.column(place)))
            except Invalid as error:
                where = f"operator {self._uid!r}, input column {self._names[place]!r}"
                raise error.replaced(where=where) from None
        if not columns:
            return repeat(self._make(()), batch.num_rows)
        return map(self._make, zip(*columns, strict=True))


class RowWriter:
    """Makes batches of a schema from rows.

    A row is a tuple or a list with the values in order, or a dict with the values by name, where
    what is left out is null. Where the schema has one column, anything else is its value.
    """

    def __init__(self, schema: pa.Schema, *, where: str) -> None:
        """`where` names the output, for errors.

        Raises:
            Invalid: rows cannot have columns of such a type.
        """
        self.schema = schema
        self._where = where
        self._is_single = len(schema) == 1
        try:
            self._fields = FieldsWriter(list(schema))
        except Invalid as error:
            raise error.replaced(where=where) from None

    def columns(self, rows: Sequence[Any]) -> list[pa.Array]:
        """The columns of the rows.

        Raises:
            Invalid: a row does not fit; names row, column, the type expected and the value found.
        """
        if self._is_single and not set(map(type, rows)) <= {tuple}:
            rows = [row if isinstance(row, tuple | list | dict) else (row,) for row in rows]
        try:
            return self._fields.arrays(rows)
        except Misfit as misfit:
            where = f"{self._where}, row {misfit.place} {shown(rows[misfit.place])}"
            if misfit.path:
                where += f", column {misfit.path[1:]!r}"
            raise Invalid(
                "a row does not fit the schema of its output",
                where=where,
                expected=misfit.expected,
                found=misfit.found,
                fix="Yield rows that fit, or change schema=",
            ) from None

    def write(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """The rows as a batch; raises as `columns` does."""
        return pa.RecordBatch.from_arrays(self.columns(rows), schema=self.schema)
