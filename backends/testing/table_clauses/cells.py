"""Clauses about reading and writing the three kinds of table."""

from __future__ import annotations

import pytest

from holdfast.backends.testing.place import Place
from holdfast.backends.testing.samples import KEYS
from holdfast.backends.testing.table_clauses.tables import tables
from holdfast.storage.testing.checks import require, same

__all__ = ["ListTableClauses", "MapTableClauses", "ValueTableClauses"]

_MANY = 3000


class ValueTableClauses:
    """Clauses about value tables."""

    def test_a_cell_is_read_back(self, place: Place) -> None:
        """The last one that was put; None where there is none."""
        with tables(place) as scene:
            values = scene.values()
            same(values.get("a"), "absent", "a key that has nothing")
            values.put("a", 1)
            values.put("b", 2)
            values.put("a", 3)
            same((values.get("a"), values.get("b")), (3, 2), "what was put")
            same(values.content(), {"a": 3, "b": 2}, "all that was put")

    def test_a_removed_cell_is_gone(self, place: Place) -> None:
        """That one and no other; to remove what is not there is to do nothing."""
        with tables(place) as scene:
            values = scene.values()
            for key in ("a", "b"):
                values.put(key, 1)
            for _ in range(2):
                values.remove("a")
                same((values.get("a"), values.get("b")), ("absent", 1), "after removing one")
            values.put("a", 2)
            same((values.get("a"), values.keys()), (2, ["a", "b"]), "put again after removing")

    def test_empty_and_zero_values_are_kept(self, place: Place) -> None:
        """What Python takes for false is a value like any other."""
        with tables(place) as scene:
            for number, value in enumerate((0, 0.0, False, "", b"", ())):
                annotation = tuple[int, ...] if value == () else type(value)
                values = scene.values(f"values {number}", values=annotation)
                values.put("a", value)
                same(values.get("a"), value, "an empty value")
                same(values.get_many(["a", "b"]), [value, "absent"], "an empty value, among many")
                same(values.keys(), ["a"], "keys with an empty value")

    def test_many_are_read_as_one_by_one(self, place: Place) -> None:
        """In the order of the addresses, each as often as it is asked for; None for none."""
        with tables(place) as scene:
            values = scene.values(keys=int)
            for key in range(0, _MANY, 2):
                values.put(key, key * 10)
            keys = [*range(_MANY - 1, -1, -1), 0, 1, 0]
            same(values.get_many(keys), [values.get(key) for key in keys], "many, read at once")
            same(values.get_many([]), [], "none, read at once")

    def test_many_are_put_as_one_by_one(self, place: Place) -> None:
        """Of several cells for one address the last counts, over what was there before."""
        with tables(place) as scene:
            values = scene.values()
            values.put("a", 0)
            values.put("z", 26)
            values.put_many([("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)])
            values.put_many([])
            expected = {"a": 3, "b": 5, "c": 4, "z": 26}
            same(values.content(), expected, "after many were put")

    def test_many_are_removed_as_one_by_one(self, place: Place) -> None:
        """Those and no others; one of them may be absent, or come twice."""
        with tables(place) as scene:
            values = scene.values()
            values.put_many([("a", 1), ("b", 2), ("c", 3)])
            values.remove_many(["a", "x", "b", "a"])
            values.remove_many([])
            same(values.content(), {"c": 3}, "after many were removed")

    def test_cells_set_directly_are_read(self, place: Place) -> None:
        """And what is put is read there, if at all: states pass a call by where they may."""
        with tables(place) as scene:
            values = scene.values()
            entries = values.table.direct
            if entries is None:
                pytest.skip("the value tables of the backend offer no direct way")
            values.put("a", 1)
            for round_number in range(3):
                for key in ("a", "b"):
                    value = round_number * 10 + len(key)
                    entries.hot[values.at(key)] = values.cell(value)
                    if values.table.write_mirror is not None:
                        values.table.write_mirror.hot[values.at(key)] = values.cell(value)
                    same(values.get(key), value, "what was set directly")
                    same(values.get_many([key]), [value], "what was set directly, among many")
                values.put("b", round_number)
                found = entries.hot.get(values.at("b"))
                require(
                    found is None or values.value(found) == round_number,
                    "what is read directly must be the last that was put",
                )
                with scene.frozen():
                    same(values.keys(), ["a", "b"], "the keys of what was set directly")


class ListTableClauses:
    """Clauses about list tables."""

    def test_elements_keep_their_order(self, place: Place) -> None:
        """That in which they came, however they came, also between the lists of others."""
        with tables(place) as scene:
            lists = scene.lists()
            same(lists.get("a"), [], "a key that has nothing")
            expected: dict[str, list[int]] = {"a": [], "ab": [], "b": []}
            for number in range(400):
                key = "ab" if number % 3 else "a"
                added = list(range(number, number + number % 4))
                lists.extend(key, added)
                expected[key] += added
            lists.put("b", [3, 1, 2, 1])
            lists.extend("b", [0])
            expected["b"] = [3, 1, 2, 1, 0]
            same(lists.content(), expected, "lists that were appended to")

    def test_a_put_list_replaces_the_other(self, place: Place) -> None:
        """All of it, when the new one is shorter too, and appending goes on after it."""
        with tables(place) as scene:
            lists = scene.lists()
            lists.put("a", range(100))
            lists.put("a", [7])
            same(lists.get("a"), [7], "a list that replaced a longer one")
            lists.extend("a", [8])
            lists.put("b", [1])
            same(lists.get("a"), [7, 8], "what was appended to it")

    def test_an_empty_list_has_no_address(self, place: Place) -> None:
        """Whichever way it came to be empty; `addresses` does not name it."""
        with tables(place) as scene:
            lists = scene.lists()
            lists.extend("a", [])
            lists.put("b", [])
            for key in ("c", "d"):
                lists.extend(key, [1])
            lists.put("c", [])
            lists.remove("d")
            lists.remove("e")
            same(lists.owners(), [], "what has a list, when all are empty")
            same([lists.get(key) for key in "abcde"], [[]] * 5, "lists that are empty")
            lists.extend("c", [2])
            same(lists.content(), {"c": [2]}, "a list that begins again")

    def test_a_list_may_be_kept(self, place: Place) -> None:
        """By the caller: neither the one handed out nor the one handed in is the table's own."""
        with tables(place) as scene:
            lists = scene.lists()
            address, handed_in = lists.at("a"), lists.cells([1, 2])
            lists.table.put(address, handed_in)
            handed_in.clear()
            handed_out = lists.table.get(address)
            lists.extend("a", [3])
            same(list(map(lists.value, handed_out)), [1, 2], "a list handed out before an append")
            handed_out.clear()
            more = lists.cells([4])
            lists.table.extend(address, more)
            more.append(more[0])
            same(lists.get("a"), [1, 2, 3, 4], "after lists handed in and out were changed")

    def test_long_lists_are_whole(self, place: Place) -> None:
        """Of many elements that came one by one, and of many that came at once."""
        with tables(place) as scene:
            lists = scene.lists()
            for number in range(_MANY):
                lists.extend("a", [number])
            lists.extend("b", range(_MANY))
            lists.extend("b", range(_MANY))
            same(lists.get("a"), list(range(_MANY)), "a list of many appends")
            same(lists.get("b"), [*range(_MANY), *range(_MANY)], "a list of two long appends")
            lists.remove("a")
            same((lists.get("a"), lists.keys()), ([], ["b"]), "after removing a long list")


class MapTableClauses:
    """Clauses about map tables."""

    def test_entries_are_kept_by_map_key(self, place: Place) -> None:
        """The last one that was put; None where there is none, in that map or at that key."""
        with tables(place) as scene:
            maps = scene.maps()
            same(maps.get("a", "x"), "absent", "a key that has nothing")
            maps.put("a", "x", 1)
            maps.put("a", "y", 2)
            maps.put("b", "x", 3)
            maps.put("a", "x", 4)
            same(maps.get("a", "z"), "absent", "a map key that has nothing")
            same((maps.get("a", "x"), maps.get("b", "x")), (4, 3), "what was put")
            expected = {"a": [("x", 4), ("y", 2)], "b": [("x", 3)]}
            same(maps.content(), expected, "all that was put")

    def test_a_null_entry_is_there(self, place: Place) -> None:
        """None is a value; only an entry that was never put, or was removed, is absent."""
        with tables(place) as scene:
            maps = scene.maps()
            maps.put("a", "x", None)
            maps.put_all("b", {"x": None, "y": 0})
            same((maps.get("a", "x"), maps.get("a", "y")), (None, "absent"), "null and absent")
            same(maps.items("b"), [("x", None), ("y", 0)], "entries, one of them null")
            same(maps.keys(), ["a", "b"], "keys with null entries")
            maps.remove_entry("a", "x")
            same(maps.keys(), ["b"], "after removing the null entry")

    def test_many_entries_are_put_as_one_by_one(self, place: Place) -> None:
        """Of several cells for one map key the last counts; nothing put is nothing there."""
        with tables(place) as scene:
            maps = scene.maps()
            maps.put("a", "x", 0)
            maps.put("a", "z", 26)
            maps.put_all("a", [("x", 1), ("y", 2), ("x", 3)])
            maps.put_all("b", [])
            maps.put_all("c", {f"{number:05}": number for number in range(_MANY)})
            same(maps.items("a"), [("x", 3), ("y", 2), ("z", 26)], "entries put at once")
            many = [(f"{number:05}", number) for number in range(_MANY)]
            same(maps.items("c"), many, "many entries put at once")
            same(maps.keys(), ["a", "c"], "keys with entries")

    def test_a_removed_entry_is_gone(self, place: Place) -> None:
        """That one and no other; with the last one the map is gone too."""
        with tables(place) as scene:
            maps = scene.maps()
            maps.put_all("a", {"x": 1, "xy": 2, "x\0": 3})
            maps.put_all("b", {"x": 4})
            for _ in range(2):
                maps.remove_entry("a", "x")
                maps.remove_entry("c", "x")
                same(maps.items("a"), [("x\0", 3), ("xy", 2)], "after removing an entry")
                same(maps.get("b", "x"), 4, "the same map key in another map")
            for map_key in ("xy", "x\0"):
                maps.remove_entry("a", map_key)
            same(maps.keys(), ["b"], "keys, after the last entry of one was removed")

    def test_entries_may_be_kept(self, place: Place) -> None:
        """The list of them is the caller's: it does not change with the table."""
        with tables(place) as scene:
            maps = scene.maps()
            maps.put_all("a", {"x": 1, "y": 2})
            maps.put("b", "z", 3)
            handed_out = maps.table.items(maps.at("a"))
            for map_key, _ in list(handed_out):
                maps.remove_entry("a", map_key)
                maps.put("a", f"new {map_key}", 3)
            same(maps.items("b"), [("z", 3)], "the entries of another map")
            found = {map_key: maps.value(cell) for map_key, cell in handed_out}
            same(found, {"x": 1, "y": 2}, "entries that were handed out before the map changed")
            handed_out.clear()
            same(maps.items("a"), [("new x", 3), ("new y", 3)], "after the map was changed")

    def test_map_keys_of_every_type(self, place: Place) -> None:
        """Come back equal and of their type, and are as distinct as they were."""
        with tables(place) as scene:
            for name, sample in KEYS.items():
                maps = scene.maps(name, map_keys=sample.annotation)
                for number, map_key in enumerate(sample.instances):
                    maps.put("a", map_key, number)
                expected = {map_key: number for number, map_key in enumerate(sample.instances)}
                found = maps.items("a")
                same(dict(found), expected, f"map keys of type {name}")
                same(len(found), len(expected), f"how many map keys of type {name} there are")
                types = {map_key: type(map_key) for map_key in expected}
                same({map_key: type(map_key) for map_key, _ in found}, types, f"types of {name}")
                for map_key, number in expected.items():
                    same(maps.get("a", map_key), number, f"map key {map_key!r:.80}")

    def test_a_removed_map_is_gone(self, place: Place) -> None:
        """With all its entries, and what is put later begins anew."""
        with tables(place) as scene:
            maps = scene.maps()
            maps.put_all("a", {f"{number}": number for number in range(_MANY)})
            maps.put("b", "x", 1)
            maps.remove("a")
            maps.remove("c")
            same((maps.items("a"), maps.get("a", "7")), ([], "absent"), "a map that was removed")
            maps.put("a", "y", 2)
            expected = {"a": [("y", 2)], "b": [("x", 1)]}
            same(maps.content(), expected, "after one map was removed")
