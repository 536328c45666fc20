"""Columns of Arrow as lists of Python values: by the column, not by the value.

| Arrow | Python |
|---|---|
| timestamp | `datetime`, in the time zone of the column if it has one |
| struct | a named tuple |
| list | a list |
| map | a dict |
| anything else | what `to_pylist` makes of it; null is None |
"""

from __future__ import annotations

import datetime as dt
from collections import namedtuple
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import pyarrow as pa

from holdfast.storage import Invalid

__all__ = ["Reader", "reader_of", "row_maker"]

Reader: TypeAlias = Callable[[pa.Array], list[Any]]
"""Makes a list of an array of its type; raises `Invalid` where Python has no such value."""

_UTC_NAMES = {"UTC", "utc", "Etc/UTC", "Z", "+00:00"}


def row_maker(names: Iterable[str]) -> Callable[[Iterable[Any]], Any]:
    """What makes a named tuple of values; a name that Python cannot have becomes `_` and a number.

    Pickling such a tuple is refused: its class is made anew in each process.
    """
    row = namedtuple("Row", list(names), rename=True)  # type: ignore[misc] # noqa: PYI024
    return partial(tuple.__new__, row)


def reader_of(kind: pa.DataType) -> Reader:
    """The reader of columns of a type."""
    if pa.types.is_timestamp(kind):
        return partial(_read_times, _zone(kind.tz))
    if pa.types.is_duration(kind):
        return _read_durations
    if pa.types.is_dictionary(kind):
        return _after(pa.DictionaryArray.dictionary_decode, reader_of(kind.value_type))
    return _nested_reader_of(kind) if pa.types.is_nested(kind) else _read_plain


def _nested_reader_of(kind: pa.DataType) -> Reader:
    if pa.types.is_struct(kind):
        make = row_maker(field.name for field in kind)
        return partial(_read_structs, make, [reader_of(field.type) for field in kind])
    if pa.types.is_map(kind):
        return partial(_read_maps, reader_of(kind.key_type), reader_of(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return partial(_read_lists, reader_of(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        lists = pa.list_(kind.value_field)
        return _after(lambda array: array.cast(lists), _nested_reader_of(lists))
    return _read_plain


def _after(first: Callable[[pa.Array], pa.Array], read: Reader) -> Reader:
    return lambda array: read(first(array))


def _read_plain(array: pa.Array) -> list[Any]:
    kind = array.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if pa.types.is_string(kind) or (is_number and not array.null_count):
        array = array.to_numpy(zero_copy_only=False)
        return list(array.tolist())
    return list(array.to_pylist())


def _zone(name: str | None) -> dt.tzinfo | None:
    if name is None or name in _UTC_NAMES:
        return None if name is None else dt.UTC
    zone: dt.tzinfo = pa.lib.string_to_tzinfo(name)
    return zone


def _read_times(zone: dt.tzinfo | None, array: pa.Array) -> list[Any]:
    if array.type.unit == "ns":
        array = _in_microseconds(array, pa.timestamp("us", array.type.tz))
    times = array.to_numpy(zero_copy_only=False).tolist()
    if int in set(map(type, times)):
        raise Invalid("a time is out of range", expected="a year from 1 to 9999")
    if zone is None:
        return list(times)
    times = [None if time is None else time.replace(tzinfo=dt.UTC) for time in times]
    if zone is dt.UTC:
        return times
    return [None if time is None else time.astimezone(zone) for time in times]


def _read_durations(array: pa.Array) -> list[Any]:
    if array.type.unit == "ns":
        array = _in_microseconds(array, pa.duration("us"))
    return list(array.to_pylist())


def _in_microseconds(array: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return array.cast(kind)
    except pa.ArrowInvalid as error:
        raise Invalid(
            "a time is finer than a microsecond",
            expected="whole microseconds, the finest that Python's datetime holds",
            found=str(error),
            fix="Round it first",
        ) from None


def _read_structs(
    make: Callable[[Iterable[Any]], Any], readers: list[Reader], array: pa.Array
) -> list[Any]:
    columns = [read(child) for read, child in zip(readers, array.flatten(), strict=True)]
    rows = list(map(make, zip(*columns, strict=True))) if columns else [make(())] * len(array)
    return _with_nulls(rows, array)


def _read_lists(read: Reader, array: pa.Array) -> list[Any]:
    offsets = array.offsets.to_pylist()
    values = read(array.values[offsets[0] : offsets[-1]])
    return _with_nulls(_pieces(values, offsets), array)


def _read_maps(read_keys: Reader, read_items: Reader, array: pa.Array) -> list[Any]:
    offsets = array.offsets.to_pylist()
    keys = read_keys(array.keys[offsets[0] : offsets[-1]])
    items = read_items(array.items[offsets[0] : offsets[-1]])
    pairs = zip(_pieces(keys, offsets), _pieces(items, offsets), strict=True)
    try:
        maps = [dict(zip(*pair, strict=True)) for pair in pairs]
    except TypeError as error:
        raise Invalid("a map has keys that Python cannot look up", found=str(error)) from None
    return _with_nulls(maps, array)


def _pieces(values: list[Any], offsets: list[int]) -> list[list[Any]]:
    first = offsets[0]
    return [values[start - first : end - first] for start, end in pairwise(offsets)]


def _with_nulls(values: list[Any], array: pa.Array) -> list[Any]:
    if not array.null_count:
        return values
    is_there = array.is_valid().to_pylist()
    return [value if there else None for value, there in zip(values, is_there, strict=True)]
