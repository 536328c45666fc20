"""Clauses about value, list and map state by the row: null, empty, absent, refused, aliased."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.backends.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.samples import KEYS, VALUES, Item
from holdfast.backends.testing.scenes import keyed, of_each_kind
from holdfast.storage.errors import Invalid
from holdfast.storage.testing.checks import owed, pattern, same

__all__ = ["StateClauses"]

_MIB = 1 << 20


class StateClauses:
    """Clauses about value, list and map state by the row."""

    def test_an_absent_value_is_the_default(self, place: Place) -> None:
        """Which is never stored: no key has the state until it is set."""
        with keyed(place.open()) as state:
            total = state.get_state(ValueStateDescriptor("total", int, default=7))
            state.set_current_key("ann")
            same(total.value(), 7, "a value that was never set")
            total.update(0)
            same(total.value(), 0, "zero, which is not the default")
            state.set_current_key("bob")
            same(total.value(), 7, "the value of another key")
            same(total.get_many(["bob", "ann"]).to_pylist(), [7, 0], "both, in one batch")
            same(list(state.keys("total")), ["ann"], "keys with the state")

    def test_none_clears_a_value(self, place: Place) -> None:
        """To set a value to None is to clear it; it may be set again."""
        with keyed(place.open()) as state:
            total = state.get_state(ValueStateDescriptor("total", int))
            state.set_current_key("ann")
            for clear in (lambda: total.update(None), total.clear):
                total.update(1)
                clear()
                same((total.value(), list(state.keys("total"))), (None, []), "a cleared value")
                clear()

    def test_an_empty_list_is_absent(self, place: Place) -> None:
        """However it became empty; a list begins with the first element."""
        with keyed(place.open()) as state:
            seen = state.get_state(ListStateDescriptor("seen", str))
            state.set_current_key(1)
            same(seen.get(), [], "a list that was never written to")
            for empty in (lambda: seen.update([]), lambda: seen.update(None), seen.clear):
                seen.add("a")
                seen.add_all(["b", "c"])
                seen.add_all([])
                same(seen.get(), ["a", "b", "c"], "what was appended")
                seen.update(["z", "y"])
                same(seen.get(), ["z", "y"], "what replaced it")
                empty()
                same((seen.get(), list(state.keys("seen"))), ([], []), "an empty list")

    def test_a_map_tells_null_from_absent(self, place: Place) -> None:
        """None is a value of a map; an empty map is no map."""
        with keyed(place.open()) as state:
            prices = state.get_state(MapStateDescriptor("prices", str, int))
            state.set_current_key(1)
            same(prices.is_empty(), True, "a map that was never written to is empty")
            prices.put("a", None)
            prices.put_all({"b": 2, "c": None})
            same((prices.get("a"), prices.contains("a")), (None, True), "an entry that is null")
            same((prices.get("x"), prices.contains("x")), (None, False), "an entry that is absent")
            found = (sorted(prices.keys()), sorted(map(str, prices.values())))
            same(found, (["a", "b", "c"], ["2", "None", "None"]), "keys and values")
            same(sorted(prices.items()), [("a", None), ("b", 2), ("c", None)], "all entries")
            for map_key in "abc":
                prices.remove(map_key)
            same((prices.is_empty(), list(state.keys("prices"))), (True, []), "an emptied map")

    def test_a_map_may_change_while_it_is_walked(self, place: Place) -> None:
        """What is walked is the map as it was when the walk was asked for."""
        with keyed(place.open()) as state:
            prices = state.get_state(MapStateDescriptor("prices", int, int))
            state.set_current_key(1)
            prices.put_all({number: number for number in range(500)})
            walked = []
            for map_key, value in prices.items():
                walked.append(value)
                prices.remove(map_key)
                prices.put(map_key + 1000, value)
            same(sorted(walked), list(range(500)), "values that were walked")
            expected = {number + 1000: number for number in range(500)}
            same(dict(prices.items()), expected, "the map after it was changed")

    def test_a_value_that_does_not_fit_changes_nothing(self, place: Place) -> None:
        """A wrong value, element, entry or key is Invalid, and the state as it was."""
        with keyed(place.open()) as state:
            value, seen, prices = of_each_kind(state, int)
            state.set_current_key(1)
            value.update(5)
            seen.update([5])
            prices.put("a", 5)
            changes: dict[str, Callable[[Any], object]] = {
                "update": value.update,
                "put_many": lambda wrong: value.put_many([2, 1], [6, wrong]),
                "add": seen.add,
                "add_all": lambda wrong: seen.add_all([6, wrong]),
                "update of a list": lambda wrong: seen.update([6, wrong]),
                "put": lambda wrong: prices.put("a", wrong),
                "put_all": lambda wrong: prices.put_all({"a": 6, "b": wrong}),
                "put of a map key": lambda wrong: prices.put([wrong], 1),
            }
            for wrong in ("x", 2.5, 2**63, True, [1]):
                for what, change in changes.items():
                    with owed(Invalid, f"{what} of {wrong!r}"):
                        change(wrong)
            for wrong_key in ("x", 2.5, 2**63, None, True):
                with owed(Invalid, f"set_current_key of {wrong_key!r}"):
                    state.set_current_key(wrong_key)
            found = (value.value(), seen.get(), dict(prices.items()))
            same(found, (5, [5], {"a": 5}), "state after what did not fit")
            same(list(state.keys("v")), [1], "keys after what did not fit")

    def test_changing_a_passed_or_returned_object_does_not_change_state(self, place: Place) -> None:
        """Changing an object that was stored, or that was read, changes no state."""
        with keyed(place.open()) as state:
            value = state.get_state(ValueStateDescriptor("v", Item))
            seen = state.get_state(ListStateDescriptor("l", list[int]))
            prices = state.get_state(MapStateDescriptor("m", str, dict[str, int]))
            state.set_current_key(1)
            item, element, entry = Item("pen", tags=["a"]), [1], {"a": 1}
            value.update(item)
            seen.add(element)
            prices.put("x", entry)
            for _ in range(2):
                item.tags.append("changed")
                element.append(2)
                entry["b"] = 2
                same(value.value(), Item("pen", tags=["a"]), "a value that was changed outside")
                same(seen.get(), [[1]], "an element that was changed outside")
                same(prices.get("x"), {"a": 1}, "an entry that was changed outside")
                (same_item,) = value.get_many([1])
                same(same_item, Item("pen", tags=["a"]), "a value, read in a batch")
                item, (element,) = value.value(), seen.get()
                ((_, entry),) = prices.items()

    def test_values_of_every_type(self, place: Place) -> None:
        """In every kind of state: equal, and of the same type, as they were given."""
        with keyed(place.open()) as state:
            state.set_current_key("key")
            for name, sample in VALUES.items():
                value = state.get_state(ValueStateDescriptor(f"v {name}", sample.annotation))
                seen = state.get_state(ListStateDescriptor(f"l {name}", sample.annotation))
                entries = state.get_state(MapStateDescriptor(f"m {name}", int, sample.annotation))
                seen.update(sample.instances)
                entries.put_all(enumerate(sample.instances))
                found: list[Any] = []
                for each in sample.instances:
                    value.update(each)
                    found.append(value.value())
                same(found, list(sample.instances), f"values of type {name}")
                same(seen.get(), found, f"elements of type {name}")
                same([entries.get(i) for i in range(len(found))], found, f"entries of type {name}")
                types = list(map(type, sample.instances))
                same(list(map(type, found)), types, f"the types of values of type {name}")

    def test_keys_of_every_type(self, place: Place) -> None:
        """By the row and by the batch, each key has its own state and is named as it was given."""
        for name, sample in KEYS.items():
            with keyed(place.open(), key_type=sample.annotation) as state:
                number = state.get_state(ValueStateDescriptor("number", int))
                seen = state.get_state(ListStateDescriptor("seen", int))
                keys = list(sample.instances)
                number.put_many(keys, list(range(len(keys))))
                for expected, key in enumerate(keys):
                    state.set_current_key(key)
                    same(number.value(), expected, f"the value of key {key!r:.80}")
                    seen.add(expected)
                same(number.get_many(keys).to_pylist(), list(range(len(keys))), "in a batch")
                for which in ("number", "seen"):
                    found = {key: type(key) for key in state.keys(which)}
                    same(found, {key: type(key) for key in keys}, f"keys of type {name}")

    def test_large_values(self, place: Place) -> None:
        """Of a mebibyte and more, in every kind of state, are whole."""
        with keyed(place.open()) as state:
            large = [pattern(_MIB, "one"), pattern(2 * _MIB + 1, "two"), b""]
            value, seen, entries = of_each_kind(state, bytes)
            state.set_current_key("k" * 5000)
            value.update(large[1])
            seen.add_all(large)
            entries.put_all({"a" * 5000: large[0], "b": large[1]})
            same(value.value(), large[1], "a large value")
            for found, expected in zip(seen.get(), large, strict=True):
                same(found, expected, "a large element")
            same(entries.get("a" * 5000), large[0], "a large entry")

    def test_many_entries(self, place: Place) -> None:
        """Twenty thousand keys, elements and entries are all there, and all can go."""
        with keyed(place.open(), key_type=int) as state:
            many = list(range(20_000))
            value = state.get_state(ValueStateDescriptor("v", int))
            seen = state.get_state(ListStateDescriptor("l", int))
            entries = state.get_state(MapStateDescriptor("m", int, int))
            state.set_current_key(0)
            value.put_many(many, many)
            seen.add_all(many)
            entries.put_all(zip(many, many, strict=True))
            same(sorted(state.keys("v")), many, "many keys")
            same(value.get_many(many).to_pylist(), many, "many values")
            same(seen.get(), many, "a long list")
            same(sorted(entries.items()), list(zip(many, many, strict=True)), "a large map")
            value.clear_many(many[1:])
            entries.clear()
            seen.clear()
            found = (list(state.keys("v")), seen.get(), entries.is_empty())
            same(found, ([0], [], True), "what is left")
