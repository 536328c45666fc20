"""Tables of any snapshot, read without the job that it is of, by the range of key groups."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.backends import (
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateBackend,
    SnapshotForm,
    StateBackend,
    key_groups_of_slots,
    load_backend,
)
from holdfast.savepoints.reading.readers import KeyedReader, OperatorReader
from holdfast.storage import Invalid, JobStorage, ManualClock, StateSnapshot, load_storage
from support.states.fleets import STATES, WAIT_S, Fleet, fill

START_MS = 1_700_000_000_000
UID = "op/1"
TIMERS = ("_timers/timers/event", "_timers/timers/processing")


@pytest.fixture
def job(quick_path: Any) -> JobStorage:
    return load_storage(str(quick_path / "job")).job("job")


@pytest.fixture
def filled(backend: StateBackend, job: JobStorage) -> Iterator[Fleet]:
    """Three slots with state of every kind, some of it from before a first checkpoint."""
    with ExitStack() as stack:
        slots = [
            stack.enter_context(
                backend.open(
                    uid=UID,
                    key_groups=key_groups,
                    max_parallelism=128,
                    key_type=str,
                    storage=job,
                    clock=ManualClock(START_MS),
                )
            )
            for key_groups in key_groups_of_slots(3, 128)
        ]
        fleet = Fleet(slots)
        fill(fleet, 1)
        fleet.snapshots(1, job, SnapshotForm.OWN)
        for slot in slots:
            slot.notify_checkpoint_complete(1)
        fill(fleet, 7)
        yield fleet


def plain_rows(job: JobStorage, parts: list[StateSnapshot], name: str) -> Counter[str]:
    """The rows of a table of canonical parts, read by pyarrow."""
    handles = [
        handle
        for part in parts
        for each, handle in part.handles.items()
        if each.rpartition("/")[0] == name
    ]
    tables = [pq.read_table(job.open(handle)) for handle in handles]
    return rows_of([batch for table in tables for batch in table.to_batches()])


def rows_of(batches: list[pa.RecordBatch]) -> Counter[str]:
    return Counter(str(sorted(row.items())) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("form", [SnapshotForm.OWN, SnapshotForm.NATIVE, SnapshotForm.CANONICAL])
def test_all_rows_are_read_by_any_ranges(
    filled: Fleet, form: SnapshotForm, job: JobStorage
) -> None:
    parts = filled.snapshots(2, job, form)
    canonical = filled.snapshots(3, job, SnapshotForm.CANONICAL)
    reader = KeyedReader(UID, parts, job)
    assert reader.description.max_parallelism == 128
    assert [table.name for table in reader.description.tables] == sorted((*STATES, *TIMERS))
    ranges = [KeyGroupRange(0, 20), KeyGroupRange(21, 99), KeyGroupRange(100, 127)]
    for table in reader.description.tables:
        expected = plain_rows(job, canonical, table.name)
        assert expected
        assert table.rows in (None, expected.total())
        with reader.open() as tables:
            batches = list(tables.batches(table))
        groups = [group for batch in batches for group in batch.column("key_group").to_pylist()]
        assert groups == sorted(groups)
        assert rows_of(batches) == expected
        for batch in batches:
            assert batch.schema.equals(reader.form(table).schema, check_metadata=True)
        found: Counter[str] = Counter()
        for wanted in ranges:
            with reader.open(wanted) as tables:
                some = rows_of(list(tables.batches(table)))
            assert not some & found
            found += some
        assert found == expected


@pytest.mark.parametrize("form", [SnapshotForm.OWN, SnapshotForm.CANONICAL])
def test_missing_and_repeated_key_groups_are_errors(form: SnapshotForm, job: JobStorage) -> None:
    parts: dict[tuple[int, int], StateSnapshot] = {}
    for first, last in ((0, 63), (64, 127), (60, 127)):
        with load_backend("hashmap").open(
            uid=UID, key_groups=KeyGroupRange(first, last), max_parallelism=128, key_type=str
        ) as slot:
            fill(Fleet([slot]))
            parts[first, last] = slot.snapshot(1, job, form=form).result(WAIT_S)
    low, high, more = parts.values()
    KeyedReader(UID, [high, low], job).check_covers()
    with pytest.raises(Invalid, match="none that has key group 64"):
        KeyedReader(UID, [low], job).check_covers()
    with pytest.raises(Invalid, match="none that has key group 0"):
        KeyedReader(UID, [high], job).check_covers()
    with pytest.raises(Invalid, match="the same key groups"):
        KeyedReader(UID, [low, more], job).check_covers()


def test_rows_of_a_plain_snapshot_are_known_without_reading(job: JobStorage) -> None:
    with load_backend("hashmap").open(
        uid=UID, key_groups=KeyGroupRange(0, 127), max_parallelism=128, key_type=str
    ) as slot:
        fill(Fleet([slot]))
        part = slot.snapshot(1, job).result(WAIT_S)
    for table in KeyedReader(UID, [part], job).description.tables:
        assert table.rows
        assert table.size_bytes


@pytest.mark.parametrize("form", [SnapshotForm.OWN, SnapshotForm.CANONICAL])
def test_state_without_keys_is_read_by_slot(form: SnapshotForm, job: JobStorage) -> None:
    parts = []
    for slot in range(2):
        with OperatorStateBackend.open(uid=UID, slot=slot, parallelism=2) as state:
            state.get_list_state(ListStateDescriptor("numbers", int)).update([slot, 10 + slot])
            state.get_broadcast_state(MapStateDescriptor("rules", str, int)).put("a", 1)
            parts.append(state.snapshot(1, job, form=form).result(WAIT_S))
    reader = OperatorReader(UID, parts, job)
    assert [(table.name, table.rows) for table in reader.tables()] == [("numbers", 4), ("rules", 2)]
    numbers, rules = reader.tables()
    assert reader.slots == (0, 1)
    found = [
        row
        for slot in (0, 1)
        for batch in reader.batches(numbers, slot)
        for row in batch.to_pylist()
    ]
    assert found == [
        {"slot": slot, "position": place, "value": 10 * place + slot}
        for slot in (0, 1)
        for place in (0, 1)
    ]
    (batch,) = reader.batches(rules, 1)
    assert batch.to_pylist() == [{"slot": 1, "map_key": "a", "value": 1}]


def test_an_operator_without_keyed_state_is_refused(job: JobStorage) -> None:
    with pytest.raises(Invalid, match="'op/1' has no keyed state"):
        KeyedReader(UID, [], job)


def test_an_iterator_that_is_not_exhausted_leaves_no_store_open(
    filled: Fleet, job: JobStorage
) -> None:
    parts = filled.snapshots(2, job, SnapshotForm.NATIVE)
    reader = KeyedReader(UID, parts, job)
    begun = []
    with reader.open() as tables:
        for table in reader.description.tables:
            blocks = tables.blocks(table)
            assert next(blocks).count
            begun.append(blocks)
    assert all(next(blocks, None) is None for blocks in begun)
