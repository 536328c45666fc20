"""Snapshots of keyed state: the state at the barrier, restored whole, in parts, as declared now."""

import operator
import random
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import (
    KeyedStateBackend,
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
    key_groups_of_slots,
    load_backend,
)
from holdfast.backends.snapshots.neutral import SnapshotFuture
from holdfast.backends.testing.gates import Gate
from holdfast.storage import (
    Corrupt,
    Invalid,
    JobStorage,
    StateSnapshot,
    load_storage,
)
from support.states.snapshot_targets import Failing, files_of

ALL = KeyGroupRange(0, 127)
DESCRIPTORS = {
    "value": ValueStateDescriptor("value", int),
    "list": ListStateDescriptor("list", str),
    "map": MapStateDescriptor("map", str, int),
    "sum": ReducingStateDescriptor("sum", operator.add, int),
    "any": ValueStateDescriptor("any", list[dict[str, int]]),
}
Content = dict[Any, tuple[Any, ...]]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadPoolExecutor]:
    """Threads for what waits, and looks all the time whether it need not any more."""
    monkeypatch.setattr("holdfast.backends.snapshots.neutral._LOOK_S", 0)
    with ThreadPoolExecutor(2) as threads:
        yield threads


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path)).job("job")


def opened(
    *snapshots: StateSnapshot,
    job: JobStorage | None = None,
    key_groups: KeyGroupRange = ALL,
    **options: Any,
) -> KeyedStateBackend:
    return load_backend("hashmap").open(
        uid="op",
        key_groups=key_groups,
        max_parallelism=128,
        restore=snapshots,
        storage=job,
        **options,
    )


def churn(backend: KeyedStateBackend, chance: random.Random, keys: list[Any], steps: int) -> None:
    """Random changes of every kind of state."""
    states = {name: backend.get_state(each) for name, each in DESCRIPTORS.items()}
    for _ in range(steps):
        backend.set_current_key(chance.choice(keys))
        number = chance.randrange(1000)
        match chance.randrange(10):
            case 0:
                chance.choice(list(states.values())).clear()
            case 1 | 2:
                states["value"].update(number)
            case 3 | 4:
                states["list"].add(f"e{number}")
            case 5 | 6:
                states["map"].put(f"m{number % 7}", number if number % 5 else None)
            case 7:
                states["map"].remove(f"m{number % 7}")
            case 8:
                states["sum"].add(number)
            case 9:
                states["any"].update([{"n": number}] * (number % 3))


def content(backend: KeyedStateBackend) -> Content:
    states = {name: backend.get_state(each) for name, each in DESCRIPTORS.items()}
    keys = {key for name in states for key in backend.keys(name)}
    found: Content = {}
    for key in keys:
        backend.set_current_key(key)
        entries = sorted(states["map"].items())
        found[key] = (
            states["value"].value(),
            states["list"].get(),
            entries,
            states["sum"].get(),
            states["any"].value(),
        )
    return found


KEYS: dict[str, list[Any]] = {
    "int": list(range(-40, 40)),
    "str": [f"kéy-{number}" for number in range(80)],
    "tuple": [(f"k{number}", number % 3) for number in range(80)],
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("compression", ["", "lz4"])
def test_each_snapshot_is_the_state_at_its_barrier(
    job: JobStorage, kind: str, compression: str
) -> None:
    chance = random.Random(7)
    taken = []
    with opened() as backend:
        for number in range(6):
            churn(backend, chance, KEYS[kind], 300)
            expected = content(backend)
            taken.append((expected, backend.snapshot(number, job, compression=compression)))
        churn(backend, chance, KEYS[kind], 300)
        snapshots = [(expected, future.result(30)) for expected, future in taken]
    for expected, snapshot in snapshots:
        with opened(snapshot, job=job) as restored:
            assert content(restored) == expected


@pytest.mark.parametrize("parallelism", [1, 2, 3, 7])
def test_any_key_groups_from_many_snapshots(job: JobStorage, parallelism: int) -> None:
    chance = random.Random(parallelism)
    everything: Content = {}
    snapshots = []
    for key_groups in key_groups_of_slots(3, 128):
        with opened(key_groups=key_groups, key_type=int) as backend:
            mine = []
            for key in range(300):
                try:
                    backend.set_current_key(key)
                    mine.append(key)
                except Invalid:
                    continue
            churn(backend, chance, mine, 600)
            everything |= content(backend)
            snapshots.append(backend.snapshot(1, job).result(30))
    parts: Content = {}
    for key_groups in key_groups_of_slots(parallelism, 128):
        with opened(*snapshots, job=job, key_groups=key_groups) as backend:
            part = content(backend)
            assert not parts.keys() & part.keys()
            parts |= part
    assert parts == everything


def test_segments_end_where_a_key_group_ends(
    job: JobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.backends.snapshots.neutral._SEGMENT_BYTES", 4096)
    with opened() as backend:
        state = backend.get_state(ValueStateDescriptor("v", int))
        state.put_many(list(range(20_000)), list(range(20_000)))
        snapshot = backend.snapshot(1, job).result(30)
    (table,) = snapshot.attributes["tables"]
    ends = [(segment["first_group"], segment["last_group"]) for segment in table["segments"]]
    assert len(ends) > 2
    assert all(before[1] < after[0] for before, after in pairwise(ends))
    with opened(snapshot, job=job, key_groups=KeyGroupRange(100, 100)) as backend:
        backend.get_state(ValueStateDescriptor("v", int))
        assert 100 < len(list(backend.keys("v"))) < 250


def test_undeclared_state_is_carried_into_later_snapshots(job: JobStorage) -> None:
    with opened() as backend:
        churn(backend, random.Random(1), KEYS["int"], 500)
        expected = content(backend)
        first = backend.snapshot(1, job).result(30)
    with opened(first, job=job) as backend:
        backend.set_current_key(1000)
        backend.get_state(ValueStateDescriptor("other", int)).update(5)
        second = backend.snapshot(2, job).result(30)
        job.storage.delete(f"{job.folder}/{name}" for name in files_of(first))
        third = backend.snapshot(3, job).result(30)
    for snapshot in (second, third):
        with opened(snapshot, job=job) as backend:
            assert content(backend) == expected


def test_state_declared_while_a_snapshot_waits_is_in_that_snapshot(tmp_path: Path) -> None:
    job = load_storage(str(tmp_path), inline_limit_bytes=0).job("job")
    with opened() as backend:
        churn(backend, random.Random(9), KEYS["str"], 300)
        expected = content(backend)
        first = backend.snapshot(1, job).result(30)
    gate = Gate(job)
    with opened(first, job=job) as backend:
        future = backend.snapshot(2, gate)
        assert content(backend) == expected  # it is live, and held no more
        job.storage.delete(f"{job.folder}/{name}" for name in files_of(first))
        gate.open.set()
        second = future.result(30)
    with opened(second, job=job) as backend:
        assert content(backend) == expected


def test_a_snapshot_can_be_cancelled_while_it_is_written(job: JobStorage) -> None:
    gate = Gate(job)
    with opened() as backend:
        churn(backend, random.Random(1), KEYS["int"], 500)
        expected = content(backend)
        running, waiting = backend.snapshot(1, gate), backend.snapshot(2, job)
        assert gate.entered.wait(30)
        last = backend.snapshot(3, job)
        assert running.cancel()
        assert waiting.cancel()
        gate.open.set()
        for future in (running, waiting):
            with pytest.raises(CancelledError):
                future.result(30)
        snapshot = last.result(30)
        assert not last.cancel()
    assert {info.name.split("/")[1] for info in job.storage.list("")} <= {f"chk-{3:020d}"}
    assert list(job.storage.unfinished("")) == []
    with opened(snapshot, job=job) as restored:
        assert content(restored) == expected


def test_a_writer_sees_a_result_that_arrives_as_it_begins_to_wait(
    patient: ThreadPoolExecutor,
) -> None:
    for _ in range(200):
        other: Future[str] = Future()
        waiting = patient.submit(SnapshotFuture().wait_for, other)
        patient.submit(other.set_result, "done")
        waiting.result(60)
        assert other.result(0) == "done"


def test_a_writer_that_waits_for_something_can_be_stopped(patient: ThreadPoolExecutor) -> None:
    snapshot, never = SnapshotFuture(), Future[str]()
    waiting = patient.submit(snapshot.wait_for, never)
    snapshot.cancel()
    with pytest.raises(CancelledError):
        waiting.result(60)


def test_closing_cancels_running_snapshots(job: JobStorage) -> None:
    gate = Gate(job)
    backend = opened()
    churn(backend, random.Random(1), KEYS["int"], 100)
    future = backend.snapshot(1, gate)
    assert gate.entered.wait(30)
    gate.open.set()
    backend.close()
    assert future.done()
    assert list(job.storage.unfinished("")) == []


def test_a_failed_snapshot_harms_nothing(job: JobStorage) -> None:
    with opened() as backend:
        churn(backend, random.Random(1), KEYS["int"], 300)
        expected = content(backend)
        with pytest.raises(Corrupt, match="on fire"):
            backend.snapshot(1, Failing()).result(30)
        assert content(backend) == expected
        snapshot = backend.snapshot(2, job).result(30)
    with opened(snapshot, job=job) as restored:
        assert content(restored) == expected


@dataclass
class Before:
    name: str
    count: int


@dataclass
class After:
    name: str
    count: float
    note: str = "none"


def test_values_are_migrated_to_what_is_declared_now(job: JobStorage) -> None:
    with opened() as backend:
        backend.set_current_key("k")
        backend.get_state(ValueStateDescriptor("old", Before)).update(Before("n", 3))
        snapshot = backend.snapshot(1, job).result(30)
    with opened(snapshot, job=job) as backend:
        state = backend.get_state(ValueStateDescriptor("new", After, aliases=("old",)))
        backend.set_current_key("k")
        assert state.value() == After("n", 3.0)
        renamed = backend.snapshot(2, job).result(30)
    with opened(renamed, job=job) as backend:
        backend.set_current_key("k")
        assert backend.get_state(ValueStateDescriptor("new", After)).value() == After("n", 3.0)


@pytest.mark.parametrize(
    ("descriptor", "message"),
    [
        (ValueStateDescriptor("v", str), r"state 'v'.*'op'.*str.*int"),
        (
            ListStateDescriptor("v", int),
            r"state 'v' is of another kind.*expected value, found list",
        ),
        (ReducingStateDescriptor("v", max, int), "another kind"),
    ],
)
def test_an_unreadable_declaration_is_refused(
    job: JobStorage, descriptor: Any, message: str
) -> None:
    with opened() as backend:
        backend.set_current_key("k")
        backend.get_state(ValueStateDescriptor("v", int)).update(3)
        snapshot = backend.snapshot(1, job).result(30)
    with opened(snapshot, job=job) as backend:
        with pytest.raises(Invalid, match=message):
            backend.get_state(descriptor)
        backend.set_current_key("k")
        assert backend.get_state(ValueStateDescriptor("v", int)).value() == 3


def test_pickles_are_read_only_where_that_is_allowed(job: JobStorage) -> None:
    descriptor = ValueStateDescriptor("v", object, pickle=True)
    with opened() as backend, pytest.raises(Invalid, match="state 'v' is kept as pickles"):
        backend.get_state(descriptor)
    with opened(allow_pickle=True) as backend:
        backend.set_current_key(1)
        backend.get_state(descriptor).update({1, 2})
        snapshot = backend.snapshot(1, job).result(30)
    with opened(snapshot, job=job) as backend, pytest.raises(Invalid, match="not allowed"):
        backend.get_state(ValueStateDescriptor("v", int))
    with opened(snapshot, job=job, allow_pickle=True) as backend:
        backend.set_current_key(1)
        assert backend.get_state(descriptor).value() == {1, 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"uid": "other"}, r"another operator.*'other'|another operator"),
        ({"max_parallelism": 64, "key_groups": KeyGroupRange(0, 63)}, "expected 128, found 64"),
        ({"key_type": str}, "the type of a key cannot change"),
        ({"storage": None}, "without a storage"),
    ],
)
def test_snapshots_that_do_not_fit_are_refused(
    job: JobStorage, options: dict[str, Any], message: str
) -> None:
    with opened() as backend:
        backend.set_current_key(1)
        backend.get_state(ValueStateDescriptor("v", int)).update(3)
        snapshot = backend.snapshot(1, job).result(30)
    fitting: dict[str, Any] = {"uid": "op", "key_groups": ALL, "max_parallelism": 128}
    with pytest.raises(Invalid, match=message):
        load_backend("hashmap").open(
            **{**fitting, "restore": [snapshot], "storage": job, **options}
        )


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
def test_a_damaged_file_is_named_and_the_backend_stays_usable(tmp_path: Path, damage: str) -> None:
    job = load_storage(str(tmp_path), inline_limit_bytes=0).job("job")
    with opened() as backend:
        churn(backend, random.Random(1), KEYS["int"], 1000)
        snapshot = backend.snapshot(1, job).result(30)
    (file,) = files_of(snapshot)
    path = tmp_path / "job" / file
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data if damage == "flipped" else data[: len(data) // 3])
    with opened(snapshot, job=job) as backend:
        with pytest.raises(Corrupt, match=path.name):
            content(backend)
        backend.set_current_key(1)
        backend.get_state(ValueStateDescriptor("fresh", int)).update(1)
