"""Clauses about making blocks of rows, as a log of changes does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from holdfast.backends.blocks.block import Block
from holdfast.backends.keys.groups import key_group
from holdfast.backends.state.timers import timer_queue, timer_specs
from holdfast.backends.tables.contract import NO_NAMESPACE, Rows, TableSpec, TableStore
from holdfast.backends.tables.timer_queues import TimerQueue
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.samples import INT64_MAX, INT64_MIN, KEYS, PREFIXES
from holdfast.backends.testing.scenes import meanwhile
from holdfast.backends.testing.table_clauses.tables import GROUPS, Cells, Tables, rows_of, tables
from holdfast.storage.testing.checks import require, same

__all__ = ["ChangeClauses"]

_MANY = 30_000
_SPACES = ("", "a\0")


class ChangeClauses:
    """Clauses about `TableStore.blocks`, and about replaying a log into a queue of timers."""

    def test_rows_make_the_same_table(self, place: Place) -> None:
        """Loaded as blocks into another table, of every kind, with keys of every type."""
        with tables(place) as scene, tables(place) as other:
            for name, sample in KEYS.items():
                types = {"keys": sample.annotation, "namespaces": str}
                changes = [
                    (key, number, space)
                    for number, key in enumerate(sample.instances)
                    for space in _SPACES
                ]
                for cells, loaded in zip(
                    scene.every(name, **types), other.every(name, **types), strict=True
                ):
                    for change in changes:
                        cells.fill(*change)
                    loaded.load(_blocks(cells, changes))
                    same(loaded.content(), cells.content(), f"{cells.kind}, keys of type {name}")
                maps = other.maps(f"{name} entries", map_keys=sample.annotation)
                entries = [("a", n or None, NO_NAMESPACE) for n in range(len(sample.instances))]
                maps.load(_blocks(maps, entries, map_keys=sample.instances))
                expected = {key: n or None for n, key in enumerate(sample.instances)}
                same(dict(maps.items("a")), expected, f"map keys of type {name}")

    def test_blocks_of_rows_are_by_key_group(self, place: Place) -> None:
        """That of the key's hash; it ascends within a block and from one to the next."""
        with tables(place) as scene:
            for name, sample in KEYS.items():
                cells = scene.maps(name, keys=sample.annotation)
                changes = [(key, 1, NO_NAMESPACE) for key in sample.instances]
                for with_cells in (True, False):
                    blocks = _blocks(cells, changes, cells=with_cells)
                    found = [
                        (int(group), cells.spec.keys.decode(key))
                        for block in blocks
                        for group, key in zip(
                            block.group_array, block.keys.to_list(block.count), strict=True
                        )
                    ]
                    groups = [group for group, _ in found]
                    hashed = [key_group(cells.spec.keys.hash(key), GROUPS) for _, key in found]
                    same(groups, hashed, f"the key groups of rows by {name}")
                    same(groups, sorted(groups), f"the order of rows by {name}")
                    same(len(found), len(sample.instances), f"how many rows by {name} there are")

    def test_rows_of_an_address_stay_in_order(self, place: Place) -> None:
        """Whatever comes between them: lists are appended to, and the last value counts."""
        changes = [(PREFIXES[n % 7], n, NO_NAMESPACE) for n in range(900)]
        with tables(place) as scene:
            values, lists, maps = every = scene.every()
            for cells in every:
                cells.load(_blocks(cells, changes))
            of_key = {key: [n for k, n, _ in changes if k == key] for key in PREFIXES[:7]}
            same(lists.content(), of_key, "lists whose elements came in turns")
            last = {key: elements[-1] for key, elements in of_key.items()}
            same(values.content(), last, "values that were set in turns")
            expected = {key: [("m", value)] for key, value in last.items()}
            same(maps.content(), expected, "entries that were set in turns")

    def test_blocks_of_rows_have_all_their_parts(self, place: Place) -> None:
        """Namespace, map key, null and stamp come out as they went in."""
        stamps = (INT64_MIN, -1, 0, 1, INT64_MAX)
        with tables(place) as scene:
            maps = scene.maps(namespaces=int, stamped=True, map_keys=int)
            changes = [
                (key, (stamp, n % 3 or None), n - 2)
                for key in PREFIXES
                for n, stamp in enumerate(stamps)
            ]
            map_keys = [(-1) ** n * n for n in range(len(changes))]
            blocks = _blocks(maps, changes, map_keys=map_keys)
            found = {
                (row.key, (row.stamp, row.value), row.namespace, row.map_key)
                for row in rows_of(maps.spec, blocks)
            }
            expected = {(*change, key) for change, key in zip(changes, map_keys, strict=True)}
            same(sorted(found, key=repr), sorted(expected, key=repr), "rows with all their parts")
            maps.load(blocks)
            for (key, value, space), map_key in zip(changes, map_keys, strict=True):
                same(maps.get(key, map_key, space), value, "an entry that was loaded of them")

    def test_many_rows_make_several_blocks(self, place: Place) -> None:
        """So that memory is bounded; also for rows without cells."""
        changes = [(key, -key, NO_NAMESPACE) for key in range(_MANY)]
        with tables(place) as scene, tables(place) as other:
            values, loaded = scene.values(keys=int), other.values(keys=int)
            blocks = _blocks(values, changes)
            require(len(blocks) > 2, f"{_MANY} rows must make more than {len(blocks)} blocks")
            edges = [(int(block.group_array[0]), int(block.group_array[-1])) for block in blocks]
            same([a[1] <= b[0] for a, b in pairwise(edges)], [True] * (len(blocks) - 1), "blocks")
            loaded.load(blocks)
            expected = {key: -key for key in range(_MANY)}
            same(loaded.content(), expected, "what many rows make")
            removals = _blocks(values, changes[1:], cells=False)
            require(len(removals) > 2, f"as many without cells make {len(removals)} blocks")
            loaded.unload(removals)
            same(loaded.content(), {0: 0}, "what is left of them")
            same(_blocks(values, []), [], "blocks of no rows")

    def test_rows_without_cells_are_unloaded(self, place: Place) -> None:
        """Addresses of every kind of table; with map keys just these entries."""
        with tables(place) as scene:
            for stamped in (False, True):
                value = (1, 1) if stamped else 1
                every = [(key, value, space) for key in PREFIXES for space in _SPACES]
                for cells in scene.every(f"{stamped}", namespaces=str, stamped=stamped):
                    for change in every:
                        cells.fill(*change)
                    cells.unload(_blocks(cells, every[::3], cells=False))
                    kept = {(key, space) for n, (key, _, space) in enumerate(every) if n % 3}
                    same(set(cells.owners()), kept, f"{cells.kind} that are not unloaded")
            maps = scene.maps("entries", map_keys=int)
            for key in PREFIXES:
                maps.put_all(key, {1: 1, 2: None, 3: 3})
            entries = [(key, None, NO_NAMESPACE) for key in PREFIXES for _ in (1, 3)]
            map_keys = [1, 3] * len(PREFIXES)
            maps.unload(_blocks(maps, entries, cells=False, map_keys=map_keys))
            expected = {key: [(2, None)] for key in PREFIXES}
            same(maps.content(), expected, "maps of which entries were unloaded")

    def test_making_blocks_changes_nothing(self, place: Place) -> None:
        """No table is read or written; the rows may be of one that is gone, and was another."""
        with tables(place) as scene:
            old = scene.maps("table", keys=int, map_keys=int, namespaces=str)
            rows = [(key, key, "a") for key in range(100)]
            map_keys = [key % 7 for key in range(100)]
            expected = sorted(rows_of(old.spec, _blocks(old, rows, map_keys=map_keys)))
            scene.store.drop_table(old.spec)
            new = scene.values("table", keys=str)
            for number, key in enumerate(PREFIXES):
                new.put(key, number)
            before = new.content()
            for _ in range(2):
                found = sorted(rows_of(old.spec, _blocks(old, rows, map_keys=map_keys)))
                same(found, expected, "rows of a table that is gone")
                _blocks(new, [(key, 100, NO_NAMESPACE) for key in PREFIXES])
                same(new.content(), before, "the table that is there")
                with scene.frozen() as frozen:
                    frozen_now = {row.key: row.value for row in new.rows(frozen)}
                    same(frozen_now, before, "the table that is there, frozen")

    def test_another_thread_makes_blocks(self, place: Place) -> None:
        """While the owner goes on with the same table; neither notices the other."""
        with tables(place) as scene:
            every = scene.every()
            changes = [(f"k{number}", number, NO_NAMESPACE) for number in range(500)]
            expected = [sorted(rows_of(cells.spec, _blocks(cells, changes))) for cells in every]
            rows = [_rows(cells, changes) for cells in every]
            found: list[list[Any]] = []

            def make() -> None:
                for _ in range(5):
                    for cells, each in zip(every, rows, strict=True):
                        blocks = scene.store.blocks(cells.spec, each)
                        found.append(sorted(rows_of(cells.spec, blocks)))

            def change(number: int) -> None:
                for cells in every:
                    cells.fill(f"k{number % 500}", number)
                    cells.remove(f"k{number * 7 % 500}")
                    scene.store.form(cells.spec)

            meanwhile(make, change)
            same(found, expected * 5, "the blocks that another thread makes")

    def test_timers_are_rows_with_their_moments(self, place: Place) -> None:
        """As map keys, whatever the store keeps them by; blocks of them are loaded and unloaded."""
        with tables(place) as scene, tables(place) as other:
            for spec, timers in _timers(scene):
                queue, target = timer_queue(scene.store, spec), timer_queue(other.store, spec)
                for timer in timers:
                    queue.add(*timer)
                blocks = _timer_blocks(scene.store, spec, timers, are_there=True)
                found = [(row.map_key, row.key, row.namespace) for row in rows_of(spec, blocks)]
                expected = sorted(_named(timers), key=repr)
                same(sorted(found, key=repr), expected, "timers as rows")
                groups = np.concatenate([block.group_array for block in blocks])
                require((np.diff(groups.astype(int)) >= 0).all(), "timers are by key group")
                for block in blocks:
                    target.load(block)
                same(_due(target), _due(queue), "timers that were loaded as rows")

    def test_timers_change_before_they_are_read(self, place: Place) -> None:
        """A replay changes the table of a queue that is made but not used yet."""
        with tables(place) as scene:
            for spec, timers in _timers(scene):
                queue = timer_queue(scene.store, spec)
                table = scene.store.table(spec)
                for block in _timer_blocks(scene.store, spec, timers, are_there=True):
                    table.load(block)
                for block in _timer_blocks(scene.store, spec, timers[::2], are_there=False):
                    table.unload(block)
                for block in _timer_blocks(scene.store, spec, timers[:4], are_there=True):
                    table.load(block)
                expected = sorted({*timers[:4], *timers[1::2]}, key=repr)
                with scene.frozen() as frozen:
                    rows = rows_of(spec, frozen.blocks(spec, None))
                    names = sorted(
                        ((row.map_key, row.key, row.namespace) for row in rows), key=repr
                    )
                    same(names, sorted(_named(expected), key=repr), "frozen timers")
                first = min(moment for moment, _, _ in expected)
                same(queue.first_moment(), first, "the first timer after a replay")
                queue.add(5, *timers[0][1:])
                queue.remove(*timers[1])
                wanted = {*expected, (5, *timers[0][1:])} - {timers[1]}
                same(_due(queue), sorted(wanted, key=repr), "timers after a replay")


_Change = tuple[Any, Any, Any]
"""A key, a value and a namespace."""


def _rows(
    cells: Cells, changes: Sequence[_Change], *, map_keys: Iterable[Any] | None = None
) -> Rows:
    """The changes as rows; without map keys, a map's are the one that `Cells.fill` sets."""
    if map_keys is None and cells.spec.map_keys is not None:
        map_keys = ["m"] * len(changes)
    return Rows(
        addresses=[cells.at(key, space) for key, _, space in changes],
        map_keys=None if map_keys is None else list(map_keys),
        cells=[cells.cell(value) for _, value, _ in changes],
    )


def _blocks(
    of: Cells,
    changes: Sequence[_Change],
    *,
    cells: bool = True,
    map_keys: Iterable[Any] | None = None,
) -> list[Block]:
    """The blocks of rows; those without cells name entries only if there are map keys."""
    rows = _rows(of, changes, map_keys=map_keys)
    if not cells:
        rows = Rows(rows.addresses, None if map_keys is None else rows.map_keys)
    return list(of.store.blocks(of.spec, rows))


_Timer = tuple[int, Any, Any]
"""A moment, a key and a namespace."""


def _timers(scene: Tables) -> list[tuple[TableSpec, list[_Timer]]]:
    """Timers with and without namespaces, from the ends of 64 bits, some of one moment."""
    moments = (INT64_MIN, -1, 0, 1, 256, INT64_MAX)
    plain = scene.spec("plain", scene.values().spec.kind).key_type
    spaces = scene.values("spaces", namespaces=str).spec.namespaces
    made: list[tuple[TableSpec, list[_Timer]]] = []
    for name, namespaces, named in (("a", None, (NO_NAMESPACE,)), ("b", spaces, _SPACES)):
        spec, _ = timer_specs(name, plain, namespaces)
        timers = [(at, key, space) for key in PREFIXES for space in named for at in moments]
        made.append((spec, timers))
    return made


def _timer_blocks(
    store: TableStore, spec: TableSpec, timers: Sequence[_Timer], *, are_there: bool
) -> list[Block]:
    cell = store.form(spec).encode(True)
    rows = Rows(
        addresses=[store.address(spec, key, space) for _, key, space in timers],
        map_keys=[moment for moment, _, _ in timers],
        cells=[cell] * len(timers) if are_there else None,
    )
    return list(store.blocks(spec, rows))


def _named(timers: Iterable[_Timer]) -> list[_Timer]:
    """As rows of blocks have them, where no namespace is None."""
    return [(at, key, None if space is NO_NAMESPACE else space) for at, key, space in timers]


def _due(queue: TimerQueue) -> list[_Timer]:
    """All timers, which go by that."""
    due = queue.due(INT64_MAX)
    return sorted(((each.timestamp, each.key, each.namespace) for each in due), key=repr)
