"""Clauses about freezing: tables stay as they were at one moment while the owner goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.backends.tables.contract import FrozenTables, StateKind
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.samples import PREFIXES
from holdfast.backends.testing.scenes import meanwhile
from holdfast.backends.testing.table_clauses.tables import Cells, Tables, Values, tables
from holdfast.storage.testing.checks import require, same

__all__ = ["FreezeClauses"]

_MANY = 2000
_ROUNDS = 5


class FreezeClauses:
    """Clauses about `freeze`, `release` and `settle`."""

    def test_frozen_values_do_not_change(self, place: Place) -> None:
        """Whatever the owner does after the freeze, one by one and many at once."""
        with tables(place) as scene:
            values = scene.values()
            values.put_many([(key, 1) for key in PREFIXES])
            with scene.frozen() as frozen:
                values.put("a", 2)
                values.put_many([("ab", 2), ("new", 2)])
                values.remove("b")
                values.remove_many(["abc", ""])
                found = {row.key: row.value for row in values.rows(frozen)}
                same(found, dict.fromkeys(PREFIXES, 1), "values in frozen tables")
                same((values.get("a"), values.get("b")), (2, "absent"), "values of the owner")

    def test_frozen_lists_do_not_change(self, place: Place) -> None:
        """A list that is appended to, replaced or removed is another one from then on."""
        with tables(place) as scene:
            lists = scene.lists()
            for key in "abcd":
                lists.extend(key, [1, 2])
            with scene.frozen() as frozen:
                lists.extend("a", [3])
                lists.put("b", [4])
                lists.remove("c")
                lists.extend("new", [5])
                expected = {key: [1, 2] for key in "abcd"}
                same(_content_of(lists, frozen), expected, "frozen lists")
                lists.extend("a", [6])
                same(_content_of(lists, frozen), expected, "frozen lists, read once more")
            expected = {"a": [1, 2, 3, 6], "b": [4], "d": [1, 2], "new": [5]}
            same(lists.content(), expected, "lists of the owner")

    def test_frozen_maps_do_not_change(self, place: Place) -> None:
        """An entry that is put or removed is so for the owner only."""
        with tables(place) as scene:
            maps = scene.maps()
            for key in "abcd":
                maps.put_all(key, {"x": 1, "y": None})
            with scene.frozen() as frozen:
                maps.put("a", "x", 2)
                maps.put("a", "z", 3)
                maps.put_all("b", {"x": 4, "new": 5})
                maps.remove_entry("c", "x")
                maps.remove_entry("c", "y")
                maps.remove("d")
                found = sorted((row.key, row.map_key, row.value) for row in maps.rows(frozen))
                expected = [(key, *entry) for key in "abcd" for entry in (("x", 1), ("y", None))]
                same(found, expected, "entries in frozen tables")
            same(maps.keys(), ["a", "b"], "keys of the owner")

    def test_a_dropped_table_stays_frozen(self, place: Place) -> None:
        """A drop after the freeze, and what is made under its name, belong to the owner alone."""
        with tables(place) as scene:
            values = scene.values()
            values.put("a", 1)
            with scene.frozen() as frozen:
                scene.store.drop_table(values.spec)
                again = scene.values()
                again.put("b", 2)
                same([row.key for row in values.rows(frozen)], ["a"], "a table dropped later")
                same(again.keys(), ["b"], "the table that was made anew")

    def test_each_freeze_has_its_own_moment(self, place: Place) -> None:
        """Several may be held at once, and are released in any order."""
        with tables(place) as scene:
            every = scene.every()
            held: list[tuple[FrozenTables, list[dict[object, object]]]] = []
            for number in range(6):
                for cells in every:
                    cells.fill(f"k{number % 4}", number)
                    cells.remove(f"k{(number + 1) % 4}")
                held.append((scene.store.freeze(), [cells.content() for cells in every]))
            for number in (3, 0, 4, 1, 5, 2):
                frozen, expected = held[number]
                found = [_content_of(cells, frozen) for cells in every]
                same(found, expected, f"the tables of moment {number}")
                frozen.release()
                for cells in every:
                    cells.fill("k0", number)

    def test_changes_between_freezes_are_not_lost(self, place: Place) -> None:
        """Many rounds of changes, freezing, releasing and settling are like changes alone."""
        with tables(place) as scene:
            frozen_often = scene.every()
            held: list[FrozenTables] = []
            for number in range(120):
                _change_each(frozen_often, number)
                if number % 5 == 0:
                    held.append(scene.store.freeze())
                if number % 8 == 7:
                    held.pop(number % len(held)).release()
                if not held:
                    scene.store.settle(lambda: False)
            while held:
                held.pop().release()
            scene.store.settle(lambda: False)
            with tables(place) as plain_scene:
                plain = plain_scene.every()
                for number in range(120):
                    _change_each(plain, number)
                expected = [cells.content() for cells in plain]
            same([cells.content() for cells in frozen_often], expected, "tables frozen often")

    def test_another_thread_reads_frozen_tables(self, place: Place) -> None:
        """While the owner goes on with the same keys; neither notices the other."""
        with tables(place) as scene:
            every = scene.every()
            for cells in every:
                for number in range(_MANY):
                    cells.fill(f"k{number}", number)
            expected = [cells.content() for cells in every]
            frozen = scene.store.freeze()
            found: list[dict[object, object]] = []

            def read() -> None:
                for _ in range(3):
                    found.extend(_content_of(cells, frozen) for cells in every)
                frozen.release()

            def write(number: int) -> None:
                for cells in every:
                    cells.fill(f"k{number % _MANY}", number)
                    cells.fill(f"new {number % 50}", number)
                    cells.remove(f"k{(number * 7) % _MANY}")

            meanwhile(read, write)
            same(found, expected * 3, "what another thread read of frozen tables")

    def test_the_owner_goes_on_while_the_store_settles(self, place: Place) -> None:
        """It reads, writes and walks its tables; what happens in the background is no change."""
        with tables(place) as scene:
            for number in range(_ROUNDS):  # what two threads do at once, they do not do each time
                _settle_beside_the_owner(scene.values(f"values {number}", keys=int))

    def test_settling_stops_when_told_to(self, place: Place) -> None:
        """A snapshot that waits for the thread must not wait for tidying up."""
        with tables(place) as scene:
            values = scene.values(keys=int)
            for first in range(0, 10 * _MANY, _MANY):
                values.put_many([(key, key) for key in range(first, first + 2 * _MANY)])
                scene.store.freeze().release()
            asked: list[int] = []

            def stop() -> bool:
                asked.append(len(asked))
                return len(asked) >= 3

            scene.store.settle(stop)
            require(len(asked) <= 4, f"to settle went on when told to stop {len(asked)} times")
            same(len(values.keys()), 11 * _MANY, "keys after settling was stopped")


def _change_each(every: Sequence[Cells], number: int) -> None:
    for cells in every:
        cells.fill(f"k{number % 11}", number)
        cells.remove(f"k{number % 7}")


def _settle_beside_the_owner(values: Values) -> None:
    scene = Tables(values.store)
    for first in range(0, 16 * _MANY, _MANY):
        values.put_many([(key, key) for key in range(first, first + 2 * _MANY)])
        with scene.frozen():
            values.remove(first)
    expected = len(values.keys())

    def walk(number: int) -> None:
        same(len(values.owners()), expected, "keys that are named while the store settles")
        key = _MANY + 1 + number % _MANY
        values.put(key, -key)
        same(values.get(key), -key, "what was put while the store settles")
        require(len(list(values.table.sweep(10))) <= 10, "a sweep of 10 answers at most 10")

    meanwhile(lambda: values.store.settle(lambda: False), walk)
    walk(0)


def _content_of(cells: Cells, frozen: FrozenTables) -> dict[Any, Any]:
    """The content of a table at the moment of a freeze, as `Cells.content` answers it."""
    found: dict[Any, Any] = {}
    for row in cells.rows(frozen):
        match cells.spec.kind:
            case StateKind.VALUE:
                found[row.key] = row.value
            case StateKind.LIST:
                found.setdefault(row.key, []).append(row.value)
            case StateKind.MAP:
                found.setdefault(row.key, []).append((row.map_key, row.value))
    return found
