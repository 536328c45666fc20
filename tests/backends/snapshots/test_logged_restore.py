"""Snapshots that are a base and a log are restored into every backend, at any parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest
from msgspec import structs

from holdfast.backends import KeyGroupRange, StateBackend, load_backend
from holdfast.backends.snapshots.logs import LOGGED_KIND
from holdfast.backends.snapshots.neutral import ENTRIES_KIND, SnapshotForm
from holdfast.storage import (
    Corrupt,
    FileHandle,
    Invalid,
    JobStorage,
    ManualClock,
    StateSnapshot,
    load_storage,
)
from support.states.logged_snapshots import logged, logs_of
from support.states.logged_steps import (
    NOW_MS,
    STATES,
    TIMERS,
    TTL_MS,
    Step,
    apply,
    content,
    group_of,
    modelled,
    opened,
    steps,
)
from support.states.snapshot_targets import files_of

LOW, HIGH = KeyGroupRange(0, 50), KeyGroupRange(51, 127)
BEFORE, LATER = steps(400, seed=1), steps(400, seed=2)
WAIT_S = 30


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path / "storage"), inline_limit_bytes=0).job("job")


def base_of(
    backend: StateBackend, job: JobStorage, every: Sequence[Step] = tuple(BEFORE)
) -> StateSnapshot:
    with opened(backend) as state:
        apply(state, every)
        return state.snapshot(1, job).result(WAIT_S)


@pytest.fixture(params=["its own", "another's"])
def base(request: pytest.FixtureRequest, backend: StateBackend, job: JobStorage) -> StateSnapshot:
    """The base: a snapshot that the backend has written as it likes, or that another one has."""
    return base_of(backend if request.param == "its own" else load_backend("hashmap"), job)


def test_changes_are_replayed_over_the_base(
    backend: StateBackend, job: JobStorage, base: StateSnapshot
) -> None:
    for rows in (1, 5):
        snapshot = logged(job, 2, base, logs_of(LATER, rows=rows))
        with opened(backend, snapshot, job=job) as state:
            assert content(state) == modelled([*BEFORE, *LATER])


def test_changes_after_a_restore_follow_the_replayed_log(
    backend: StateBackend, job: JobStorage, base: StateSnapshot
) -> None:
    snapshot, more = logged(job, 2, base, logs_of(LATER)), steps(300, seed=3)
    with opened(backend, snapshot, job=job) as state:
        apply(state, more)
        again = state.snapshot(3, job).result(WAIT_S)
        assert content(state) == modelled([*BEFORE, *LATER, *more])
    with opened(backend, again, job=job) as state:
        assert content(state) == modelled([*BEFORE, *LATER, *more])


@pytest.mark.parametrize("asked", [(), ("list", "map"), (TIMERS,)], ids=["none", "two", "timers"])
def test_undeclared_state_is_carried_on_with_its_changes(
    backend: StateBackend, job: JobStorage, base: StateSnapshot, asked: tuple[str, ...]
) -> None:
    snapshot = logged(job, 2, base, logs_of(LATER))
    expected = modelled([*BEFORE, *LATER])
    with opened(backend, snapshot, job=job) as state:
        for table in asked:
            if table == TIMERS:
                state.timers(TIMERS, namespace_type=str)
            else:
                descriptor, namespace_type = STATES[table]
                state.get_state(descriptor, namespace_type=namespace_type)
        native = state.snapshot(3, job).result(WAIT_S)
        job.storage.delete(f"{job.folder}/{name}" for name in files_of(snapshot))
        neutral = state.snapshot(4, job, form=SnapshotForm.NEUTRAL).result(WAIT_S)
        assert content(state) == expected
    assert neutral.kind == ENTRIES_KIND
    for carried, reader in ((native, backend), (neutral, load_backend("hashmap"))):
        with opened(reader, carried, job=job) as state:
            assert content(state) == expected


def test_a_log_is_redistributed_over_slots(
    backend: StateBackend, job: JobStorage, base: StateSnapshot
) -> None:
    """Each slot replays what is of its key groups; both take it further, one without reading it."""
    snapshot, more = logged(job, 2, base, logs_of(LATER)), steps(300, seed=4)
    expected = modelled([*BEFORE, *LATER])
    halves = []
    for number, key_groups in enumerate((LOW, HIGH)):
        mine = {at: value for at, value in expected.items() if group_of(at[1]) in key_groups}
        with opened(backend, snapshot, job=job, key_groups=key_groups) as state:
            assert content(state) == mine
        with opened(backend, snapshot, job=job, key_groups=key_groups) as state:
            halves.append(state.snapshot(3 + number, job).result(WAIT_S))
    with_logs = []
    for number, half in enumerate(halves):
        of_half = [each for each in more if group_of(each.key) in (LOW, HIGH)[number]]
        with_logs.append(logged(job, 5 + number, half, logs_of(of_half, log=f"log {number}")))
    with opened(backend, *with_logs, job=job) as state:
        assert content(state) == modelled([*BEFORE, *LATER, *more])


def test_several_logs_are_replayed_in_order(
    backend: StateBackend, job: JobStorage, base: StateSnapshot
) -> None:
    """A log that goes on where the last one ended, and begins with a number of its own."""
    first = logs_of(LATER[:130], log="a")
    second = logs_of(LATER[130:260], log="b", first=17)
    third = logs_of(LATER[260:], log="c")
    every = list(chain.from_iterable(zip(first, second, third, strict=True)))
    snapshot = logged(job, 2, base, every, sets=3)
    with opened(backend, snapshot, job=job) as state:
        assert content(state) == modelled([*BEFORE, *LATER])


def test_a_base_may_have_a_log_itself(
    backend: StateBackend, job: JobStorage, base: StateSnapshot
) -> None:
    inner = logged(job, 2, base, logs_of(LATER[:200]))
    outer = logged(job, 3, inner, logs_of(LATER[200:], log="another"))
    with opened(backend, outer, job=job) as state:
        assert content(state) == modelled([*BEFORE, *LATER])


@pytest.mark.parametrize("is_asked_for", [True, False])
def test_a_log_may_have_an_empty_base(
    backend: StateBackend, job: JobStorage, *, is_asked_for: bool
) -> None:
    """Tables that were made since the base, and a base without a key."""
    with opened(backend) as state:
        base = state.snapshot(1, job).result(WAIT_S)
    snapshot = logged(job, 2, base, logs_of(LATER))
    if not is_asked_for:
        with opened(backend, snapshot, job=job) as state:
            snapshot = state.snapshot(3, job).result(WAIT_S)
    with opened(backend, snapshot, job=job) as state:
        assert content(state) == modelled(LATER)


def test_a_log_may_be_empty(backend: StateBackend, job: JobStorage, base: StateSnapshot) -> None:
    snapshot = logged(job, 2, base, logs_of(()))
    assert snapshot.kind == LOGGED_KIND
    for _ in range(2):
        with opened(backend, snapshot, job=job) as state:
            snapshot = state.snapshot(3, job).result(WAIT_S)
            assert content(state) == modelled(BEFORE)


def test_a_log_may_be_compressed(
    backend: StateBackend, job: JobStorage, base: StateSnapshot
) -> None:
    snapshot = logged(job, 2, base, logs_of(LATER), sets=200, compression="lz4")
    with opened(backend, snapshot, job=job) as state:
        assert content(state) == modelled([*BEFORE, *LATER])


def test_time_to_live_stamps_of_the_log_are_used(
    backend: StateBackend, job: JobStorage, base: StateSnapshot
) -> None:
    """What was renewed since the base lives on when the base's own is past its time."""
    logs = logs_of(())
    of_lists = next(log for log in logs if log.spec.name == "mortal")
    of_lists.add(1, 77, stamp=NOW_MS + TTL_MS - 1)
    snapshot = logged(job, 2, base, logs)
    with opened(backend, snapshot, job=job) as state:
        carried = state.snapshot(3, job).result(WAIT_S)
    for each in (snapshot, carried):
        with opened(backend, each, job=job, clock=ManualClock(NOW_MS + TTL_MS)) as state:
            found = content(state, ["mortal"])
            assert [(at[1], value) for at, value in found.items() if value] == [(1, [77])]


def test_two_kinds_of_one_table_are_refused(
    backend: StateBackend, job: JobStorage, base: StateSnapshot
) -> None:
    """They cannot be replayed in turns: the rows of one are not those of the other."""
    (of_values,) = (log for log in logs_of(LATER, log="more") if log.spec.name == "value")
    of_values.kind = "reducing"
    snapshot = logged(job, 2, base, [*logs_of(LATER), of_values])
    with pytest.raises(
        Corrupt, match=r"'op' has logs of one table that have other rows.*table 'value'"
    ):
        opened(backend, snapshot, job=job)


def test_a_slot_reads_no_segment_of_others(job: JobStorage) -> None:
    """By the key groups in the attributes: half of the files may be unreadable."""
    low = [each for each in LATER if group_of(each.key) in LOW]
    high = [each for each in LATER if group_of(each.key) in HIGH]
    base = base_of(load_backend("hashmap"), job)
    every = [*logs_of(low, log="low"), *logs_of(high, log="high")]
    snapshot = logged(job, 2, base, every, sets=5)
    attributes = snapshot.attributes
    foreign = {
        segment["handle"]
        for log in attributes["logs"]
        for segment in log["segments"]
        if segment["first_group"] > LOW.last
    }
    assert foreign
    handles = {
        name: FileHandle(**{**structs.asdict(handle), "file": "away"})
        if name in foreign and isinstance(handle, FileHandle)
        else handle
        for name, handle in snapshot.handles.items()
    }
    partly = structs.replace(snapshot, handles=handles)
    with opened(load_backend("hashmap"), partly, job=job, key_groups=LOW) as state:
        expected = modelled([*BEFORE, *LATER])
        assert content(state) == {at: v for at, v in expected.items() if group_of(at[1]) in LOW}


def test_a_log_of_another_operator_is_refused(backend: StateBackend, job: JobStorage) -> None:
    """Neither the log's attributes nor those of the base may be of another one."""
    base = base_of(backend, job)
    other = structs.replace(base, attributes={**base.attributes, "uid": "other"})
    with pytest.raises(Invalid, match=r"belongs to another operator.*other"):
        opened(backend, logged(job, 2, other, logs_of(())), job=job)
