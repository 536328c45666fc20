"""Clauses about reducing and aggregating state, namespaces, and walking the keys of a state."""

from __future__ import annotations

import operator
from typing import Any

from holdfast.backends.keyed.backend import KeyedStateBackend
from holdfast.backends.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from holdfast.backends.testing.model.subjects import Mean
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.samples import PREFIXES
from holdfast.backends.testing.scenes import keyed, of_each_kind
from holdfast.storage.errors import Invalid
from holdfast.storage.testing.checks import owed, require, same

__all__ = ["KeyClauses", "NamespaceClauses"]

_LISTS = ListStateDescriptor("lists", int)
_SUMS = ReducingStateDescriptor("sums", operator.add, int)
_MEANS = AggregatingStateDescriptor("means", Mean(), tuple[int, int])


class NamespaceClauses:
    """Clauses about reducing and aggregating state, and about namespaces."""

    def test_added_values_are_reduced(self, place: Place) -> None:
        """Value by value, with what is there; nothing added is None, and so it is cleared."""
        with keyed(place.open()) as state:
            largest = state.get_state(ReducingStateDescriptor("largest", max, int))
            mean = state.get_state(_MEANS)
            state.set_current_key(1)
            for _ in range(2):
                same((largest.get(), mean.get()), (None, None), "what nothing was added to")
                for value in (3, 0, 9, 6, 7):
                    largest.add(value)
                    mean.add(value)
                same((largest.get(), mean.get()), (9, 5.0), "what values were added to")
                largest.clear()
                mean.clear()
            same(list(state.keys("largest")), [], "keys with state that was cleared")

    def test_namespaces_are_apart(self, place: Place) -> None:
        """Of one key, in every kind of state; the current one is that of the state alone."""
        with keyed(place.open()) as state:
            value, seen, entries = of_each_kind(state, int, namespaces=str)
            pairs = [(key, space) for key in PREFIXES for space in PREFIXES]
            for number, (key, space) in enumerate(pairs):
                state.set_current_key(key)
                for each in (value, seen, entries):
                    each.set_current_namespace(space)
                value.update(number)
                seen.add(number)
                entries.put(space, number)
            entries.set_current_namespace("elsewhere")
            for number, (key, space) in enumerate(pairs):
                state.set_current_key(key)
                for each in (value, seen):
                    each.set_current_namespace(space)
                same((value.value(), seen.get()), (number, [number]), f"state of {key, space!r}")
                same(entries.is_empty(), True, "a map in another namespace")
            value.set_current_namespace("ab")
            same(value.get_many(["a"]).to_pylist(), [pairs.index(("a", "ab"))], "in a batch")
            same(sorted(state.keys("m", "a\0")), sorted(PREFIXES), "keys in one namespace")

    def test_a_namespace_must_be_chosen(self, place: Place) -> None:
        """Before state that has them is used; state that has none refuses one."""
        with keyed(place.open()) as state:
            spaced = state.get_state(ValueStateDescriptor("spaced", int), namespace_type=str)
            plain = state.get_state(ValueStateDescriptor("plain", int))
            state.set_current_key(1)
            with owed(Invalid, "a value without a current namespace"):
                spaced.value()
            with owed(Invalid, "a namespace of state that has none"):
                plain.set_current_namespace("a")
            with owed(Invalid, "a namespace of another type"):
                spaced.set_current_namespace(1)
            spaced.set_current_namespace("a")
            same(spaced.value(), None, "a value in a namespace that was chosen")

    def test_namespaces_are_merged(self, place: Place) -> None:
        """Into the target, in order, for the current key; the sources are empty then."""
        with keyed(place.open()) as state:
            every = [state.get_state(each, namespace_type=int) for each in (_LISTS, _SUMS, _MEANS)]
            for key in ("ann", "bob"):
                state.set_current_key(key)
                for space in (1, 2, 3):
                    for each in every:
                        each.set_current_namespace(space)
                        each.add(space * 10)
            state.set_current_key("ann")
            for each in every:
                each.merge_namespaces(1, [3, 4, 2])
            found = [each.get() for each in every]
            same(found, [[10, 30, 20], 60, 20.0], "what was merged")
            for each in every:
                each.merge_namespaces(4, [1])
                each.merge_namespaces(5, [6])
            same([each.get() for each in every], [[], None, None], "the merge of nothing")
            found = [sorted(state.keys(name, 4)) for name in ("lists", "sums", "means")]
            same(found, [["ann"]] * 3, "keys with state in the target")
            for name in ("lists", "sums", "means"):
                found = [sorted(state.keys(name, space)) for space in (1, 2, 3, 5, 6)]
                same(found, [["bob"]] * 3 + [[], []], "keys with state in the sources")

    def test_a_merge_may_name_its_target(self, place: Place) -> None:
        """Among the sources, or name one twice: nothing is lost, and nothing counts twice."""
        with keyed(place.open()) as state:
            every = [state.get_state(each, namespace_type=int) for each in (_LISTS, _SUMS, _MEANS)]
            state.set_current_key("ann")
            for each in every:
                for space in (1, 2):
                    each.set_current_namespace(space)
                    each.add(space)
                each.merge_namespaces(1, [2, 1, 2])
            found = [sorted(every[0].get()), every[1].get(), every[2].get()]
            same(found, [[1, 2], 3, 1.5], "a merge that names its target")


class KeyClauses:
    """Clauses about `keys`, `apply_to_all_keys` and the current key."""

    def test_keys_are_those_that_have_the_state(self, place: Place) -> None:
        """Each once; one that was only read, or was cleared, has it not."""
        with keyed(place.open()) as state:
            names = _fill(state)
            for key in range(0, 100, 2):
                state.set_current_key(key)
                for name in names:
                    state.get_state(_EACH[name]).clear()
            state.set_current_key(1000)
            for name in names:
                same(sorted(state.keys(name)), list(range(1, 100, 2)), f"keys of {name} state")
            with owed(Invalid, "keys of a state that is not declared"):
                next(iter(state.keys("never asked for")))

    def test_state_may_change_while_keys_are_walked(self, place: Place) -> None:
        """What comes or goes meanwhile may be missed or shown; what stays is shown once."""
        with keyed(place.open()) as state:
            for name in _fill(state):
                going, walked = [key for key in range(100) if key % 3], []
                for number, key in enumerate(state.keys(name)):
                    walked.append(key)
                    if number < len(going):
                        state.set_current_key(going[number])
                        state.get_state(_EACH[name]).clear()
                        state.set_current_key(number + 1000)
                        _write(state, name, 1)
                staying = [key for key in walked if key < 1000 and key % 3 == 0]
                same(sorted(staying), list(range(0, 100, 3)), f"keys of {name} state that stayed")

    def test_all_keys_may_be_changed(self, place: Place) -> None:
        """By a function that is called under each key; the current key is the same again."""
        with keyed(place.open()) as state:
            for name in _fill(state):
                state.set_current_key(3)
                seen: list[int] = []

                def change(key: int, each: Any, name: str = name, seen: list[Any] = seen) -> None:
                    seen.append(key)
                    each.clear()
                    if key % 2 == 0:
                        _write(state, name, -1)

                state.apply_to_all_keys(_EACH[name], change)
                same(sorted(seen), list(range(100)), f"keys that {name} state was changed under")
                same(sorted(state.keys(name)), list(range(0, 100, 2)), f"keys of {name} state")
                _write(state, name, 7)
                require(3 in list(state.keys(name)), "the current key must be the one before")

    def test_the_current_key_survives_a_failure(self, place: Place) -> None:
        """When a function under other keys raises, or another key is refused."""
        with keyed(place.open()) as state:
            _fill(state)
            value = state.get_state(_EACH["value"])
            state.set_current_key(3)

            def fail(key: int, _: Any) -> None:
                raise Invalid(f"under key {key}")

            with owed(Invalid, "a function that raises"):
                state.apply_to_all_keys(_EACH["value"], fail)
            with owed(Invalid, "a key that does not fit"):
                state.set_current_key("three")
            value.update(-3)
            same(value.get_many([3]).to_pylist(), [-3], "the value of the key before")

    def test_a_key_must_be_chosen(self, place: Place) -> None:
        """Before state is used by the row; nothing is written under no key."""
        with keyed(place.open()) as state:
            for name, descriptor in _EACH.items():
                each = state.get_state(descriptor)
                with owed(Invalid, f"clearing {name} state under no key"):
                    each.clear()
                with owed(Invalid, f"writing {name} state under no key"):
                    _write(state, name, 1)
                same(list(state.keys(name)), [], f"keys of {name} state")

    def test_a_state_is_declared_once(self, place: Place) -> None:
        """The same descriptor answers the same state; another of that name is Invalid."""
        with keyed(place.open()) as state:
            value = state.get_state(ValueStateDescriptor("v", int))
            require(
                state.get_state(ValueStateDescriptor("v", int)) is value,
                "the same descriptor must answer the same object",
            )
            others: list[tuple[StateDescriptor, Any]] = [
                (ValueStateDescriptor("v", str), None),
                (ListStateDescriptor("v", int), None),
                (ValueStateDescriptor("v", int), str),
            ]
            state.set_current_key(1)
            value.update(1)
            for descriptor, namespaces in others:
                with owed(Invalid, f"{descriptor} beside a value of ints"):
                    state.get_state(descriptor, namespace_type=namespaces)
            same(value.value(), 1, "the value after it was declared otherwise")


_EACH: dict[str, StateDescriptor] = {
    "value": ValueStateDescriptor("value", int),
    "list": ListStateDescriptor("list", int),
    "map": MapStateDescriptor("map", str, int),
    "reducing": ReducingStateDescriptor("reducing", operator.add, int),
}


def _fill(state: KeyedStateBackend) -> list[str]:
    """Write every kind of state under a hundred keys."""
    for name in _EACH:
        for key in range(100):
            state.set_current_key(key)
            _write(state, name, key)
    return list(_EACH)


def _write(state: KeyedStateBackend, name: str, number: int) -> None:
    each = state.get_state(_EACH[name])
    match name:
        case "value":
            each.update(number)
        case "map":
            each.put("a", number)
        case _:
            each.add(number)
