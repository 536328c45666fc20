"""Helpers of clauses about keyed state: opening it, many seeded changes, comparing it."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

from holdfast.backends.interface import StateBackend
from holdfast.backends.keyed.backend import KeyedStateBackend
from holdfast.backends.keys.groups import KeyGroupRange, key_groups_of_slots
from holdfast.backends.snapshots.neutral import SnapshotForm
from holdfast.backends.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.backends.testing.gates import WAIT_S
from holdfast.backends.testing.model.subjects import Mean
from holdfast.storage import (
    Clock,
    FileSystemCheckpointStorage,
    HoldfastError,
    Invalid,
    JobManagerCheckpointStorage,
    JobStorage,
    StateSnapshot,
)
from holdfast.storage.testing.checks import pattern, require

__all__ = [
    "ALL",
    "MAX_PARALLELISM",
    "STATES",
    "UID",
    "churn",
    "content",
    "elsewhere",
    "files",
    "keyed",
    "keys_of",
    "meanwhile",
    "memory",
    "of_each_kind",
    "owners_of",
    "slots",
    "taken",
    "timers_of",
]

MAX_PARALLELISM = 128
ALL = KeyGroupRange(0, MAX_PARALLELISM - 1)
UID = "operator"
_SWITCH_S = 0.000_01


STATES: dict[str, StateDescriptor] = {
    "value": ValueStateDescriptor("value", int),
    "list": ListStateDescriptor("list", str),
    "map": MapStateDescriptor("map", str, int),
    "sum": ReducingStateDescriptor("sum", operator.add, int),
    "mean": AggregatingStateDescriptor("mean", Mean(), tuple[int, int]),
    "records": ValueStateDescriptor("records", list[dict[str, int]]),
}
"""A state of each kind, and one of values that can be changed."""


def keyed(
    backend: StateBackend,
    *restore: StateSnapshot,
    job: JobStorage | None = None,
    key_groups: KeyGroupRange = ALL,
    clock: Clock | None = None,
    **options: Any,
) -> KeyedStateBackend:
    """Keyed state, empty or restored from snapshots."""
    return backend.open(
        **{
            "uid": UID,
            "key_groups": key_groups,
            "max_parallelism": MAX_PARALLELISM,
            "restore": restore,
            "storage": job,
            "clock": clock,
            **options,
        }
    )


def of_each_kind(
    state: KeyedStateBackend,
    values: Any,
    *,
    suffix: str = "",
    namespaces: Any = None,
    ttl: StateTtlConfig | None = None,
) -> tuple[Any, Any, Any]:
    """A value `v`, a list `l` and a map `m` by str, of values of a type."""
    value, listed, entries = (
        state.get_state(each, namespace_type=namespaces)
        for each in (
            ValueStateDescriptor(f"v{suffix}", values, ttl=ttl),
            ListStateDescriptor(f"l{suffix}", values, ttl=ttl),
            MapStateDescriptor(f"m{suffix}", str, values, ttl=ttl),
        )
    )
    return value, listed, entries


def slots(parallelism: int) -> list[KeyGroupRange]:
    """The key groups of each slot."""
    return key_groups_of_slots(parallelism, MAX_PARALLELISM)


def memory() -> JobStorage:
    """A job whose snapshots are kept in memory, inline."""
    return JobManagerCheckpointStorage(max_state_bytes=1 << 30).job("job")


@contextmanager
def files() -> Iterator[tuple[JobStorage, str]]:
    """A job whose snapshots are kept in files, and the folder where they are."""
    with TemporaryDirectory() as root:
        job = FileSystemCheckpointStorage(root, inline_limit_bytes=0).job("job")
        yield job, f"{root}/{job.folder}"


def taken(
    state: KeyedStateBackend,
    job: JobStorage,
    number: int = 1,
    *,
    form: SnapshotForm = SnapshotForm.OWN,
) -> StateSnapshot:
    """A completed snapshot."""
    return state.snapshot(number, job, form=form).result(WAIT_S)


def keys_of(state: KeyedStateBackend, keys: Sequence[Any]) -> list[Any]:
    """The keys that belong to the key groups of this slot."""
    mine = []
    for key in keys:
        with suppress(Invalid):
            state.set_current_key(key)
            mine.append(key)
    return mine


def churn(state: KeyedStateBackend, keys: Sequence[Any], steps: int, seed: int | str = 0) -> None:
    """Make changes of all kinds to all kinds of state; a seed gives the same changes."""
    every = {name: state.get_state(descriptor) for name, descriptor in STATES.items()}
    drawn = pattern(4 * steps, f"churn {seed}")
    for step in range(0, len(drawn), 4):
        what, owner, number, which = drawn[step : step + 4]
        state.set_current_key(keys[owner * 256 % 65521 % len(keys)])
        match what % 12:
            case 0:
                list(every.values())[which % len(every)].clear()
            case 1 | 2:
                every["value"].update(number)
            case 3 | 4:
                every["list"].add(f"e{number}")
            case 5:
                every["list"].update([f"u{number}"] * (which % 3))
            case 6 | 7:
                every["map"].put(f"m{which % 7}", number if number % 5 else None)
            case 8:
                every["map"].remove(f"m{which % 7}")
            case 9:
                every["sum"].add(number)
            case 10:
                every["mean"].add(number)
            case _:
                every["records"].update([{"n": number}] * (which % 3))


def content(state: KeyedStateBackend) -> dict[Any, tuple[Any, ...]]:
    """All state that `churn` makes, by key."""
    every = {name: state.get_state(descriptor) for name, descriptor in STATES.items()}
    found: dict[Any, tuple[Any, ...]] = {}
    for key in owners_of(state):
        state.set_current_key(key)
        found[key] = (
            every["value"].value(),
            every["list"].get(),
            sorted(every["map"].items()),
            every["sum"].get(),
            every["mean"].get(),
            every["records"].value(),
        )
    return found


def owners_of(state: KeyedStateBackend) -> list[Any]:
    """Every key that has some of the state that `churn` makes."""
    for descriptor in STATES.values():
        state.get_state(descriptor)
    return sorted({key for name in STATES for key in state.keys(name)})


def timers_of(state: KeyedStateBackend, name: str = "timers") -> list[tuple[int, Any, Any]]:
    """Remove and return all timers of event time, in order."""
    due = state.timers(name).due_event_time(2**62)
    return [(timer.timestamp, timer.key, timer.namespace) for timer in due]


def elsewhere(call: Callable[[], object]) -> object:
    """The result of the call in another thread, or the `HoldfastError` that it raises."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(call())
        except HoldfastError as error:
            found.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join(WAIT_S)
    require(found, "a call in another thread must end, with a result or one of Holdfast's errors")
    return found[0]


def meanwhile(background: Callable[[], object], owner: Callable[[int], object]) -> None:
    """Run `background` in another thread, and call `owner` repeatedly until it ends."""
    failures: list[BaseException] = []
    moved = Event()

    def run() -> None:
        try:
            require(moved.wait(WAIT_S), "the owner must go on beside a thread")
            background()
        except BaseException as error:  # noqa: BLE001 - it fails the test below
            failures.append(error)

    thread = Thread(target=run)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)  # between almost any two steps, so that harm shows
    thread.start()
    try:
        number = 0
        while thread.is_alive():
            owner(number)
            moved.set()
            number += 1
    except RuntimeError as error:
        raise AssertionError(f"the owner failed beside a thread: {error!r}") from error
    finally:
        thread.join(WAIT_S)
        sys.setswitchinterval(interval)
    if failures:
        raise AssertionError(f"a thread beside the owner failed: {failures[0]!r}")
