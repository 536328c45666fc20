"""Columns of Arrow from Python values, strictly: a value fits its column, or it is refused.

Arrow alone would make the number 1 of 1.0 and of True, a day of a time, bytes of text, and a time
in UTC of one that has no zone. What is not lossy is accepted: an int for a float or a decimal, a
scalar of NumPy or Arrow for what it stands for, a dict or a tuple for a struct.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.backends.values.normalizing import shown, to_plain
from holdfast.runtime.columns.types import is_text
from holdfast.storage import Invalid

__all__ = ["FieldsWriter", "Misfit", "Writer", "writer_of"]

Writer: TypeAlias = Callable[[Sequence[Any]], pa.Array]
"""Makes an array of values; raises `Misfit`."""

_Null: TypeAlias = type(None)
_REFUSALS = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow and NumPy raise for values that they cannot take."""


class Misfit(Exception):
    """A value does not fit: its place among the values, and the path to the part that does not."""

    def __init__(self, place: int, *, expected: str, found: str, path: str = "") -> None:
        super().__init__(f"value {place}{path}: expected {expected}, found {found}")
        self.place = place
        self.path = path
        self.expected = expected
        self.found = found

    def within(self, place: int, path: str) -> Misfit:
        """The same as the value sees it that has this one inside."""
        return Misfit(place, path=path + self.path, expected=self.expected, found=self.found)


def writer_of(kind: pa.DataType, *, nullable: bool) -> Writer:
    """The writer of columns of a type.

    Raises:
        Invalid: rows cannot have columns of this type.
    """
    if pa.types.is_struct(kind):
        return partial(_write_structs, _Nested(kind, nullable), FieldsWriter(list(kind)))
    if pa.types.is_map(kind):
        keys = writer_of(kind.key_type, nullable=False)
        items = writer_of(kind.item_type, nullable=kind.item_field.nullable)
        return partial(_write_maps, _Nested(kind, nullable), keys, items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = writer_of(kind.value_type, nullable=kind.value_field.nullable)
        return partial(_write_lists, _Nested(kind, nullable), inner)
    for is_of, classes, build in _SCALARS:
        if is_of(kind):
            return _Scalars(kind, nullable, classes, build)
    raise Invalid(
        "rows cannot have a column of this type",
        expected="numbers, text, bytes, truth, dates and times, decimals; structs, lists and maps "
        "of those",
        found=str(kind),
    )


def _named(kind: pa.DataType, nullable: bool) -> str:  # noqa: FBT001
    return str(kind) if nullable else f"{kind}, not null"


def _shown_or_null(value: object) -> str:
    return "null" if value is None else shown(value)


class _Scalars:
    """A writer of values that are not made of others: first their classes, then their size."""

    def __init__(
        self,
        kind: pa.DataType,
        nullable: bool,  # noqa: FBT001
        classes: frozenset[type],
        build: Callable[[Sequence[Any], pa.DataType], pa.Array],
    ) -> None:
        self._kind = kind
        self._expected = _named(kind, nullable)
        self._accepted = classes | {_Null} if nullable else classes
        self._build = build
        self._is_plain: tuple[set[type], Any] | None = None
        for number, cls, dtype in _NUMBERS:
            if kind == number:
                self._is_plain = {cls}, dtype

    def __call__(self, values: Sequence[Any]) -> pa.Array:
        classes = set(map(type, values))
        if not classes <= self._accepted:
            values = self._converted(values)
            classes = set(map(type, values))
        try:
            if self._is_plain is not None and classes == self._is_plain[0]:
                return pa.array(np.fromiter(values, self._is_plain[1], len(values)))
            array = self._build(values, self._kind)
        except _REFUSALS:
            raise self._misfit(values) from None
        if isinstance(array, pa.ChunkedArray):
            raise Misfit(0, expected=self._expected, found="more than 2 GiB in one batch")
        return array

    def _converted(self, values: Sequence[Any]) -> list[Any]:
        converted = []
        for place, value in enumerate(values):
            try:
                plain = to_plain(value)
            except (Invalid, *_REFUSALS):
                raise self._refused(place, value) from None
            if type(plain) not in self._accepted:
                raise self._refused(place, value)
            converted.append(plain)
        return converted

    def _misfit(self, values: Sequence[Any]) -> Misfit:
        for place, value in enumerate(values):
            try:
                self._build([value], self._kind)
            except _REFUSALS:
                return self._refused(place, value)
        raise AssertionError(f"{self._kind} refuses values together and takes each alone")

    def _refused(self, place: int, value: object) -> Misfit:
        return Misfit(place, expected=self._expected, found=_shown_or_null(value))


def _build_plain(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


def _build_floats(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    wide = pa.array(values, pa.float64())
    if kind == pa.float64():
        return wide
    narrow = wide.cast(kind, safe=False)
    if np.isinf(narrow.cast(pa.float64()).to_numpy(zero_copy_only=False)).sum() != (
        np.isinf(wide.to_numpy(zero_copy_only=False)).sum()
    ):
        raise OverflowError
    return narrow


def _build_times(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    for value in values:
        if value is not None and (value.tzinfo is None) is not (kind.tz is None):
            raise TypeError
    return pa.array(values, pa.timestamp("us", kind.tz)).cast(kind)


def _build_times_of_day(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.time64("us")).cast(kind)


def _build_durations(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.duration("us")).cast(kind)


_NUMBERS = ((pa.int64(), int, np.int64), (pa.float64(), float, np.float64))
"""Types whose columns NumPy makes in half the time, if all values are of one class."""


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


_SCALARS: tuple[
    tuple[
        Callable[[pa.DataType], bool],
        frozenset[type],
        Callable[[Sequence[Any], pa.DataType], pa.Array],
    ],
    ...,
] = (
    (pa.types.is_integer, frozenset({int}), _build_plain),
    (pa.types.is_floating, frozenset({float, int}), _build_floats),
    (pa.types.is_boolean, frozenset({bool}), _build_plain),
    (is_text, frozenset({str}), _build_plain),
    (pa.types.is_decimal, frozenset({Decimal, int}), _build_plain),
    (_is_bytes, frozenset({bytes}), _build_plain),
    (pa.types.is_date32, frozenset({dt.date}), _build_plain),
    (pa.types.is_timestamp, frozenset({dt.datetime}), _build_times),
    (pa.types.is_time, frozenset({dt.time}), _build_times_of_day),
    (pa.types.is_duration, frozenset({dt.timedelta}), _build_durations),
    (pa.types.is_null, frozenset({_Null}), _build_plain),
)


class FieldsWriter:
    """Makes the columns of rows: of tuples and lists by position, of dicts by name."""

    def __init__(self, fields: Sequence[pa.Field]) -> None:
        self.names = [field.name for field in fields]
        self._known = set(self.names)
        self._writers = [writer_of(field.type, nullable=field.nullable) for field in fields]
        self._expected = f"a tuple of {len(fields)} values, or a dict, for " + ", ".join(self.names)

    def arrays(self, rows: Sequence[Any]) -> list[pa.Array]:
        """A column for each field.

        Raises:
            Misfit: its path begins with the field's name; or is empty if the row has other fields.
        """
        width = len(self.names)
        classes = set(map(type, rows))
        if not all(issubclass(each, tuple | list) for each in classes) or (
            rows and set(map(len, rows)) != {width}
        ):
            rows = [self._by_position(place, row) for place, row in enumerate(rows)]
        arrays = []
        for field, write in enumerate(self._writers):
            try:
                arrays.append(write(list(map(itemgetter(field), rows))))
            except Misfit as misfit:
                raise misfit.within(misfit.place, f".{self.names[field]}") from None
        return arrays

    def _by_position(self, place: int, row: Any) -> Sequence[Any]:
        if isinstance(row, Mapping):
            if row.keys() <= self._known:
                return [row.get(name) for name in self.names]
        elif isinstance(row, tuple | list) and len(row) == len(self.names):
            return row
        raise Misfit(place, expected=self._expected, found=_shown_or_null(row))


class _Nested:
    """What writers of values made of others have in common."""

    def __init__(self, kind: pa.DataType, nullable: bool) -> None:  # noqa: FBT001
        self.kind = kind
        self._nullable = nullable
        self._expected = _named(kind, nullable)

    def nulls(self, values: Sequence[Any]) -> npt.NDArray[np.bool_]:
        """Which values are null."""
        is_null = np.fromiter((value is None for value in values), np.bool_, len(values))
        if not self._nullable and is_null.any():
            raise self.refused(int(np.argmax(is_null)), None)
        return is_null

    def refused(self, place: int, value: object) -> Misfit:
        return Misfit(place, expected=self._expected, found=_shown_or_null(value))

    def listed(self, values: Sequence[Any], *, as_pairs: bool = False) -> list[list[Any]]:
        """The elements of each value, none of a null."""
        return [self._elements(place, value, as_pairs) for place, value in enumerate(values)]

    def _elements(self, place: int, value: Any, as_pairs: bool) -> list[Any]:  # noqa: FBT001
        if value is None:
            return []
        if isinstance(value, Mapping) and as_pairs:
            return list(value.items())
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if isinstance(value, list | tuple):
            pairs = value if as_pairs else ()
            if all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
                return list(value)
        raise self.refused(place, value)


def _write_structs(nested: _Nested, fields: FieldsWriter, values: Sequence[Any]) -> pa.Array:
    is_null = nested.nulls(values)
    if is_null.any():
        there = np.flatnonzero(~is_null).tolist()
        try:
            arrays = fields.arrays([values[place] for place in there])
        except Misfit as misfit:
            raise misfit.within(there[misfit.place], "") from None
        rows = pa.array(np.cumsum(~is_null) - 1, mask=is_null)
        arrays = [array.take(rows) for array in arrays]
    else:
        arrays = fields.arrays(values)
    return pa.StructArray.from_arrays(arrays, fields=list(nested.kind), mask=pa.array(is_null))


def _write_lists(nested: _Nested, inner: Writer, values: Sequence[Any]) -> pa.Array:
    is_null, listed = nested.nulls(values), nested.listed(values)
    offsets = _offsets(listed)
    items = _inner(inner, chain.from_iterable(listed), offsets, "[]")
    large = pa.types.is_large_list(nested.kind)
    cls, width = (pa.LargeListArray, pa.int64()) if large else (pa.ListArray, pa.int32())
    return cls.from_arrays(
        pa.array(offsets, width), items, type=nested.kind, mask=pa.array(is_null)
    )


def _write_maps(nested: _Nested, keys: Writer, items: Writer, values: Sequence[Any]) -> pa.Array:
    is_null, listed = nested.nulls(values), nested.listed(values, as_pairs=True)
    offsets = _offsets(listed)
    pairs = list(chain.from_iterable(listed))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()),
        _inner(keys, map(itemgetter(0), pairs), offsets, "[key]"),
        _inner(items, map(itemgetter(1), pairs), offsets, "[value]"),
        type=nested.kind,
        mask=pa.array(is_null),
    )


def _offsets(listed: list[list[Any]]) -> npt.NDArray[np.int64]:
    lengths = np.fromiter(map(len, listed), np.int64, len(listed))
    return np.concatenate(([0], np.cumsum(lengths)))


def _inner(
    write: Writer, values: Iterable[Any], offsets: npt.NDArray[np.int64], path: str
) -> pa.Array:
    try:
        return write(list(values))
    except Misfit as misfit:
        outer = int(np.searchsorted(offsets, misfit.place, "right")) - 1
        raise misfit.within(outer, path) from None
