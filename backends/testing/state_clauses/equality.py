"""Clauses about None as a value, and about values whose comparison raises or is always true.

A backend compares no values: an `__eq__` of the user's may raise, answer an array, or say yes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

from holdfast.backends.keyed.backend import KeyedStateBackend
from holdfast.backends.snapshots.neutral import SnapshotForm
from holdfast.backends.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.scenes import files, keyed, taken
from holdfast.storage.testing.checks import same

__all__ = ["ComparisonClauses"]

_LIVING = StateTtlConfig(ttl=timedelta(days=1))
_KEYS = range(200)


@dataclass(frozen=True, eq=False)
class _Aloof:
    """A value whose comparison raises, as with one that holds arrays."""

    number: int

    def __eq__(self, other: object) -> NoReturn:
        raise AssertionError(f"a value was compared: {self} with {other}")

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class _Agreeable:
    """A value that says that it is equal to all others, and to None."""

    number: int

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class ComparisonClauses:
    """Clauses about values that cannot be compared, and about None."""

    def test_none_is_an_element_like_others(self, place: Place) -> None:
        """Of a list, also behind snapshots of each form, and with a time to live."""
        lists = [
            ListStateDescriptor("plain", int | None),
            ListStateDescriptor("living", str | None, ttl=_LIVING),
            ListStateDescriptor("bytes", list[int] | None),
        ]
        elements: dict[str, list[Any]] = {
            "plain": [None, 1, None],
            "living": ["", None],
            "bytes": [None, [], None, [1]],
        }

        def read(state: KeyedStateBackend) -> dict[str, list[Any]]:
            return {each.name: state.get_state(each).get() for each in lists}

        with files() as (job, _):
            snapshots: tuple[Any, ...] = ()
            for step, form in enumerate(SnapshotForm):
                with keyed(place.open(), *snapshots, job=job, key_type=str) as state:
                    state.set_current_key("a")
                    for each in lists:
                        added = elements[each.name]
                        kept = state.get_state(each)
                        if step:
                            same(kept.get(), added * step, f"elements of {each.name!r}, restored")
                        kept.add_all(added[:1])
                        kept.add_all(added[1:])
                    snapshots = (taken(state, job, step + 1, form=form),)
            with keyed(place.open(), *snapshots, job=job, key_type=str) as state:
                state.set_current_key("a")
                expected = {name: each * len(SnapshotForm) for name, each in elements.items()}
                same(read(state), expected, "elements, restored")

    def test_values_are_not_compared(self, place: Place) -> None:
        """In states of all kinds, one by one and many at once, before a restore and after it."""
        for cls in (_Aloof, _Agreeable):
            with files() as (job, _):
                with keyed(place.open(), key_type=int) as state:
                    _fill(state, cls)
                    same(_found(state, cls), _EXPECTED, f"values of {cls.__name__}")
                    snapshots = (taken(state, job),)
                for step, form in enumerate((SnapshotForm.CANONICAL, SnapshotForm.OWN)):
                    with keyed(place.open(), *snapshots, job=job, key_type=int) as state:
                        found = _found(state, cls)
                        same(found, _EXPECTED, f"values of {cls.__name__}, restored")
                        snapshots = (taken(state, job, step + 2, form=form),)


def _first(one: Any, _: Any) -> Any:
    return one


def _states(state: KeyedStateBackend, cls: Any) -> tuple[Any, Any, Any, Any, Any]:
    return (
        state.get_state(ValueStateDescriptor("one", cls)),
        state.get_state(ValueStateDescriptor("many", cls)),
        state.get_state(ListStateDescriptor("list", cls | None)),
        state.get_state(MapStateDescriptor("map", str, cls | None)),
        state.get_state(ReducingStateDescriptor("reduced", _first, cls)),
    )


def _fill(state: KeyedStateBackend, cls: Any) -> None:
    one, many, listed, mapped, reduced = _states(state, cls)
    for key in _KEYS:
        state.set_current_key(key)
        one.update(cls(key))
        listed.add_all([cls(key), None])
        mapped.put_all({"some": cls(key), "none": None})
        mapped.put("gone", cls(key))
        mapped.remove("gone")
        reduced.add(cls(key))
    many.put_many(_KEYS, [cls(key) if key % 2 else None for key in _KEYS])
    reduced.reduce_many(_KEYS, [cls(-1) for _ in _KEYS])


_EXPECTED = {
    key: [
        str(key),
        str(key) if key % 2 else "None",
        [str(key), "None"],
        {"some": str(key), "none": "None"},
        str(key),
    ]
    for key in _KEYS
}


def _found(state: KeyedStateBackend, cls: Any) -> dict[int, list[Any]]:
    """The values as text: values that equal everything would equal wrong ones."""
    one, many, listed, mapped, reduced = _states(state, cls)

    def text(value: Any) -> str:
        return str(value if value is None else value.number)

    found = {}
    columns = [each.get_many(_KEYS) for each in (one, many, reduced)]
    for key, *values in zip(_KEYS, *columns, strict=True):
        state.set_current_key(key)
        a, b, c = map(text, values)
        elements = list(map(text, listed.get()))
        entries = {name: text(value) for name, value in mapped.items()}
        same([text(one.value()), text(reduced.get())], [a, c], "one by one, and many at once")
        found[key] = [a, b, elements, entries, c]
    return found
