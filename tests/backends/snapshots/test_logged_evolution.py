"""Logs of state whose declaration has changed: migrated, renamed, or refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import (
    KeyedStateBackend,
    ListStateDescriptor,
    MapStateDescriptor,
    StateBackend,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.storage import Invalid, JobStorage, ManualClock, StateSnapshot, load_storage
from support.states.logged_snapshots import TableLog, logged, table_log
from support.states.logged_steps import NOW_MS, opened

WAIT_S = 30
KEYS = range(60)


@dataclass
class Before:
    count: int


@dataclass
class After:
    count: float
    note: str = "none"


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path), inline_limit_bytes=0).job("job")


def snapshot_of(
    backend: StateBackend,
    job: JobStorage,
    descriptor: StateDescriptor,
    put: Callable[[Any, int], None],
    write: Callable[[TableLog], None],
) -> StateSnapshot:
    """A base with something under each key, and a log of the same state."""
    with opened(backend, allow_pickle=True) as state:
        one = state.get_state(descriptor)
        for key in KEYS:
            state.set_current_key(key)
            put(one, key)
        base = state.snapshot(1, job).result(WAIT_S)
    log = table_log(descriptor)
    write(log)
    return logged(job, 2, base, [log])


def carried(backend: StateBackend, job: JobStorage, snapshot: StateSnapshot) -> StateSnapshot:
    """The same after a run that has not asked for it."""
    with opened(backend, snapshot, job=job) as state:
        return state.snapshot(3, job).result(WAIT_S)


def read(state: KeyedStateBackend, descriptor: StateDescriptor) -> dict[int, Any]:
    one = state.get_state(descriptor)
    found = {}
    for key in list(state.keys(descriptor.name)):
        state.set_current_key(key)
        match one:
            case _ if isinstance(descriptor, ListStateDescriptor):
                found[key] = one.get()
            case _ if isinstance(descriptor, MapStateDescriptor):
                found[key] = dict(one.items())
            case _:
                found[key] = one.value()
    return found


def write_values(log: TableLog) -> None:
    log.add(1, Before(100))
    log.remove(2)
    log.add(1000, Before(7))
    log.remove(1000)
    log.add(1000, Before(8))


def write_lists(log: TableLog) -> None:
    log.add(1, Before(100))
    log.replace(2, Before(200))
    log.remove(3)


def write_entries(log: TableLog) -> None:
    log.add(1, Before(100), map_key="x")
    log.add(1, None, map_key="y")
    log.remove(2, map_key="m")
    log.remove(3)


_EVERY: list[tuple[StateDescriptor, StateDescriptor, Any, Any, dict[int, Any]]] = [
    (
        ValueStateDescriptor("s", Before),
        ValueStateDescriptor("s", After),
        lambda one, key: one.update(Before(key)),
        write_values,
        {
            **{key: After(float(key)) for key in KEYS if key != 2},
            1: After(100.0),
            1000: After(8.0),
        },
    ),
    (
        ListStateDescriptor("s", Before),
        ListStateDescriptor("s", After),
        lambda one, key: one.add(Before(key)),
        write_lists,
        {
            **{key: [After(float(key))] for key in KEYS if key != 3},
            1: [After(1.0), After(100.0)],
            2: [After(200.0)],
        },
    ),
    (
        MapStateDescriptor("s", str, Before),
        MapStateDescriptor("s", str, After),
        lambda one, key: one.put("m", Before(key)),
        write_entries,
        {
            **{key: {"m": After(float(key))} for key in KEYS if key not in {2, 3}},
            1: {"m": After(1.0), "x": After(100.0), "y": None},
        },
    ),
]
_EACH = pytest.mark.parametrize(
    ("old", "new", "put", "write", "expected"), _EVERY, ids=["values", "lists", "maps"]
)


def check_read(
    backend: StateBackend,
    job: JobStorage,
    snapshot: StateSnapshot,
    asked: tuple[StateDescriptor, StateDescriptor],
    expected: dict[int, Any],
) -> None:
    """Asked for in the first way, and in the second after one more snapshot."""
    first, later = asked
    with opened(backend, snapshot, job=job) as state:
        assert read(state, first) == expected
        again = state.snapshot(4, job).result(WAIT_S)
    with opened(backend, again, job=job) as state:
        assert read(state, later) == expected


@_EACH
@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "late"])
def test_changes_are_migrated(
    backend: StateBackend,
    job: JobStorage,
    old: StateDescriptor,
    new: StateDescriptor,
    put: Any,
    write: Any,
    expected: dict[int, Any],
    *,
    is_late: bool,
) -> None:
    snapshot = snapshot_of(backend, job, old, put, write)
    if is_late:
        snapshot = carried(backend, job, snapshot)
    check_read(backend, job, snapshot, (new, new), expected)


@_EACH
@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "late"])
def test_changes_are_read_under_a_new_name(
    backend: StateBackend,
    job: JobStorage,
    old: StateDescriptor,
    new: StateDescriptor,
    put: Any,
    write: Any,
    expected: dict[int, Any],
    *,
    is_late: bool,
) -> None:
    snapshot = snapshot_of(backend, job, old, put, write)
    if is_late:
        snapshot = carried(backend, job, snapshot)
    asked = replace(new, name="new", aliases=("s",)), replace(new, name="new")
    check_read(backend, job, snapshot, asked, expected)


def test_changes_under_both_names_are_replayed_in_order(
    backend: StateBackend, job: JobStorage
) -> None:
    """Those of the old name first, whatever their order in the snapshot."""
    old = ValueStateDescriptor("old", int)
    base = snapshot_of(backend, job, old, lambda one, key: one.update(key), lambda _: None)
    of_old, of_new = table_log(old), table_log(old, name="new")
    of_new.add(1, 11)
    of_new.add(3, 33)
    of_old.add(1, 10)
    of_old.add(2, 20)
    for number, logs in enumerate(([of_new, of_old], [of_old, of_new])):
        snapshot = logged(job, 5 + number, base, logs)
        with opened(backend, snapshot, job=job) as state:
            new = ValueStateDescriptor("new", int, aliases=("old",))
            expected = {**{key: key for key in KEYS}, 1: 11, 2: 20, 3: 33}
            assert read(state, new) == expected


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "late"])
def test_time_to_live_may_be_added_and_removed(
    backend: StateBackend, job: JobStorage, *, is_late: bool
) -> None:
    """What has no stamps begins to live now; stamps are dropped where nothing dies."""
    plain = ValueStateDescriptor("v", int)
    mortal = replace(plain, ttl=StateTtlConfig(ttl=timedelta(seconds=5)))
    clock = ManualClock(NOW_MS + 60_000)

    def write(log: TableLog) -> None:
        log.add(1, 100)
        log.remove(2)

    expected = {**{key: key for key in KEYS if key != 2}, 1: 100}
    for before, after in ((plain, mortal), (mortal, plain)):
        snapshot = snapshot_of(backend, job, before, lambda one, key: one.update(key), write)
        if is_late:
            snapshot = carried(backend, job, snapshot)
        with opened(backend, snapshot, job=job, clock=clock) as state:
            assert read(state, after) == expected
            clock.advance(5000)
            found = read(state, after)
            assert found == (dict.fromkeys(found) if after is mortal else expected)


def test_pickles_in_a_log_are_refused(backend: StateBackend, job: JobStorage) -> None:
    """Also where the base has none of the state; carried on they need not be read."""
    pickled = ValueStateDescriptor("p", object, pickle=True)
    snapshot = snapshot_of(
        backend,
        job,
        ValueStateDescriptor("other", int),
        lambda one, key: one.update(key),
        lambda _: None,
    )
    log = table_log(pickled)
    log.add(1, {1 + 2j})
    snapshot = logged(job, 3, snapshot, [log])
    for each in (snapshot, carried(backend, job, snapshot)):
        with opened(backend, each, job=job) as state:
            for descriptor in (pickled, ValueStateDescriptor("p", int)):
                with pytest.raises(Invalid, match=r"state 'p'.*pickle"):
                    state.get_state(descriptor)
            again = state.snapshot(4, job).result(WAIT_S)
        with opened(backend, again, job=job, allow_pickle=True) as state:
            assert read(state, pickled) == {1: {1 + 2j}}


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        (ValueStateDescriptor("v", str), r"state 'v' cannot be read as it is declared now.*'op'"),
        (ListStateDescriptor("v", int), r"state 'v' is of another kind in the snapshot"),
    ],
    ids=["type", "kind"],
)
def test_a_declaration_that_does_not_fit_the_log_is_refused(
    backend: StateBackend, job: JobStorage, declared: StateDescriptor, says: str
) -> None:
    """Though the base has nothing of it; as it was declared, it is there still."""
    other = ValueStateDescriptor("other", int)
    base = snapshot_of(backend, job, other, lambda one, key: one.update(key), lambda _: None)
    log = table_log(ValueStateDescriptor("v", int))
    log.add(1, 5)
    with opened(backend, logged(job, 3, base, [log]), job=job) as state:
        with pytest.raises(Invalid, match=says):
            state.get_state(declared)
        assert read(state, ValueStateDescriptor("v", int)) == {1: 5}


@pytest.mark.parametrize(
    ("declared", "changed"),
    [
        (ValueStateDescriptor("v", int), 0),
        (ValueStateDescriptor("new", int), 0),
        (ValueStateDescriptor("new", int, aliases=("v",)), 1),
        (ValueStateDescriptor("v", float), 1),
        (ValueStateDescriptor("v", int | None), 1),
        (ValueStateDescriptor("v", int, ttl=StateTtlConfig(ttl=timedelta(days=1))), 1),
    ],
    ids=["as written", "not there", "renamed", "migrated", "as is", "with time to live"],
)
def test_the_log_says_whether_it_may_be_continued(
    job: JobStorage, declared: StateDescriptor, *, changed: int
) -> None:
    """Only where what was asked for is in the store as the base has it."""
    backend = load_backend("hashmap")
    snapshot = snapshot_of(
        backend,
        job,
        ValueStateDescriptor("v", int),
        lambda one, key: one.update(key),
        lambda log: log.add(1, 5),
    )
    with opened(backend, snapshot, job=job) as state:
        assert state._undeclared.changed == 0
        state.get_state(declared)
        assert state._undeclared.changed == changed
