"""Snapshots of slots some of which have declared a state with new types, and others not yet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from holdfast.backends import (
    KeyedStateBackend,
    KeyGroupRange,
    ListStateDescriptor,
    StateBackend,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.backends.snapshots.neutral import SnapshotForm
from holdfast.storage import Corrupt, JobStorage, StateSnapshot, load_storage

ALL, LOW, HIGH = KeyGroupRange(0, 127), KeyGroupRange(0, 63), KeyGroupRange(64, 127)
KEYS = range(100)


@dataclass
class Before:
    count: int


@dataclass
class After:
    count: float
    note: str = "none"


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path)).job("job")


def opened(
    backend: StateBackend,
    job: JobStorage,
    *snapshots: StateSnapshot,
    key_groups: KeyGroupRange = ALL,
) -> KeyedStateBackend:
    return backend.open(
        uid="op",
        key_groups=key_groups,
        max_parallelism=128,
        key_type=int,
        restore=snapshots,
        storage=job,
    )


def mixed(
    backend: StateBackend,
    job: JobStorage,
    old: Sequence[tuple[StateDescriptor, Callable[[Any, int], None]]],
    new: Any,
) -> list[StateSnapshot]:
    """Snapshots of two slots after an upgrade; only the first has asked for the state anew."""
    every = []
    with opened(backend, job) as keyed:
        for descriptor, put in old:
            state = keyed.get_state(descriptor)
            for key in KEYS:
                keyed.set_current_key(key)
                put(state, key)
        before = keyed.snapshot(1, job).result(30)
    for number, key_groups in enumerate((LOW, HIGH)):
        with opened(backend, job, before, key_groups=key_groups) as keyed:
            if number == 0:
                keyed.get_state(new)
            every.append(keyed.snapshot(2 + number, job).result(30))
    return every


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            ValueStateDescriptor("old", int),
            ValueStateDescriptor("v", int, aliases=("old",)),
            list(KEYS),
        ),
        (
            ValueStateDescriptor("v", int),
            ValueStateDescriptor("v", int, ttl=StateTtlConfig(ttl=timedelta(days=1))),
            list(KEYS),
        ),
        (ValueStateDescriptor("v", int), ValueStateDescriptor("v", float), list(map(float, KEYS))),
    ],
    ids=["renamed", "with time to live", "widened"],
)
def test_state_that_only_some_slots_declared_is_not_lost(
    backend: StateBackend, job: JobStorage, old: Any, new: Any, expected: list[Any]
) -> None:
    snapshots = mixed(backend, job, [(old, lambda state, key: state.update(key))], new)
    with opened(backend, job, *snapshots) as keyed:  # not declared: both kinds are passed on
        carried = keyed.snapshot(4, job).result(30)
    for restored in (snapshots, [carried]):
        with opened(backend, job, *restored) as keyed:
            assert list(keyed.get_state(new).get_many(list(KEYS)).to_pylist()) == expected
            both = keyed.snapshot(5, job).result(30)
        with opened(backend, job, both) as keyed:
            assert list(keyed.get_state(new).get_many(list(KEYS)).to_pylist()) == expected


def test_classes_and_lists_are_migrated_slot_by_slot(
    backend: StateBackend, job: JobStorage
) -> None:
    old = ListStateDescriptor("old", Before)
    new = ListStateDescriptor("new", After, aliases=("old",))
    snapshots = mixed(backend, job, [(old, lambda state, key: state.add(Before(key)))], new)
    with opened(backend, job, *snapshots) as keyed:
        state = keyed.get_state(new)
        for key in KEYS:
            keyed.set_current_key(key)
            assert state.get() == [After(float(key))]


def test_the_name_itself_precedes_an_alias(backend: StateBackend, job: JobStorage) -> None:
    old, new = ValueStateDescriptor("old", int), ValueStateDescriptor("new", int)
    with opened(backend, job) as keyed:
        keyed.set_current_key(1)
        keyed.get_state(old).update(1)
        keyed.get_state(new).update(2)
        keyed.set_current_key(2)
        keyed.get_state(old).update(3)
        snapshot = keyed.snapshot(1, job).result(30)
    with opened(backend, job, snapshot) as keyed:
        state = keyed.get_state(replace(new, aliases=("old",)))
        assert state.get_many([1, 2]).to_pylist() == [2, 3]


def test_a_snapshot_that_lacks_a_handle_is_corrupt(backend: StateBackend, job: JobStorage) -> None:
    with opened(backend, job) as keyed:
        keyed.set_current_key(1)
        keyed.get_state(ValueStateDescriptor("v", int)).update(1)
        snapshot = keyed.snapshot(1, job, form=SnapshotForm.NEUTRAL).result(30)
    with opened(backend, job, structs.replace(snapshot, handles={})) as keyed:
        with pytest.raises(Corrupt, match=r"state 'v' of operator 'op' cannot.*a handle 'v/0'"):
            keyed.get_state(ValueStateDescriptor("v", int))
        keyed.get_state(ValueStateDescriptor("other", int))
