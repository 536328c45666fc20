"""Clauses about unloading: removing what a block names, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.backends.blocks.block import NO_VALUES, Block
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.samples import KEYS, PREFIXES
from holdfast.backends.testing.table_clauses.tables import Cells, blocks_of, tables
from holdfast.storage.testing.checks import same

__all__ = ["UnloadClauses"]

_MANY = 3000
_ONE: tuple[Any, ...] = (1, [1], [("m", 1)])
"""What `fill` with 1 makes of a value, a list and a map."""


class UnloadClauses:
    """Clauses about `unload`, with blocks that name addresses, or entries of maps."""

    def test_unloaded_values_are_gone(self, place: Place) -> None:
        """Of keys of every type; those beside them stay, and none of the others is named."""
        with tables(place) as scene, tables(place) as other:
            for name, sample in KEYS.items():
                values = scene.values(name, keys=sample.annotation)
                gone = other.values(name, keys=sample.annotation)
                for number, key in enumerate(sample.instances):
                    values.put(key, number)
                    if number % 2:
                        gone.put(key, 0)
                values.unload(_naming(gone))
                expected = dict(zip(sample.instances[::2], range(0, 1000, 2), strict=False))
                same(values.content(), expected, f"values by {name} after some were unloaded")
                removed = values.get_many(sample.instances[1::2])
                same(set(removed), {"absent"}, f"unloaded values by {name}")

    def test_unloaded_lists_are_gone(self, place: Place) -> None:
        """Also long ones, and all at once; a list at the same place begins anew."""
        with tables(place) as scene, tables(place) as other:
            lists, gone = scene.lists(), other.lists()
            for number, key in enumerate(PREFIXES):
                lists.extend(key, range(number + 1))
            lists.extend("ab", range(_MANY))
            for key in ("", "a", "ab", "b"):
                gone.extend(key, [0, 0])  # two rows of one address: it is named twice
            lists.unload(_naming(gone))
            expected = {
                key: list(range(number + 1))
                for number, key in enumerate(PREFIXES)
                if key not in {"", "a", "ab", "b"}
            }
            same(lists.content(), expected, "lists after some were unloaded")
            lists.extend("ab", [5])
            same(lists.get("ab"), [5], "a list that was begun after it was unloaded")

    def test_unloaded_maps_are_gone(self, place: Place) -> None:
        """With every entry that they had, however many."""
        with tables(place) as scene, tables(place) as other:
            maps, gone = scene.maps(map_keys=int), other.maps(map_keys=int)
            for key in PREFIXES:
                maps.put_all(key, {1: 1, 2: None})
            maps.put_all("a", {number: number for number in range(_MANY)})
            for key in ("a", "a\0", "new"):
                gone.put(key, 7, 7)
            maps.unload(_naming(gone))
            expected = {key: [(1, 1), (2, None)] for key in PREFIXES if key not in {"a", "a\0"}}
            same(maps.content(), expected, "maps after some were unloaded")
            same(maps.get("a", 5), "absent", "an entry of a map that was unloaded")

    def test_unloaded_entries_are_gone(self, place: Place) -> None:
        """One by one, with map keys of every type; with its last entry a map is gone itself."""
        with tables(place) as scene, tables(place) as other:
            for name, sample in KEYS.items():
                maps = scene.maps(name, map_keys=sample.annotation)
                gone = other.maps(name, map_keys=sample.annotation)
                for number, map_key in enumerate(sample.instances):
                    for key in ("a", "b"):
                        maps.put(key, map_key, number or None)
                    gone.put("b", map_key, 0)
                    if number % 2 == 0:
                        gone.put("a", map_key, 0)
                maps.unload(_naming(gone, entries=True))
                same(maps.keys(), ["a"], f"what has entries by {name} after some were unloaded")
                found = dict(maps.items("a"))
                expected = {key: 2 * n + 1 for n, key in enumerate(sample.instances[1::2])}
                same(found, expected, f"entries by {name} after some were unloaded")

    def test_unloading_heeds_namespaces(self, place: Place) -> None:
        """What is under the same key in another namespace stays."""
        with tables(place) as scene, tables(place) as other:
            every = zip(scene.every(namespaces=str), other.every(namespaces=str), strict=True)
            for cells, gone in every:
                for key in PREFIXES:
                    for number, space in enumerate(PREFIXES):
                        cells.fill(key, number, space)
                    gone.fill(key, 0, "a\0")
                cells.unload(_naming(gone))
                found = sorted(cells.owners())
                expected = [(key, space) for key in PREFIXES for space in PREFIXES]
                expected = sorted(owner for owner in expected if owner[1] != "a\0")
                same(found, expected, f"namespaces of {cells.kind} after one was unloaded")

    def test_absent_rows_may_be_unloaded(self, place: Place) -> None:
        """From an empty table, and twice: nothing comes of it."""
        with tables(place) as scene, tables(place) as other:
            for cells, gone, kept in zip(scene.every(), other.every(), _ONE, strict=True):
                for key in ("a", "b", "c"):
                    gone.fill(key, 0)
                cells.unload(_naming(gone))
                same(cells.owners(), [], f"{cells.kind} that were unloaded from an empty table")
                cells.fill("b", 1)
                cells.fill("d", 1)
                for _ in range(2):
                    cells.unload(_naming(gone))
                same(
                    cells.content(), {"d": kept}, f"{cells.kind} of which some were unloaded twice"
                )
            maps, lacking = scene.maps(), other.maps("lacking")
            lacking.put_all("d", {"x": 0, "y": 0})
            lacking.put("e", "m", 0)
            maps.unload(_naming(lacking, entries=True))
            same(maps.content(), {"d": [("m", 1)]}, "a map that lacks the unloaded entries")

    def test_unloading_does_not_change_frozen_tables(self, place: Place) -> None:
        """Whole addresses and entries: they go for the owner only."""
        with tables(place) as scene, tables(place) as other:
            entries, gone_entries = scene.maps("entries"), other.maps("entries")
            for cells, gone in zip(scene.every(), other.every(), strict=True):
                for number, key in enumerate(PREFIXES):
                    cells.fill(key, number)
                    gone.fill(key, 0)
                with scene.frozen() as frozen:
                    cells.unload(_naming(gone))
                    same(cells.owners(), [], f"{cells.kind} of the owner")
                    found = {row.key: row.value for row in cells.rows(frozen)}
                    expected = {key: number for number, key in enumerate(PREFIXES)}
                    same(found, expected, f"frozen {cells.kind}, unloaded since")
            entries.put_all("a", {"x": 1, "y": 2})
            gone_entries.put("a", "x", 0)
            with scene.frozen() as frozen:
                entries.unload(_naming(gone_entries, entries=True))
                same(entries.items("a"), [("y", 2)], "entries of the owner")
                frozen_keys = sorted(row.map_key for row in entries.rows(frozen))
                same(frozen_keys, ["x", "y"], "frozen entries, one unloaded since")

    def test_loading_and_unloading_take_turns(self, place: Place) -> None:
        """Each is done when its call returns: what is loaded behind an unload is there."""
        with tables(place) as scene, tables(place) as other:
            for cells, rows, kept in zip(scene.every(), other.every(), _ONE, strict=True):
                for key in ("a", "b"):
                    rows.fill(key, 1)
                loaded = blocks_of(rows)
                for _ in range(3):
                    cells.unload(_naming(rows))
                    cells.load(loaded)
                same(cells.content(), {"a": kept, "b": kept}, f"{cells.kind} loaded in turns")


def _naming(cells: Cells, *, entries: bool = False) -> list[Block]:
    """Blocks that name what is in a table: its addresses, or the entries of its maps."""
    return [
        msgspec.structs.replace(
            block, values=NO_VALUES, stamps=None, map_keys=block.map_keys if entries else None
        )
        for block in blocks_of(cells)
    ]
