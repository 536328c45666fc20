"""Snapshots of earlier versions whose base and logs are in several types of one state.

Earlier, a changelog continued over its base when the types of a state changed. Rows that such a log
has replaced or removed are gone for every reader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from golden_entries import as_first_described
from holdfast.backends import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateBackend,
    StateDescriptor,
    ValueStateDescriptor,
)
from holdfast.backends.blocks.columns import decode_keys
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_group
from holdfast.backends.snapshots.neutral import SnapshotForm
from holdfast.changelog import ChangelogStateBackend
from holdfast.savepoints.reading.columns import KeyedColumns
from holdfast.savepoints.reading.readers import KeyedReader
from holdfast.storage import JobStorage, StateSnapshot, load_storage
from support.jobs.logged_jobs import LoggedRun, log_of, parts_of
from support.states.logged_snapshots import TableLog, logged, table_log
from support.states.logged_steps import GROUPS, UID, opened
from support.states.tried_backends import BUSY_LOG, PLAIN, backend_named

WAIT_S = 30
KEYS = range(6)


@dataclass
class First:
    count: int


@dataclass
class Second:
    count: int
    note: str = "none"


@dataclass
class Third:
    count: int
    note: str = "third"
    more: int = 3


Write = Callable[[TableLog, Any], None]


def write_values(log: TableLog, cls: Any) -> None:
    log.add(1, cls(100))
    log.remove(2)
    log.add(3, cls(300))
    log.remove(3)
    log.add(3, cls(301))


def write_lists(log: TableLog, cls: Any) -> None:
    log.add(1, cls(100))
    log.remove(2)
    log.replace(3, cls(301))


def write_entries(log: TableLog, cls: Any) -> None:
    log.add(1, cls(100), map_key="m")
    log.add(1, cls(101), map_key="n")
    log.remove(2, map_key="m")
    log.remove(3)
    log.add(3, cls(301), map_key="n")


EVERY: dict[str, tuple[Callable[[Any], StateDescriptor], Write, dict[int, Any]]] = {
    "values": (
        lambda cls: ValueStateDescriptor("s", cls),
        write_values,
        {0: 0, 1: 100, 3: 301, 4: 4, 5: 5},
    ),
    "lists": (
        lambda cls: ListStateDescriptor("s", cls),
        write_lists,
        {0: [0], 1: [1, 100], 3: [301], 4: [4], 5: [5]},
    ),
    "maps": (
        lambda cls: MapStateDescriptor("s", str, cls),
        write_entries,
        {
            0: {"m": 0},
            1: {"m": 100, "n": 101},
            3: {"n": 301},
            4: {"m": 4},
            5: {"m": 5},
        },
    ),
}


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path), inline_limit_bytes=0).job("job")


def written_once(backend: StateBackend, job: JobStorage, kind: str, *logs: Any) -> StateSnapshot:
    """A base in the first type, and a log in each of these: the last one has the changes."""
    declare, write, _ = EVERY[kind]
    with opened(backend) as state:
        one = state.get_state(declare(First))
        for key in KEYS:
            state.set_current_key(key)
            match kind:
                case "values":
                    one.update(First(key))
                case "lists":
                    one.add(First(key))
                case _:
                    one.put("m", First(key))
        base = state.snapshot(1, job).result(WAIT_S)
    made = [table_log(declare(cls), log=cls.__name__) for cls in logs]
    for log in made[:-1]:  # of a key that is removed in the end
        log.add(2, logs[0](200), map_key="m" if kind == "maps" else None)
    write(made[-1], logs[-1])
    snapshot = logged(job, 2, base, made)
    described = as_first_described(msgspec.json.encode(snapshot.attributes))
    return msgspec.structs.replace(snapshot, attributes=msgspec.json.decode(described))


def counts(found: Any) -> Any:
    """The same with numbers for objects."""
    match found:
        case list():
            return list(map(counts, found))
        case dict():
            return {key: counts(each) for key, each in found.items()}
    return found.count


def read(backend: StateBackend, job: JobStorage, snapshot: StateSnapshot, kind: str) -> Any:
    """What the third version has of it."""
    with opened(backend, snapshot, job=job) as state:
        one = state.get_state(EVERY[kind][0](Third))
        found = {}
        for key in state.keys("s"):
            state.set_current_key(key)
            match kind:
                case "values":
                    found[key] = one.value()
                case "lists":
                    found[key] = one.get()
                case _:
                    found[key] = dict(one.items())
        return {key: counts(each) for key, each in found.items()}


LOGS = pytest.mark.parametrize(
    "logs", [(Second,), (First, Second)], ids=["in another type", "in both, one after the other"]
)


@LOGS
@pytest.mark.parametrize("carries", [0, 1, 2])
@pytest.mark.parametrize("kind", EVERY)
def test_a_value_replaced_in_a_log_of_another_type_stays_replaced(
    backend: StateBackend, job: JobStorage, kind: str, logs: Any, carries: int
) -> None:
    """Nor where the state is carried from snapshot to snapshot before it is asked for."""
    snapshot = written_once(backend, job, kind, *logs)
    for number in range(carries):
        with opened(backend, snapshot, job=job) as state:
            snapshot = state.snapshot(3 + number, job).result(WAIT_S)
    assert read(backend, job, snapshot, kind) == EVERY[kind][2]


@LOGS
@pytest.mark.parametrize("kind", ["values", "maps"])
def test_tools_find_each_row_once(
    backend: StateBackend, job: JobStorage, kind: str, logs: Any
) -> None:
    snapshot = written_once(backend, job, kind, *logs)
    found: dict[int, Any] = {}
    reader = KeyedReader(UID, [snapshot], job)
    with reader.open() as tables:
        for table in reader.description.tables:
            for block in tables.blocks(table):
                keys = decode_keys(key_codec_for(int), block.keys, block.count)
                values = [each["count"] for each in msgspec.msgpack.decode(block.values)]
                if block.map_keys is None:
                    assert not found.keys() & set(keys)
                    found |= dict(zip(keys, values, strict=True))
                    continue
                names = decode_keys(key_codec_for(str), block.map_keys, block.count)
                for key, name, value in zip(keys, names, values, strict=True):
                    assert name not in found.setdefault(key, {})
                    found[key][name] = value
    assert found == EVERY[kind][2]


class Place(NamedTuple):
    city: str
    number: int


class MovedPlace(NamedTuple):
    city: str
    number: int


MovedPlace.__module__ = "elsewhere"


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[] if each == "hashmap" else pytest.mark.slow) for each in PLAIN],
)
@pytest.mark.dealt("name")
def test_a_class_that_moved_is_the_same_class(name: str, quick_path: Path) -> None:
    """As key, as map key, as namespace and as value, with a changelog: its log goes on."""
    backend = ChangelogStateBackend(backend_named(name, quick_path / "state"), BUSY_LOG)
    job = load_storage(str(quick_path / "storage"), inline_limit_bytes=0).job("job")
    checkpoint = None
    expected: dict[int, Any] = {}
    for number, cls in enumerate([Place, MovedPlace, MovedPlace, Place]):
        parallelism = 2 if number > 1 else 1
        with LoggedRun(
            job, backend, restored=checkpoint, key_type=cls, parallelism=parallelism
        ) as run:
            for round_ in range(2):
                for key in range(4):
                    own = cls("Ulm", key)
                    (slot,) = [each for each in run.slots if _has(each, own)]
                    slot.set_current_key(own)
                    values = slot.get_state(ValueStateDescriptor("v", cls), namespace_type=cls)
                    values.set_current_namespace(cls("Linz", 1))
                    entries = slot.get_state(MapStateDescriptor("m", cls, cls))
                    found = values.value(), {tuple(one): each for one, each in entries.items()}
                    assert found == expected.get(key, (None, {}))
                    value = cls("Wien", 10 * number + round_)
                    values.update(value)
                    entries.put(cls("Graz", round_), value)
                    expected[key] = value, {**found[1], ("Graz", round_): value}
                run.tend(0.6)
                checkpoint = run.checkpoint()
                if (number, round_) == (1, 0):  # it goes on behind the base of before
                    described = [log.info.values for log in log_of(parts_of(checkpoint)[0]).logs]
                    assert "elsewhere" in str(described), described


def test_slots_may_know_a_class_by_another_name(job: JobStorage) -> None:
    """One has asked for the state since the class has moved, and the other has not."""
    backend = backend_named("hashmap", "")
    with LoggedRun(job, backend, parallelism=2, key_type=Place) as run:
        for key in range(20):
            (slot,) = [each for each in run.slots if _has(each, Place("Ulm", key))]
            slot.set_current_key(Place("Ulm", key))
            slot.get_state(ValueStateDescriptor("v", Place)).update(Place("Wien", key))
        checkpoint = run.checkpoint()
    with LoggedRun(job, backend, parallelism=2, key_type=None, restored=checkpoint) as run:
        (one,) = [each for each in run.slots if _has(each, Place("Ulm", 1))]
        one.set_current_key(MovedPlace("Ulm", 1))
        one.get_state(ValueStateDescriptor("v", MovedPlace))
        checkpoint = run.complete(run.begin(form=SnapshotForm.CANONICAL))
    assert len({str(part.attributes["keys"]) for part in parts_of(checkpoint)}) == 2
    reader = KeyedReader(UID, parts_of(checkpoint), job)
    (table,) = reader.description.tables
    columns = KeyedColumns(reader, table)
    rows = [row for batch in columns.batches(columns.places) for row in batch.to_pylist()]
    assert sorted(row["value"]["number"] for row in rows) == list(range(20))
    with LoggedRun(job, backend, restored=checkpoint, key_type=MovedPlace) as run:
        state = run.slots[0].get_state(ValueStateDescriptor("v", MovedPlace))
        for key in range(20):
            run.slots[0].set_current_key(MovedPlace("Ulm", key))
            assert state.value() == MovedPlace("Wien", key)


def _has(slot: Any, key: Any) -> bool:
    return key_group(key_codec_for(type(key)).hash(key), GROUPS) in slot.key_groups
