"""Comparison of two snapshots: whether they have the same entries, and which ones differ.

Checksums are compared first, which is cheap. Only if they differ are rows compared, a few key
groups at a time so that memory stays bounded. State without keys is small and compared as a whole.
If values have different types, their common part is compared (`common_types`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import msgspec

from holdfast.backends.arrow.keys import KeyForm
from holdfast.backends.arrow.rows import Positions
from holdfast.backends.arrow.values import ValueForm, is_plain
from holdfast.backends.blocks.block import Block
from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.operator_state.redistribution import Mode
from holdfast.backends.schema.evolution import compare_keys
from holdfast.backends.schema.steps import Verdict
from holdfast.backends.snapshots.neutral import TableInfo
from holdfast.backends.snapshots.regrouping import Regrouping, in_order
from holdfast.backends.values.type_descriptions import Schema
from holdfast.savepoints.comparing.common_types import common_of_all, differences, projection
from holdfast.savepoints.finding import KEYED, OPERATOR, StoredSnapshot
from holdfast.savepoints.reading.readers import OperatorReader
from holdfast.savepoints.reading.row_sums import RowCounter, RowSums
from holdfast.savepoints.reading.tables import KeyedTable
from holdfast.savepoints.showing.inspecting import type_of
from holdfast.savepoints.showing.rows import unpacked
from holdfast.storage.errors import UNREADABLE

__all__ = ["ComparedSnapshots", "ComparedState", "compare"]

_ROWS_AT_ONCE = 200_000
_EXAMPLES = 3
_SHOWN_CHARACTERS = 60
_ONLY_A, _ONLY_B, _CHANGED = "only in A", "only in B", "another value"
_TYPES_DIFFER = "types differ"
_RAWS = list[msgspec.Raw]
_State = tuple[str, str]
"""The name of a state, and its kind."""
_RowId = tuple[bytes, bytes, bytes, int]
_RowValue = tuple[Any, Any]


class ComparedState(msgspec.Struct, frozen=True):
    """A state of both snapshots, or of one.

    `status` is `equal`, `different`, `types differ`, `only in A` or `only in B`. Rows are matched
    by key, namespace, and map key or position in the list; `changed` are those with other values.
    If types differ, the common part of values is compared, provided that types of keys agree.
    """

    uid: str
    state: str
    kind: str
    """`keyed` or `operator`; a state with keys and one without may share a name."""
    status: str
    rows_a: int = 0
    rows_b: int = 0
    only_a: int = 0
    only_b: int = 0
    changed: int = 0
    examples: tuple[str, ...] = ()
    """Some keys with their differences."""
    types: tuple[str, ...] = ()
    """The differences of the types."""


class ComparedSnapshots(msgspec.Struct, frozen=True):
    """The comparison of all states of both snapshots."""

    a: str
    b: str
    states: tuple[ComparedState, ...]

    @property
    def are_equal(self) -> bool:
        """Whether both have the same entries."""
        return all(state.status == "equal" for state in self.states)


def compare(a: StoredSnapshot, b: StoredSnapshot, tell: Callable[[int], None]) -> ComparedSnapshots:
    """Compare all state, as sets of entries.

    `tell` is called with the number of rows read since the last call.

    Raises:
        Corrupt: a snapshot is damaged; names the file.
        Unavailable: a storage did not answer.
    """
    states: list[ComparedState] = []
    uids = sorted({*a.metadata.operators, *b.metadata.operators})
    for uid in uids:
        sides = [_Side(each, uid, tell) for each in (a, b)]
        there = sorted({*sides[0].states, *sides[1].states})
        states += [_compared(uid, state, *sides) for state in there]
    return ComparedSnapshots(a.path, b.path, tuple(states))


class _Types(NamedTuple):
    """The types of a state: its kind, the parts that identify a row, and the values."""

    kind: str
    places: dict[str, Schema | None]
    """Types of the parts that identify a row, by their names in messages."""
    values: Schema
    is_stamped: bool = False

    def has_places_of(self, other: _Types) -> bool:
        """Whether rows of one can be matched with rows of the other."""
        return self.kind == other.kind and not any(_moved(self, other))


def _moved(a: _Types, b: _Types) -> Iterator[str]:
    """The parts of which types differ, so that rows cannot be matched."""
    for what, mine in a.places.items():
        its = b.places[what]
        if mine is None or its is None:
            if mine != its:
                yield f"{what}: {_type_of(mine)} in A, {_type_of(its)} in B"
        elif compare_keys(mine, its).verdict is not Verdict.COMPATIBLE_AS_IS:
            yield f"{what}: {_type_of(mine)} in A, {_type_of(its)} in B"


def _type_of(schema: Schema | None) -> str:
    return "none" if schema is None else type_of(schema)


def _types_differ(a: Sequence[_Types], b: Sequence[_Types]) -> tuple[str, ...]:
    """The differences of the types other than names of classes, one line each."""
    if sorted(map(msgspec.json.encode, a)) == sorted(map(msgspec.json.encode, b)):
        return ()
    found: dict[str, None] = {}
    for mine, its in product(a, b):
        if mine.kind != its.kind:
            found[f"kind: {mine.kind} in A, {its.kind} in B"] = None
        found |= dict.fromkeys((*_moved(mine, its), *differences(mine.values, its.values)))
        if mine.is_stamped != its.is_stamped:
            found[f"a time to live only in {'A' if mine.is_stamped else 'B'}"] = None
    return tuple(found)


def _types_of(info: TableInfo, keys: Schema | None) -> _Types:
    places = {"key": keys, "namespace": info.namespaces, "map key": info.map_keys}
    return _Types(info.kind, places, info.values, info.stamped)


class _Side:
    """The state of an operator in one of the two snapshots."""

    def __init__(self, snapshot: StoredSnapshot, uid: str, tell: Callable[[int], None]) -> None:
        has = uid in snapshot.metadata.operators
        self.reader = snapshot.keyed(uid) if has else None
        self.unkeyed = snapshot.unkeyed(uid) if has else OperatorReader(uid, (), snapshot.folder)
        self.tell = tell
        self.keyed: dict[str, list[KeyedTable]] = {}
        if self.reader is not None:
            for table in self.reader.description.tables:
                self.keyed.setdefault(table.name, []).append(table)
        unkeyed = self.unkeyed.tables()
        self.broadcast = {table.name for table in unkeyed if table.info.mode is Mode.BROADCAST}
        self.states = {(name, KEYED) for name in self.keyed}
        self.states |= {(table.name, OPERATOR) for table in unkeyed}
        self._sums: dict[str, RowSums] | None = None
        self.common: Schema | None = None
        """The common type that values are compared by, if the other side has another type."""

    def sums(self, state: _State) -> RowSums:
        name, kind = state
        if kind == KEYED:
            if self._sums is None:
                self._sums = self._of_all_keyed()
            return self._sums[name]
        found = list(self._of_slots(name))
        if name in self.broadcast:
            found = list(dict.fromkeys(found))  # each slot has a copy; slots may differ in number
        return sum(found, RowSums())

    def types(self, state: _State) -> list[_Types]:
        """The types in which a state is stored; several if slots differ."""
        name, kind = state
        if kind == KEYED:
            assert self.reader is not None
            keys = self.reader.description.keys
            return [_types_of(table.info, keys) for table in self.keyed[name]]
        written = [each.info for each in self.unkeyed.named(name)]
        return [
            _Types(each.mode.value, {"map key": each.map_keys}, each.values) for each in written
        ]

    def rows(self, name: str, wanted: KeyGroupRange, max_parallelism: int) -> dict[_RowId, Any]:
        """The rows of a state in these of `max_parallelism` key groups, by what identifies them."""
        assert self.reader is not None
        description = self.reader.description
        found: dict[_RowId, Any] = {}
        is_other = description.max_parallelism != max_parallelism
        for tables in self.reader.open_each(None if is_other else wanted):
            for table in self.keyed.get(name, ()):
                blocks: Iterable[Block] = tables.blocks(table)
                if is_other and description.keys is not None:
                    moved = Regrouping(description.keys, max_parallelism)
                    blocks = in_order(
                        [each for block in blocks for each in moved.regrouped(block, wanted)]
                    )
                found.update(_rows(table, blocks, self.common))
        return found

    def elements(self, name: str) -> Counter[bytes]:
        """The number of occurrences of each element of a list without keys, over all slots."""
        found = Counter[bytes]()
        for slot in self.unkeyed.slots:
            for _, values in self._of_slot(name, slot):
                found.update(map(_in_key_order, values))
        return found

    def copies(self, name: str) -> list[dict[bytes, bytes]]:
        """The entries of broadcast state in each slot."""
        return [
            {
                key: _in_key_order(value)
                for keys, values in self._of_slot(name, slot)
                for key, value in zip(keys, values, strict=True)
            }
            for slot in self.unkeyed.slots
        ]

    def _of_slot(self, name: str, slot: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        for each in self.unkeyed.named(name):
            for block in self.unkeyed.blocks(each, slot):
                keys = [] if block.map_keys is None else block.map_keys.to_list(block.count)
                yield keys, _packed(block, each.info.values, self.common)

    def _of_all_keyed(self) -> dict[str, RowSums]:
        """The checksums of all keyed states, with the part of each slot read once."""
        assert self.reader is not None
        every = self.reader.description.tables
        counters = [RowCounter(table.info, _form(table.info.values)) for table in every]
        for tables in self.reader.open_each():
            for table, counter in zip(every, counters, strict=True):
                self._count(tables.blocks(table), counter)
        found: dict[str, RowSums] = {}
        for table, counter in zip(every, counters, strict=True):
            found[table.name] = found.get(table.name, RowSums()) + counter.sums
        return found

    def _of_slots(self, name: str) -> Iterator[RowSums]:
        """The checksums of a state without keys, for each slot."""
        for each in self.unkeyed.named(name):
            for slot in self.unkeyed.slots:
                counter = RowCounter(each.as_unordered, _form(each.info.values))
                self._count(self.unkeyed.blocks(each, slot), counter)
                yield counter.sums

    def _count(self, blocks: Iterable[Block], counter: RowCounter) -> None:
        for block in blocks:
            counter.add(block)
            self.tell(block.count)


def _form(schema: dict[str, Any]) -> ValueForm | None:
    return None if is_plain(schema) else ValueForm(schema, checked=False)


def _compared(uid: str, state: _State, a: _Side, b: _Side) -> ComparedState:
    """Compare one state. An empty state equals a missing one: a job creates it on first access."""
    name, kind = state
    if state not in b.states and (rows := a.sums(state).rows):
        return ComparedState(uid, name, kind, _ONLY_A, rows_a=rows, only_a=rows)
    if state not in a.states and (rows := b.sums(state).rows):
        return ComparedState(uid, name, kind, _ONLY_B, rows_b=rows, only_b=rows)
    if not (state in a.states and state in b.states):
        return ComparedState(uid, name, kind, "equal")
    sums_a, sums_b = a.sums(state), b.sums(state)
    is_empty = not (sums_a.rows and sums_b.rows)
    found = ComparedState(uid, name, kind, "equal", rows_a=sums_a.rows, rows_b=sums_b.rows)
    types = () if is_empty else _types_differ(a.types(state), b.types(state))
    if not types:
        return found if sums_a == sums_b else _detailed(found, a, b)
    found = msgspec.structs.replace(found, status=_TYPES_DIFFER, types=types)
    every = [*a.types(state), *b.types(state)]
    if not all(each.has_places_of(every[0]) for each in every):
        return found  # rows cannot be matched
    a.common = b.common = common_of_all([each.values for each in every])
    try:
        return _detailed(found, a, b)
    finally:
        a.common = b.common = None


_Differences = Iterable[tuple[str, bytes]]
"""For each row the difference, empty if there is none, and its key, or the element itself."""
_Called = Callable[[bytes], str]


def _detailed(state: ComparedState, a: _Side, b: _Side) -> ComparedState:
    """Add the rows that differ; if none does, equal rows were only encoded differently."""
    is_keyed = state.kind == KEYED
    differences = _of_keyed(state, a, b) if is_keyed else _of_unkeyed(state.state, a, b)
    side = a if state.rows_a else b  # a side without rows may lack types, or have others
    called = _key_codec(side) if is_keyed else _entry_codec(side, state.state)
    counts = Counter[str]()
    examples: dict[bytes, Counter[str]] = {}
    for what, key in differences:
        counts[what] += 1
        if what and (key in examples or len(examples) < _EXAMPLES):
            examples.setdefault(key, Counter())[what] += 1
    status = "different" if counts.keys() - {""} else "equal"
    return msgspec.structs.replace(
        state,
        status=state.status if state.types else status,
        only_a=counts[_ONLY_A],
        only_b=counts[_ONLY_B],
        changed=counts[_CHANGED],
        examples=tuple(f"{called(key)}: {_counted(its)}" for key, its in examples.items()),
    )


def _counted(of_key: Counter[str]) -> str:
    """The differences of a key, with their numbers if its list or map has several."""
    return ", ".join(f"{count:,} {what}" if count > 1 else what for what, count in of_key.items())


def _of_keyed(state: ComparedState, a: _Side, b: _Side) -> _Differences:
    assert a.reader is not None
    groups = a.reader.description.max_parallelism
    for wanted in _ranges(groups, max(state.rows_a, state.rows_b)):
        mine, its = (side.rows(state.state, wanted, groups) for side in (a, b))
        for row in dict.fromkeys((*mine, *its)):
            yield _difference(row, mine, its), row[0]


def _of_unkeyed(name: str, a: _Side, b: _Side) -> _Differences:
    """Differences of broadcast state by key; of lists by number of occurrences over all slots."""
    if name in a.broadcast and name in b.broadcast:
        yield from _of_copies(a.copies(name), b.copies(name))
        return
    counted_a, counted_b = a.elements(name), b.elements(name)
    for what, more in ((_ONLY_A, counted_a - counted_b), (_ONLY_B, counted_b - counted_a)):
        for element in more.elements():
            yield what, element


def _of_copies(
    mine: Sequence[Mapping[bytes, bytes]], its: Sequence[Mapping[bytes, bytes]]
) -> _Differences:
    """Differences by key, of its values over all slots: copies of one snapshot may differ."""
    keys = dict.fromkeys(key for copy in (*mine, *its) for key in copy)
    for key in keys:
        values_a, values_b = ({copy.get(key) for copy in side} for side in (mine, its))
        if values_a == values_b:
            yield "", key
        elif values_b == {None}:
            yield _ONLY_A, key
        else:
            yield _ONLY_B if values_a == {None} else _CHANGED, key


def _key_codec(side: _Side) -> _Called:
    assert side.reader is not None
    keys = side.reader.description.keys
    assert keys is not None, "where there are rows, there are keys"
    return partial(_shown_key, KeyForm(keys).codec)


def _entry_codec(side: _Side, name: str) -> _Called:
    map_keys = side.unkeyed.named(name)[0].info.map_keys
    return _shown_value if map_keys is None else partial(_shown_key, KeyForm(map_keys).codec)


def _shown_key(codec: KeyCodec[Any], key: bytes) -> str:
    return repr(codec.decode(key))


def _difference(row: Any, mine: Mapping[Any, Any], its: Mapping[Any, Any]) -> str:
    if row not in its:
        return _ONLY_A
    if row not in mine:
        return _ONLY_B
    a, b = mine[row], its[row]
    return "" if a == b or _row_in_key_order(a) == _row_in_key_order(b) else _CHANGED


def _row_in_key_order(row: _RowValue) -> _RowValue:
    value, stamp = row
    return None if value is None else _in_key_order(value), stamp


def _in_key_order(packed: bytes) -> bytes:
    """The same value in MessagePack, with the entries of maps sorted by key.

    Dicts keep the order of insertion, which does not count in a comparison. A value in which a map
    has maps as keys is left unchanged.
    """
    try:
        return msgspec.msgpack.encode(_sorted(msgspec.msgpack.decode(packed)))
    except (*UNREADABLE, TypeError):
        return packed


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        entries = sorted((msgspec.msgpack.encode(key), key, each) for key, each in value.items())
        return {key: _sorted(each) for _, key, each in entries}
    if isinstance(value, list | tuple):
        return [_sorted(each) for each in value]
    return value


def _shown_value(packed: bytes) -> str:
    """A value as text, cut if it is long."""
    shown = repr(unpacked(packed))
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}…"


def _ranges(max_parallelism: int, rows: int) -> list[KeyGroupRange]:
    count = max(1, min(max_parallelism, -(-rows // _ROWS_AT_ONCE)))
    bounds = [max_parallelism * number // count for number in range(count + 1)]
    return [KeyGroupRange(bounds[at], bounds[at + 1] - 1) for at in range(count)]


def _packed(block: Block, schema: Schema, common: Schema | None) -> list[bytes]:
    """The values of a block as they come back from typed columns, cut to the common type."""
    form = _form(schema)
    packed = block.values if form is None else form.from_arrow(form.to_arrow(block.values))
    if common is None:
        return list(map(bytes, msgspec.msgpack.decode(packed, type=_RAWS)))
    project = projection(schema, common)
    return [_projected(each, project) for each in msgspec.msgpack.decode(packed, type=_RAWS)]


def _projected(packed: msgspec.Raw, project: Callable[[Any], Any]) -> bytes:
    try:
        return msgspec.msgpack.encode(project(msgspec.msgpack.decode(packed)))
    except (*UNREADABLE, TypeError):  # a map with maps as keys is left unchanged
        return bytes(packed)


def _rows(
    table: KeyedTable, blocks: Iterable[Block], common: Schema | None
) -> Iterator[tuple[_RowId, _RowValue]]:
    """For each row, what identifies it, and its value and stamp."""
    positions = Positions() if table.info.kind == "list" else None
    is_timers = table.info.kind == "timers"
    for block in blocks:
        count = block.count
        if not count:
            continue
        keys = block.keys.to_list(count)
        spaces = [b""] * count if block.namespaces is None else block.namespaces.to_list(count)
        fields = [b""] * count if block.map_keys is None else block.map_keys.to_list(count)
        places = [0] * count if positions is None else positions.of(block).tolist()
        values: Sequence[Any] = [None] * count
        if not is_timers:
            values = _packed(block, table.info.values, common)
        stamps = block.stamp_array
        # If types differ, one side may have no time to live, and so no stamps to compare.
        used = [None] * count if stamps is None or common is not None else stamps.tolist()
        for *row, value, stamp in zip(keys, spaces, fields, places, values, used, strict=True):
            yield tuple(row), (value, stamp)
