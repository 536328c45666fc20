"""Clauses about state whose declaration has changed since it was written, and damaged files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.backends.keyed.backend import KeyedStateBackend
from holdfast.backends.snapshots.neutral import SnapshotForm
from holdfast.backends.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from holdfast.backends.testing.place import Place
from holdfast.backends.testing.scenes import (
    churn,
    content,
    files,
    keyed,
    memory,
    of_each_kind,
    taken,
)
from holdfast.storage import Corrupt, FileHandle, Invalid, StateSnapshot
from holdfast.storage.testing.checks import owed, require, same

__all__ = ["DamageClauses", "EvolutionClauses"]


class _Before:
    @dataclass
    class Account:
        user: str
        amount: int


class _After:
    @dataclass
    class Account:
        user: str
        amount: float
        notes: list[str] = field(default_factory=list)


_OLD, _NEW = _Before.Account, _After.Account


class _First:
    @dataclass
    class Visit:
        user: str
        count: int
        note: str = "first"

    class Span(NamedTuple):
        begin: int
        end: int


class _Second:
    @dataclass
    class Visit:
        user: str
        count: int
        level: int = 2

    class Span(NamedTuple):
        begin: int
        end: int
        pause: int = 2


class _Third:
    @dataclass
    class Visit:
        count: int
        user: str
        level: int = 3
        note: str = "third"

    class Span(NamedTuple):
        pause: int
        end: int
        begin: int


_VERSIONS: list[tuple[Any, Any]] = [
    (_First.Visit("ann", 1), _First.Span(3, 5)),
    (_Second.Visit("ann", 1, 2), _Second.Span(3, 5, 2)),
    (_Third.Visit(1, "ann", 2, "third"), _Third.Span(2, 5, 3)),
]
"""One value of each class, as each version has it."""


class EvolutionClauses:
    """Clauses about a restore after the job has changed."""

    def test_values_are_migrated(self, place: Place) -> None:
        """An added field with a default, a widened number: in every kind of state."""
        job = memory()
        with keyed(place.open()) as state:
            every = of_each_kind(state, _OLD)
            for key in (1, 2):
                state.set_current_key(key)
                every[0].update(_OLD("ann", key))
                every[1].update([_OLD("bob", key), _OLD("cid", 3)])
                every[2].put("x", _OLD("dan", key))
                every[2].put("y", None)
            snapshot = taken(state, job)
        for number in (2, 3):  # migrated, and then written as it is now
            with keyed(place.open(), snapshot, job=job) as state:
                every = of_each_kind(state, _NEW)
                for key in (1, 2):
                    state.set_current_key(key)
                    found = (every[0].value(), every[1].get(), sorted(every[2].items()))
                    expected = (
                        _NEW("ann", float(key)),
                        [_NEW("bob", float(key)), _NEW("cid", 3.0)],
                        [("x", _NEW("dan", float(key))), ("y", None)],
                    )
                    same(found, expected, "state of a class that has changed")
                snapshot = taken(state, job, number)

    def test_versions_in_a_row_read_as_if_all_were_written_anew(self, place: Place) -> None:
        """By each version that asks, though it changes nothing else.

        What it removes stays removed, and what it adds keeps the default that it had then.
        """
        job = memory()
        snapshots: list[StateSnapshot] = []
        for number, values in enumerate(_VERSIONS, 1):
            with keyed(place.open(), *snapshots, job=job) as state:
                for value in values:
                    _check_version(state, value, is_first=number == 1)
                snapshots = [taken(state, job, number)]

    def test_a_state_may_have_a_new_name(self, place: Place) -> None:
        """With the old one among its aliases; it is written under the new one."""
        job = memory()
        with keyed(place.open()) as state:
            state.set_current_key(1)
            state.get_state(ValueStateDescriptor("old", int)).update(3)
            snapshot = taken(state, job, 1)
        renamed = ValueStateDescriptor("new", int, aliases=("older", "old"))
        with keyed(place.open(), snapshot, job=job) as state:
            value = state.get_state(renamed)
            state.set_current_key(1)
            same(value.value(), 3, "state under an alias")
            value.update(4)
            snapshot = taken(state, job, 2)
        for descriptor, expected in ((renamed, 4), (ValueStateDescriptor("old", int), None)):
            with keyed(place.open(), snapshot, job=job) as state:
                value = state.get_state(descriptor)
                state.set_current_key(1)
                same(value.value(), expected, f"state {descriptor.name!r} after it was renamed")

    def test_an_unreadable_declaration_is_refused(self, place: Place) -> None:
        """Another kind, type, namespace or map key: Invalid, and the state is still there."""
        job = memory()
        with keyed(place.open()) as state:
            value = state.get_state(ValueStateDescriptor("v", str))
            entries = state.get_state(MapStateDescriptor("m", str, int))
            state.set_current_key(1)
            value.update("text")
            entries.put("a", 1)
            snapshot = taken(state, job)
        wrong: list[tuple[StateDescriptor, Any]] = [
            (ValueStateDescriptor("v", int), None),
            (ListStateDescriptor("v", str), None),
            (ValueStateDescriptor("v", str), str),
            (MapStateDescriptor("m", int, int), None),
            (MapStateDescriptor("m", str, str), None),
        ]
        with keyed(place.open(), snapshot, job=job) as state:
            for descriptor, namespaces in wrong:
                with owed(Invalid, f"a restore as {descriptor}"):
                    state.get_state(descriptor, namespace_type=namespaces)
            value = state.get_state(ValueStateDescriptor("v", str))
            entries = state.get_state(MapStateDescriptor("m", str, int))
            state.set_current_key(1)
            found = (value.value(), dict(entries.items()))
            same(found, ("text", {"a": 1}), "state after wrong declarations")

    def test_a_value_that_cannot_be_migrated_is_refused(self, place: Place) -> None:
        """When it is met in the middle of loading: nothing is left of the attempt."""
        job = memory()
        with keyed(place.open(), key_type=int) as state:
            value = state.get_state(ValueStateDescriptor("v", int | None))
            numbers = state.get_state(ValueStateDescriptor("n", int))
            numbers.put_many(list(range(2000)), [2**53 + 1 if n == 999 else n for n in range(2000)])
            value.put_many([1], [1])
            snapshot = taken(state, job)
        with keyed(place.open(), snapshot, job=job) as state:
            with owed(Invalid, "an integer that no float can be"):
                state.get_state(ValueStateDescriptor("n", float))
            numbers = state.get_state(ValueStateDescriptor("n", int))
            same(len(list(state.keys("n"))), 2000, "keys of state that was asked for again")
            same(numbers.get_many([999]).to_pylist(), [2**53 + 1], "and its value")

    def test_pickles_are_read_where_that_is_allowed(self, place: Place) -> None:
        """And nowhere else, for they can run any code; other state is restored all the same."""
        job = memory()
        pickled = ValueStateDescriptor("pickled", object, pickle=True)
        plain = ValueStateDescriptor("plain", int)
        with keyed(place.open(), allow_pickle=True) as state:
            state.set_current_key(1)
            state.get_state(pickled).update({1, 2})
            state.get_state(plain).update(3)
            snapshot = taken(state, job)
        with keyed(place.open(), snapshot, job=job) as state:
            with owed(Invalid, "a restore of pickles that are not allowed"):
                state.get_state(pickled)
            value = state.get_state(plain)
            state.set_current_key(1)
            same(value.value(), 3, "other state of that snapshot")
        with keyed(place.open(), snapshot, job=job, allow_pickle=True) as state:
            value = state.get_state(pickled)
            state.set_current_key(1)
            same(value.value(), {1, 2}, "a pickled value where that is allowed")


class DamageClauses:
    """Clauses about a restore from damaged files."""

    def test_a_missing_file_is_named(self, place: Place) -> None:
        """Corrupt, with the name of the file; and what else is asked of the backend works."""
        _damage(place, "missing", lambda path, _: path.unlink())

    def test_a_truncated_file_is_named(self, place: Place) -> None:
        """Corrupt, with the name of the file; and what else is asked of the backend works."""
        _damage(place, "truncated", lambda path, data: path.write_bytes(data[: len(data) // 3]))

    def test_a_changed_file_is_named(self, place: Place) -> None:
        """One bit is enough, wherever it is."""
        for part in (0.1, 0.5, 0.9):

            def flip(path: Path, data: bytes, part: float = part) -> None:
                changed = bytearray(data)
                changed[int(len(data) * part)] ^= 1
                path.write_bytes(changed)

            _damage(place, f"flipped at {part}", flip)


def _check_version(state: KeyedStateBackend, value: Any, *, is_first: bool) -> None:
    """Read this value, of whatever class it is, in every kind of state; the first puts it there."""
    kind = type(value)
    single, listed, mapped = of_each_kind(state, kind, suffix=f" {kind.__name__}")
    for key in range(5):
        state.set_current_key(key)
        if is_first:
            single.update(value)
            listed.update([value, value])
            mapped.put("x", value)
        found = (single.value(), listed.get(), dict(mapped.items()))
        same(found, (value, [value, value], {"x": value}), f"a {kind.__name__} of a later version")


def _damage(place: Place, what: str, damage: Callable[[Path, bytes], object]) -> None:
    """Restore from a file that was damaged; then from the same file when it is sound again."""
    with files() as (job, folder):
        with keyed(place.open()) as state:
            churn(state, list(range(-40, 40)), 1500)
            expected = content(state)
            snapshot = taken(state, job)
            neutral = taken(state, job, 2, form=SnapshotForm.NEUTRAL)
        for path in _paths_of(snapshot, folder):
            sound = path.read_bytes()
            damage(path, sound)
            # In the backend's own form a file need not be read before its state is asked for, but
            # may be: opening may fail already.
            with _corrupt(path, what), keyed(place.open(), snapshot, job=job) as state:
                content(state)
            path.write_bytes(sound)
            with keyed(place.open(), snapshot, job=job) as state:
                same(content(state), expected, f"state from a file that was {what}")
        (path,) = _paths_of(neutral, folder)
        sound = path.read_bytes()
        damage(path, sound)
        with keyed(place.open(), neutral, job=job) as state:
            with _corrupt(path, what):
                content(state)
            value = state.get_state(ValueStateDescriptor("fresh", int))
            state.set_current_key(1)
            value.update(1)
            same(value.value(), 1, f"other state, beside a file that is {what}")
            path.write_bytes(sound)
            same(content(state), expected, f"state from a file that was {what}")


@contextmanager
def _corrupt(path: Path, what: str) -> Iterator[None]:
    """Require that reading fails inside, with the name of the file."""
    with owed(Corrupt, f"a restore from a file that is {what}") as caught:
        yield
    require(path.name in str(caught[0]), f"the error must name {path.name}: {caught[0]}")


def _paths_of(snapshot: StateSnapshot, folder: str) -> list[Path]:
    names = {each.file for each in snapshot.handles.values() if isinstance(each, FileHandle)}
    return [Path(folder, name) for name in sorted(names)]
