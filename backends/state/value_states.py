"""States of one cell for each key and namespace: value, reducing and aggregating state.

Batches of numbers are reduced by Arrow and NumPy, with checks for overflow: Arrow's own sum
silently wraps around at 64 bits, where the row view raises. Minima and maxima of floats are
computed by Python, because NaN and signed zeros are treated differently elsewhere, and both views
must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from holdfast.backends.arrow.batches import Numbers, grouped, reduced_numbers, to_arrow, to_list
from holdfast.backends.state.base import KeyContext, State
from holdfast.backends.state.descriptors import (
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from holdfast.backends.tables.contract import HotEntries, TableSpec, ValueTable
from holdfast.backends.values.normalizing import has_none
from holdfast.storage.errors import Invalid

__all__ = ["AggregatingState", "DirectValueState", "ReducingState", "ValueState"]

_V = TypeVar("_V")
_Keys: TypeAlias = Any
"""A column of Arrow, or a sequence."""
_NUMBERS: dict[str, type] = {"i": int, "f": float}
"""Python's type for the kinds of NumPy's."""
_PART_ROWS = 4096


class _SingleState(State[_V]):
    """Base of states with one cell at an address."""

    _table: ValueTable

    def clear_many(self, keys: _Keys) -> None:
        """Clear the state of many keys."""
        self._context.check_thread()
        self._table.remove_many(self._addresses(keys))

    def _read(self) -> Any:
        cell = self._table.get(self._address())
        return None if cell is None else self._form.decode(cell)

    def _write(self, value: Any) -> None:
        self._table.put(self._address(), self._encode(value))

    def _read_many(self, addresses: Sequence[Any]) -> list[Any]:
        return self._decoded(self._table.get_many(addresses))

    def _decoded(self, cells: list[Any]) -> list[Any]:
        if not has_none(cells):
            return self._form.decode_many(cells)
        decode = self._form.decode
        return [None if cell is None else decode(cell) for cell in cells]

    def _require_length(self, addresses: Sequence[Any], values: Sequence[Any]) -> None:
        if len(addresses) != len(values):
            raise Invalid(
                f"columns for state {self.name!r} are not of one length",
                expected=f"{len(addresses)} values",
                found=str(len(values)),
            )

    def _write_many(self, addresses: Sequence[Any], values: Sequence[Any]) -> None:
        if not has_none(values):
            self._table.put_many(addresses, self._encode_many(values))
            return
        pairs = dict(zip(addresses, values, strict=True))
        kept = {address: value for address, value in pairs.items() if value is not None}
        self._table.put_many(list(kept), self._encode_many(list(kept.values())))
        self._table.remove_many([address for address in pairs if address not in kept])


class ValueState(_SingleState[_V]):
    """One value for each key and namespace."""

    _descriptor: ValueStateDescriptor

    def __init__(
        self, context: KeyContext, descriptor: StateDescriptor, spec: TableSpec, table: ValueTable
    ) -> None:
        super().__init__(context, descriptor, spec, table)
        default = self._descriptor.default
        self._shared_default = None if default is None else spec.values.check(default)
        self._is_copied = default is not None and not spec.values.is_immutable

    @property
    def _default(self) -> Any:
        """The default, as an object that the caller may change."""
        return deepcopy(self._shared_default) if self._is_copied else self._shared_default

    def value(self) -> _V | None:
        """The value, or the descriptor's default."""
        found: _V | None = self._read()
        return self._default if found is None else found

    def update(self, value: _V | None) -> None:
        """Set the value; None clears it.

        Raises:
            Invalid: the value does not fit its type; nothing has changed.
        """
        if value is None:
            self.clear()
        else:
            self._write(value)

    def get_many(self, keys: _Keys) -> pa.Array | list[Any]:
        """The value of each key; an Arrow array where the type has one, else a list."""
        self._context.check_thread()
        values = self._read_many(self._addresses(keys))
        if self._shared_default is not None and has_none(values):
            values = [self._default if value is None else value for value in values]
        return to_arrow(values, self._spec.values)

    def put_many(self, keys: _Keys, values: pa.Array | pa.ChunkedArray | Sequence[Any]) -> None:
        """Set the value of each key; the last one for a key wins, a null clears.

        Raises:
            Invalid: a key or a value does not fit its type, or there are more of one than of the
                other; nothing has changed.
        """
        self._context.check_thread()
        addresses, listed = self._addresses(keys), to_list(values)
        self._require_length(addresses, listed)
        self._write_many(addresses, listed)


class DirectValueState(ValueState[_V]):
    """Value state in a dict, with keys as addresses and values as cells.

    It behaves as `ValueState`, and saves the calls in between.
    """

    def __init__(
        self,
        context: KeyContext,
        descriptor: StateDescriptor,
        spec: TableSpec,
        table: ValueTable,
        entries: HotEntries,
    ) -> None:
        super().__init__(context, descriptor, spec, table)
        self._entries = entries
        self._mirror = table.write_mirror
        self._is_int = self._form.exact is int

    def value(self) -> _V | None:
        key = self._context.key
        found: _V | None = self._entries.hot.get(key)
        if found is None:
            found = self._table.get(key)
        return super().value() if found is None else found

    def update(self, value: Any) -> None:
        if (
            value.__class__ is int
            and self._is_int
            and -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF
        ):
            key = self._context.key
            self._entries.hot[key] = value
            if self._mirror is not None:
                self._mirror.hot[key] = value
        else:
            super().update(value)


class ReducingState(_SingleState[_V]):
    """One value for each key and namespace: all added values, reduced to one."""

    _descriptor: ReducingStateDescriptor

    def get(self) -> _V | None:
        """The reduced value; None if nothing was added."""
        found: _V | None = self._read()
        return found

    def add(self, value: _V) -> None:
        """Add a value."""
        (value,) = self._checked((value,))
        there = self._read()
        self._write(value if there is None else self._descriptor.reduce(there, value))

    def get_many(self, keys: _Keys) -> pa.Array | list[Any]:
        """`get` for each key."""
        self._context.check_thread()
        return to_arrow(self._read_many(self._addresses(keys)), self._spec.values)

    def reduce_many(
        self, keys: _Keys, values: pa.Array | pa.ChunkedArray | Sequence[Any]
    ) -> tuple[_Keys, pa.Array | list[Any]]:
        """Add a value for each key; keys may repeat.

        Answers each key once, and the new value of each.

        Raises:
            Invalid: a key or a value does not fit its type; nothing has changed.
        """
        self._context.check_thread()
        reduce = self._descriptor.reduce
        unique, added = grouped(keys, values, reduce, self._context.keys_of, self._checked)
        addresses = self._addresses(unique)
        if isinstance(added, np.ndarray):
            order = self._context.store.order(addresses)
            if order is not None:
                addresses = list(map(addresses.__getitem__, order.tolist()))
                unique, added = unique.take(order), added[order]
            numbers = self._reduce_numbers(addresses, added)
            if numbers is not None:
                return unique, pa.array(numbers)
            added = added.tolist()
        there = self._table.get_many(addresses)
        added = self._form.decode_many(self._encode_many(added))
        pairs = zip(self._decoded(there), added, strict=True)
        reduced = [new if old is None else reduce(old, new) for old, new in pairs]
        cells = self._encode_many(reduced)
        self._table.put_many(addresses, cells)
        return unique, to_arrow(self._decoded(cells), self._spec.values)

    def _checked(self, values: Sequence[Any]) -> list[Any]:
        """The values, converted to the exact types of the state, before the user's function."""
        try:
            return self._spec.values.check_many(values)
        except Invalid as error:
            raise self._wrong(error) from None

    def _reduce_numbers(self, addresses: Sequence[Any], added: Numbers) -> Numbers | None:
        """Reduce numbers, a part at a time; None if cells are not numbers, or if one overflows.

        Parts are short, so that entries are still in the processor's cache when they are set.
        """
        if (
            self._form.exact is None
            and self._spec.values.name == _NUMBERS[added.dtype.kind].__name__
        ):
            return self._reduce_encoded(addresses, added)
        if self._form.exact is not _NUMBERS[added.dtype.kind]:
            return None
        reduce, table = self._descriptor.reduce, self._table
        before: list[tuple[Sequence[Any], list[Any]]] = []
        after = np.empty_like(added)
        for start in range(0, len(addresses), _PART_ROWS):
            part = addresses[start : start + _PART_ROWS]
            there = table.get_many(part)
            numbers = reduced_numbers(there, added[start : start + _PART_ROWS], reduce)
            if numbers is None:
                for changed, cells in before:
                    _put_back(table, changed, cells)
                return None
            table.put_many(part, numbers.tolist())
            before.append((part, there))
            after[start : start + len(part)] = numbers
        return after

    def _reduce_encoded(self, addresses: Sequence[Any], added: Numbers) -> Numbers | None:
        """`_reduce_numbers` where cells are bytes, all at once."""
        there = self._decoded(self._table.get_many(addresses))
        after = reduced_numbers(there, added, self._descriptor.reduce)
        if after is not None:
            self._table.put_many(addresses, self._encode_many(after.tolist()))
        return after

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Reduce the values of `sources` into `target`, for the current key; clear the sources."""
        _merge_single(self, target, sources, self._descriptor.reduce)


class AggregatingState(_SingleState[_V]):
    """An accumulator for each key and namespace."""

    _descriptor: AggregatingStateDescriptor

    def get(self) -> Any:
        """The result of the accumulator; None if nothing was added."""
        there = self._read()
        return None if there is None else self._descriptor.function.get_result(there)

    def add(self, value: Any) -> None:
        """Add a value."""
        function = self._descriptor.function
        there = self._read()
        accumulator = function.create_accumulator() if there is None else there
        self._write(function.add(value, accumulator))

    def get_many(self, keys: _Keys) -> list[Any]:
        """`get` for each key."""
        self._context.check_thread()
        result = self._descriptor.function.get_result
        there = self._read_many(self._addresses(keys))
        return [None if accumulator is None else result(accumulator) for accumulator in there]

    def add_many(self, keys: _Keys, values: pa.Array | pa.ChunkedArray | Sequence[Any]) -> None:
        """Add a value for each key; keys may repeat.

        Raises:
            Invalid: a key or an accumulator does not fit its type, or there are more of one than of
                the other; nothing has changed.
        """
        self._context.check_thread()
        function = self._descriptor.function
        addresses, listed = self._addresses(keys), to_list(values)
        self._require_length(addresses, listed)
        unique = list(dict.fromkeys(addresses))
        found = dict(zip(unique, self._read_many(unique), strict=True))
        for address, value in zip(addresses, listed, strict=True):
            there = found[address]
            accumulator = function.create_accumulator() if there is None else there
            found[address] = function.add(value, accumulator)
        self._write_many(unique, list(found.values()))

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge accumulators of `sources` into `target`, for the current key; clear the sources."""
        _merge_single(self, target, sources, self._descriptor.function.merge)


def _put_back(table: ValueTable, addresses: Sequence[Any], cells: Sequence[Any]) -> None:
    """Set cells to what they were."""
    pairs = list(zip(addresses, cells, strict=True))
    table.remove_many([address for address, cell in pairs if cell is None])
    kept = [(address, cell) for address, cell in pairs if cell is not None]
    table.put_many([address for address, _ in kept], [cell for _, cell in kept])


def _merge_single(
    state: ReducingState[Any] | AggregatingState[Any],
    target: Any,
    sources: Iterable[Any],
    merge: Callable[[Any, Any], Any],
) -> None:
    """Merge, write, and only then clear the sources: the user's `merge` may fail."""
    merged = None
    seen: dict[Any, None] = {}
    try:
        for source in (target, *sources):
            state.set_current_namespace(source)
            found = None if state.namespace in seen else state._read()
            seen[state.namespace] = None
            if found is not None:
                merged = found if merged is None else merge(merged, found)
    finally:
        state.set_current_namespace(target)
    if merged is not None:
        state._write(merged)
    for emptied in list(seen)[1:]:
        state.namespace = emptied
        state.clear()
    state.set_current_namespace(target)
