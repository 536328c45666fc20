"""Clauses about the blocks of frozen tables, and about loading them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from holdfast.backends.keys.groups import key_group
from holdfast.backends.tables.contract import NO_NAMESPACE
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.samples import INT64_MAX, INT64_MIN, KEYS, PREFIXES
from holdfast.backends.testing.table_clauses.tables import GROUPS, blocks_of, rows_of, tables
from holdfast.storage.testing.checks import same

__all__ = ["BlockClauses"]

_MANY = 2000


class BlockClauses:
    """Clauses about `FrozenTables.blocks` and `Table.load`."""

    def test_rows_come_by_ascending_key_group(self, place: Place) -> None:
        """Of the key's hash, in all blocks together: a restore takes the groups it needs."""
        with tables(place) as scene:
            for name, sample in KEYS.items():
                types = {"keys": sample.annotation}
                plain = scene.every(f"{name} plain", **types)
                for cells in (*plain, *scene.every(name, **types, namespaces=str)):
                    for key in sample.instances:
                        cells.fill(key, 1, "a" if cells.spec.namespaces else NO_NAMESPACE)
                    rows = rows_of(cells.spec, blocks_of(cells))
                    groups = [row.group for row in rows]
                    expected = [key_group(cells.spec.keys.hash(row.key), GROUPS) for row in rows]
                    same(groups, expected, f"the key groups of keys of type {name}")
                    same(groups, sorted(groups), f"the order of rows of keys of type {name}")

    def test_blocks_have_every_row_once(self, place: Place) -> None:
        """Also of large tables, in many blocks, and of one long list or map."""
        with tables(place) as scene:
            values, lists, maps = scene.values(keys=int), scene.lists(), scene.maps(map_keys=int)
            values.put_many([(key, -key) for key in range(15 * _MANY)])
            lists.extend("long", range(5 * _MANY))
            maps.put_all("large", {key: key for key in range(5 * _MANY)})
            blocks = blocks_of(values)
            found = {row.key: row.value for row in rows_of(values.spec, blocks)}
            same(found, {key: -key for key in range(15 * _MANY)}, "rows of a large table")
            same(sum(block.count for block in blocks), 15 * _MANY, "how many rows there are")
            steps = np.concatenate([np.diff(block.group_array.astype(int)) for block in blocks])
            same(bool((steps >= 0).all()), True, "blocks in order")
            edges = [(int(block.group_array[0]), int(block.group_array[-1])) for block in blocks]
            same([a[1] <= b[0] for a, b in pairwise(edges)], [True] * (len(blocks) - 1), "blocks")
            same(
                [row.value for row in rows_of(lists.spec, blocks_of(lists))],
                list(range(5 * _MANY)),
                "the rows of a long list",
            )
            same(
                sorted(row.map_key for row in rows_of(maps.spec, blocks_of(maps))),
                list(range(5 * _MANY)),
                "the rows of a large map",
            )

    def test_rows_have_all_their_parts(self, place: Place) -> None:
        """Namespace, map key, null and stamp come out as they went in."""
        with tables(place) as scene:
            maps = scene.maps(namespaces=int, stamped=True)
            expected = []
            for key in PREFIXES:
                for space, map_key, value in ((-1, "\0", None), (0, "", 0), (0, "a", 1)):
                    maps.put(key, map_key, (space * 7, value), space)
                    expected.append((key, space, map_key, value, space * 7))
            found = [row[1:] for row in rows_of(maps.spec, blocks_of(maps))]
            same(sorted(found, key=repr), sorted(expected, key=repr), "rows with all their parts")

    def test_a_list_s_rows_are_in_order(self, place: Place) -> None:
        """Each element has a row, and those of one list come one after the other."""
        with tables(place) as scene:
            lists = scene.lists(namespaces=str)
            for number in range(600):
                lists.extend(PREFIXES[number % 5], [number], PREFIXES[number % 3])
            rows = rows_of(lists.spec, blocks_of(lists))
            owners = [(row.key, row.namespace) for row in rows]
            changes = sum(a != b for a, b in pairwise(owners)) + 1
            same(changes, len(set(owners)), "how often the rows go from one list to another")
            found: dict[object, list[int]] = {owner: [] for owner in owners}
            for row, owner in zip(rows, owners, strict=True):
                found[owner].append(row.value)
            same(found, lists.content(), "lists, from their rows")

    def test_expired_rows_can_be_left_out(self, place: Place) -> None:
        """Those with a stamp below `keep_from_ms`, element by element; None keeps all."""
        stamps = (INT64_MIN, -1, 0, 1, INT64_MAX)
        with tables(place) as scene:
            for cells in scene.every(stamped=True):
                for number, stamp in enumerate(stamps):
                    cells.fill(f"k{number}", (stamp, number))
                with scene.frozen() as frozen:
                    for keep_from in (None, *stamps):
                        found = {row.stamp for row in cells.rows(frozen, keep_from)}
                        kept = {each for each in stamps if keep_from is None or each >= keep_from}
                        same(found, kept, f"stamps of rows that are kept from {keep_from}")
            lists = scene.lists("one list", stamped=True)
            lists.extend("a", [(stamp, 0) for stamp in (1, 9, 2, 8)])
            with scene.frozen() as frozen:
                elements = [row.stamp for row in lists.rows(frozen, 5)]
                same(elements, [9, 8], "stamps of the elements of one list")

    def test_an_empty_table_has_no_rows(self, place: Place) -> None:
        """Whether it was never written to, or emptied."""
        with tables(place) as scene:
            values = scene.values("emptied")
            every = scene.every()
            with scene.frozen() as frozen:
                for cells in every:
                    same(cells.rows(frozen), [], f"the rows of {cells.spec.name} that are empty")
            values.put("a", 1)
            values.remove("a")
            with scene.frozen() as frozen:
                same(values.rows(frozen), [], "the rows of a table that was emptied")

    def test_a_loaded_table_is_the_one_written(self, place: Place) -> None:
        """All blocks of one table, loaded into another, make the same of it."""
        with tables(place) as scene, tables(place) as other:
            for name, sample in KEYS.items():
                for stamped in (False, True):
                    types = {"keys": sample.annotation, "namespaces": str, "stamped": stamped}
                    names = f"{name} {stamped}"
                    for written, loaded in zip(
                        scene.every(names, **types), other.every(names, **types), strict=True
                    ):
                        for number, key in enumerate(sample.instances):
                            value = (number - 5, number) if stamped else number
                            for space in ("", "a\0"):
                                written.fill(key, value, space)
                        loaded.load(blocks_of(written))
                        same(loaded.content(), written.content(), f"keys of type {name}, loaded")

    def test_a_list_may_be_loaded_in_pieces(self, place: Place) -> None:
        """The rows of one list may lie in several blocks; it goes on where it ended."""
        with tables(place) as scene, tables(place) as other:
            written, loaded = scene.lists(), other.lists()
            written.extend("a", range(100))
            (block,) = blocks_of(written)
            for first in range(0, 100, 30):
                loaded.table.load(block.rows(first, min(first + 30, 100)))
            same(loaded.get("a"), list(range(100)), "a list that was loaded in pieces")
            loaded.extend("a", [100])
            same(loaded.get("a"), list(range(101)), "an append to a list that was loaded")
