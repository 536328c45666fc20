"""Clauses about a table as a whole: listing addresses, sweeping, neighbours, dropping it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

from holdfast.backends.tables.contract import NO_NAMESPACE, StateKind
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.samples import KEYS, PREFIXES
from holdfast.backends.testing.table_clauses.tables import (
    Cells,
    Lists,
    Maps,
    Tables,
    Values,
    tables,
)
from holdfast.storage.testing.checks import require, same

__all__ = ["NeighbourClauses", "ScanClauses"]

_MANY = 300
_LIMIT = 7
_SPACES: tuple[tuple[Any, Sequence[Any]], ...] = ((NO_NAMESPACE, [NO_NAMESPACE]), (str, PREFIXES))
"""Types of namespaces, with namespaces that are alike."""


class ScanClauses:
    """Clauses about `addresses`, `sweep` and `drop_table`."""

    def test_addresses_are_named_once(self, place: Place) -> None:
        """Each key with its namespace, once, however many elements or entries it has."""
        with tables(place) as scene:
            spaced: tuple[Any, Sequence[Any]] = (int, [0, -1, 7])
            for namespaces, spaces in (_SPACES[0], spaced):
                every = _filled(scene, f"{len(spaces)}", spaces, namespaces=namespaces)
                expected = Counter((key, space) for key in PREFIXES for space in spaces)
                for cells in every:
                    same(
                        Counter(cells.owners()),
                        expected,
                        f"how often each key of a {cells.spec.kind.value} table is named",
                    )

    def test_keys_of_every_type_are_named(self, place: Place) -> None:
        """As they were given: equal, and of their type."""
        with tables(place) as scene:
            for name, sample in KEYS.items():
                cells = scene.values(name, keys=sample.annotation)
                for number, key in enumerate(sample.instances):
                    cells.put(key, number)
                found = {key: type(key) for key, _ in cells.owners()}
                same(found, {key: type(key) for key in sample.instances}, f"keys of type {name}")

    def test_the_table_may_change_while_it_is_walked(self, place: Place) -> None:
        """What stays is named once, whatever comes and goes between two steps."""
        with tables(place) as scene:
            for cells in _filled(scene, "walked", keys=_many_keys()):
                _walk_and_change(cells)

    def test_a_sweep_returns_at_most_its_limit(self, place: Place) -> None:
        """Each call answers a handful at most: it is paid with every access to state."""
        with tables(place) as scene:
            for cells in _filled(scene, "swept", keys=_many_keys()):
                for limit in (1, _LIMIT, 10 * _MANY):
                    for _ in range(5):
                        found = len(list(cells.table.sweep(limit)))
                        require(found <= limit, f"a sweep of {limit} answered {found} addresses")
                        for address in cells.table.sweep(1):
                            cells.table.remove(address)
            empty = scene.values("empty")
            for _ in range(3):
                same(list(empty.table.sweep(_LIMIT)), [], "a sweep of an empty table")

    def test_sweeps_reach_every_address(self, place: Place) -> None:
        """What stays comes up in every round, whatever comes and goes: else it lives for ever.

        A round of n addresses takes at most n / limit calls, and two that begin and end it.
        """
        with tables(place) as scene:
            for cells in _filled(scene, "swept", keys=_many_keys()):
                staying = {cells.at(key) for key in _many_keys()[::2]}
                going = iter(_many_keys()[1::2])
                for round_number in range(4):
                    seen: set[object] = set()
                    for call in range(_MANY // _LIMIT + 4):
                        seen.update(cells.table.sweep(_LIMIT))
                        if call % 4 == 0:
                            cells.remove(next(going, "none"))
                            cells.fill(f"new {call % 12}", 1)
                    same(
                        len(staying - seen),
                        0,
                        f"addresses that sweeps of a {cells.spec.kind.value} table left out in "
                        f"round {round_number}",
                    )

    def test_a_dropped_table_opens_empty(self, place: Place) -> None:
        """One of the same name, of any kind and types, begins empty; other tables stay."""
        with tables(place) as scene:
            _filled(scene, "kept")
            for make, types, key, space in (
                (scene.values, {}, "k", NO_NAMESPACE),
                (scene.values, {"keys": bytes}, b"k", NO_NAMESPACE),
                (scene.lists, {"keys": int, "namespaces": str}, 1, "n"),
                (scene.maps, {"namespaces": int}, "k", 1),
            ):
                cells: Cells = make("dropped", **types)
                same(cells.owners(), [], "what is in a table of a name that was dropped")
                cells.fill(key, 1, space)
                same(cells.owners(), [(key, space)], "what was put after the drop")
                scene.store.drop_table(cells.spec)
            scene.store.drop_table(scene.spec("never made", StateKind.VALUE))
            for cells in scene.every("kept"):
                same(cells.keys(), sorted(PREFIXES), "the keys of tables that were not dropped")

    def test_a_table_is_opened_again_as_it_is(self, place: Place) -> None:
        """To ask for a table of a name that there is answers the one that there is."""
        with tables(place) as scene:
            first = _filled(scene, "again")
            content = [cells.content() for cells in first]
            again = scene.every("again")
            same([cells.content() for cells in again], content, "tables that were opened again")
            again[0].put("a", 77)
            same(first[0].content(), again[0].content(), "a table through the earlier object")


class NeighbourClauses:
    """Clauses that tables, keys and namespaces do not affect each other."""

    def test_values_leave_their_neighbours_alone(self, place: Place) -> None:
        """To remove one touches no other, however alike their keys are."""
        with tables(place) as scene:
            for namespaces, spaces in _SPACES:
                table = scene.values(f"values {len(spaces)}", namespaces=namespaces)
                _remove_each(table, spaces)

    def test_lists_leave_their_neighbours_alone(self, place: Place) -> None:
        """To remove or replace one touches no other, however alike their keys are."""
        with tables(place) as scene:
            for namespaces, spaces in _SPACES:
                lists = scene.lists(f"lists {len(spaces)}", namespaces=namespaces)
                for key in PREFIXES:
                    for space in spaces:
                        lists.extend(key, [1, 2], space)
                        lists.put(key, [3], space)
                _remove_each(lists, spaces)

    def test_maps_leave_their_neighbours_alone(self, place: Place) -> None:
        """To remove one touches no other, however alike keys, namespaces and map keys are."""
        with tables(place) as scene:
            for namespaces, spaces in _SPACES:
                maps = scene.maps(f"maps {len(spaces)}", namespaces=namespaces)
                for key in PREFIXES:
                    for space in spaces:
                        maps.put_all(key, dict.fromkeys(PREFIXES, 1), space)
                everything = sorted((map_key, 1) for map_key in PREFIXES)
                same(maps.items("a", spaces[-1]), everything, "map keys that are alike")
                _remove_each(maps, spaces)

    def test_keys_of_all_bytes_are_apart(self, place: Place) -> None:
        """Each has its own list, whatever bytes it is made of, and at the ends of its type."""
        with tables(place) as scene:
            for name, sample in KEYS.items():
                lists = scene.lists(name, keys=sample.annotation)
                for number, key in enumerate(sample.instances):
                    lists.extend(key, [number, -number])
                for number, key in enumerate(sample.instances):
                    same(lists.get(key), [number, -number], f"the list of key {key!r:.80}")
                    lists.remove(key)
                same(lists.owners(), [], f"keys of type {name} that are left")

    def test_tables_are_apart(self, place: Place) -> None:
        """The same keys in tables of other names, which may be any text."""
        names = [*PREFIXES[1:], "a/b", "../a", "A", "ü", "部", "n" * 300, "_timers/t/event"]
        with tables(place) as scene:
            every = [scene.values(name) for name in names]
            for number, values in enumerate(every):
                values.put("key", number)
            for number, values in enumerate(every):
                same(values.get("key"), number, f"the value in table {values.spec.name!r:.40}")
                scene.store.drop_table(values.spec)


def _many_keys() -> list[str]:
    return [f"k{number}" for number in range(_MANY)]


def _filled(
    scene: Tables,
    name: str,
    spaces: Sequence[object] = (NO_NAMESPACE,),
    *,
    keys: Sequence[str] = PREFIXES,
    namespaces: object = NO_NAMESPACE,
) -> tuple[Values, Lists, Maps]:
    """A table of each kind, with something at each key and namespace."""
    every = scene.every(name, namespaces=namespaces)
    for cells in every:
        for key in keys:
            for space in spaces:
                for _ in range(2):
                    cells.fill(key, 1, space)
    return every


def _walk_and_change(cells: Cells) -> None:
    staying, going = set(_many_keys()[::2]), set(_many_keys()[1::2])
    walk = cells.table.addresses()
    seen = [key for key, _ in islice(walk, 10)]
    for number, key in enumerate(sorted(going)):
        cells.remove(key)
        cells.fill(f"new {number}", 1)
        if step := next(walk, None):
            seen.append(step[0])
    seen += [key for key, _ in walk]
    named = Counter(key for key in seen if key in staying)
    what = f"how often a {cells.spec.kind.value} table named what stayed while it was walked"
    same(named, Counter(staying), what)
    strangers = {key for key in seen if not key.startswith("new ")} - staying - going
    same(strangers, set(), f"{what}, and what was never there")


def _remove_each(cells: Cells, spaces: Sequence[object]) -> None:
    """Remove one owner after the other, in an order that is not theirs; all others must stay."""
    owners = [(key, space) for key in PREFIXES for space in spaces]
    for key, space in owners:
        cells.fill(key, 1, space)
    before = cells.content()
    for key, space in [*owners[::-3], *reversed(owners)]:
        cells.remove(key, space)
        before.pop(key if cells.spec.namespaces is None else (key, space), None)
        if len(before) % 9 == 0 or len(spaces) == 1:
            same(cells.content(), before, f"what is left after {key!r}, {space!r} was removed")
    same(cells.owners(), [], "what is left after all was removed")
