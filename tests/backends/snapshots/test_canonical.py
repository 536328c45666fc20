"""Canonical snapshots: of any backend, into any backend, at any (max) parallelism."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from holdfast.backends import (
    KeyedStateBackend,
    ListStateDescriptor,
    SnapshotForm,
    StateBackend,
    ValueStateDescriptor,
    key_groups_of_slots,
    load_backend,
)
from holdfast.backends.snapshots.neutral import ENTRIES_KIND, PARQUET_KIND
from holdfast.storage import (
    Clock,
    Invalid,
    JobStorage,
    ManualClock,
    StateSnapshot,
    load_storage,
)
from support.states.fleets import KEYS, STATES, WAIT_S, Fleet, Opener, change, fill
from support.states.snapshot_targets import files_of
from support.states.tried_backends import PLAIN, backend_named

CANONICAL = SnapshotForm.CANONICAL
START_MS = 1_700_000_000_000


@pytest.fixture
def job(quick_path: Path) -> JobStorage:
    return load_storage(str(quick_path / "job")).job("job")


@pytest.fixture
def fleet(job: JobStorage) -> Any:
    """Opens the slots of an operator, and closes them at the end."""
    with ExitStack() as stack:

        def opened(
            backend: StateBackend,
            *restore: StateSnapshot,
            slots: int = 1,
            max_parallelism: int = 128,
            clock: Clock | None = None,
        ) -> Fleet:
            return Fleet(
                [
                    stack.enter_context(
                        backend.open(
                            uid="op/1",
                            key_groups=key_groups,
                            max_parallelism=max_parallelism,
                            key_type=str,
                            restore=restore,
                            storage=job,
                            clock=clock or ManualClock(START_MS),
                        )
                    )
                    for key_groups in key_groups_of_slots(slots, max_parallelism)
                ]
            )

        yield opened


@pytest.mark.dealt("backend_name", "reader")
@pytest.mark.parametrize("reader", PLAIN)
def test_any_backend_restores_what_any_backend_wrote(
    backend: StateBackend, reader: str, job: JobStorage, fleet: Opener, quick_path: Path
) -> None:
    before = fleet(backend, slots=3)
    fill(before)
    parts = before.snapshots(1, job, CANONICAL)
    assert {part.kind for part in parts} == {PARQUET_KIND}
    expected = before.content()
    assert len(expected) > 30
    other = backend_named(reader, quick_path / "other")
    for slots, max_parallelism in ((2, 128), (1, 128), (2, 31), (3, 1000)):
        after = fleet(other, *parts, slots=slots, max_parallelism=max_parallelism)
        assert after.content() == expected


def test_undeclared_state_is_carried_into_later_snapshots(
    backend: StateBackend, job: JobStorage, fleet: Opener
) -> None:
    before = fleet(backend, slots=2)
    fill(before)
    parts = before.snapshots(1, job, CANONICAL)
    expected = before.content()
    for max_parallelism, form in ((128, CANONICAL), (100, SnapshotForm.OWN), (77, CANONICAL)):
        between = fleet(backend, *parts, slots=3, max_parallelism=max_parallelism)
        parts = between.snapshots(2, job, form)
        again = fleet(backend, *parts, slots=2, max_parallelism=max_parallelism)
        assert again.content() == expected
        parts = fleet(backend, *parts, max_parallelism=max_parallelism).snapshots(3, job, CANONICAL)
    assert fleet(backend, *parts, max_parallelism=5).content() == expected


@pytest.mark.parametrize("max_parallelism", [7, 64, 1000])
@pytest.mark.parametrize("form", [SnapshotForm.OWN, CANONICAL])
def test_lists_longer_than_what_is_read_at_once_are_carried_in_their_order(
    backend: StateBackend,
    form: SnapshotForm,
    max_parallelism: int,
    job: JobStorage,
    fleet: Opener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.backends.snapshots.parquet._BATCH_ROWS", 16)
    descriptor = ListStateDescriptor("list", int)
    expected = {key: list(range(number)) for number, key in enumerate(KEYS, start=1)}
    (before,) = fleet(backend).slots
    for key, elements in expected.items():
        before.set_current_key(key)
        before.get_state(descriptor).update(elements)
    part = before.snapshot(1, job, form=CANONICAL).result(WAIT_S)
    (carrying,) = fleet(backend, part, max_parallelism=max_parallelism).slots
    carried = carrying.snapshot(2, job, form=form).result(WAIT_S)
    for slot in (carrying, *fleet(backend, carried, max_parallelism=max_parallelism).slots):
        found = {}
        for key in KEYS:
            slot.set_current_key(key)
            found[key] = slot.get_state(descriptor).get()
        assert found == expected


def test_a_canonical_snapshot_is_of_the_moment_and_refers_to_nothing(
    backend: StateBackend, job: JobStorage, fleet: Opener
) -> None:
    (slot,) = (state := fleet(backend)).slots
    change(slot, KEYS, 1)
    first = slot.snapshot(1, job).result(WAIT_S)
    slot.notify_checkpoint_complete(1)
    future = slot.snapshot(2, job, form=CANONICAL)
    change(slot, KEYS, 2)
    canonical = future.result(WAIT_S)
    third = slot.snapshot(3, job).result(WAIT_S)
    now = state.content()
    assert not files_of(canonical) & files_of(first)
    assert all(name.startswith("chk-00000000000000000002/") for name in files_of(canonical))
    then = fleet(backend, first).content()
    assert fleet(backend, canonical).content() == then
    assert fleet(backend, third).content() == now != then


def test_expired_entries_are_left_out(
    backend: StateBackend, job: JobStorage, fleet: Opener
) -> None:
    clock = ManualClock(START_MS)
    (slot,) = fleet(backend, clock=clock).slots
    dies = slot.get_state(STATES["dies"])
    for key, passes_ms in (("old", 6_000), ("new", 6_000)):
        slot.set_current_key(key)
        dies.update(key)
        clock.advance(passes_ms)
    part = slot.snapshot(1, job, form=CANONICAL).result(WAIT_S)
    table = table_of(job, part, "dies")
    assert table.select(["key", "value", "last_used_ms"]).to_pylist() == [
        {"key": "new", "value": "new", "last_used_ms": START_MS + 6_000}
    ]
    (restored,) = fleet(backend, part, clock=clock).slots
    again = restored.get_state(STATES["dies"])
    restored.set_current_key("new")
    assert again.value() == "new"
    clock.advance(4_000)
    assert again.value() is None


def table_of(job: JobStorage, part: StateSnapshot, name: str) -> pa.Table:
    """The rows of a table, read from its files without Holdfast's help."""
    handles = [handle for each, handle in part.handles.items() if each.rpartition("/")[0] == name]
    return pa.concat_tables([pq.read_table(job.open(handle)) for handle in handles])


def test_files_are_named_by_operator_and_state(job: JobStorage, fleet: Opener) -> None:
    before = fleet(load_backend("hashmap"), slots=2)
    fill(before)
    found = {
        name.split("/", 2)[2]
        for part in before.snapshots(1, job, CANONICAL)
        for name in files_of(part)
    }
    expected = {
        f"op~2F1/{state}/part-{first}-00000.parquet"
        for first in ("00000", "00064")
        for state in (
            *(name.replace(" ", "~20") for name in STATES),
            "~timers/timers/event",
            "~timers/timers/processing",
        )
    }
    assert found == expected


def test_a_list_has_a_row_for_each_element_that_says_its_place(
    backend: StateBackend, job: JobStorage, fleet: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.backends.blocks.block._MOST_BLOCK_ROWS", 3)
    monkeypatch.setattr("holdfast.backends.blocks.block.BlockRows.__init__.__defaults__", (3,))
    (slot,) = fleet(backend).slots
    state = slot.get_state(ListStateDescriptor("list", int))
    for key, count in (("a", 10), ("b", 1), ("c", 4)):
        slot.set_current_key(key)
        state.update(list(range(count)))
    table = table_of(job, slot.snapshot(1, job, form=CANONICAL).result(WAIT_S), "list")
    rows = table.select(["key", "position", "value"]).to_pylist()
    assert all(row["position"] == row["value"] for row in rows)
    assert sorted(row["key"] for row in rows) == ["a"] * 10 + ["b"] + ["c"] * 4


def test_files_and_row_groups_are_of_a_bounded_size_and_few_are_read(
    backend: StateBackend, job: JobStorage, fleet: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.backends.snapshots.parquet._PART_BYTES", 20_000)
    monkeypatch.setattr("holdfast.backends.snapshots.parquet._ROW_GROUP_ROWS", 1_000)
    (slot,) = fleet(backend).slots
    noise = np.random.default_rng(1).integers(0, 2**60, 100_000)
    descriptor = ValueStateDescriptor("value", int)
    keys = [str(number) for number in range(len(noise))]
    slot.get_state(descriptor).put_many(keys, noise)
    part = slot.snapshot(1, job, form=CANONICAL).result(WAIT_S)
    files = [pq.ParquetFile(job.open(handle)) for handle in part.handles.values()]
    assert len(files) > 5
    for file in files:
        sizes = [
            file.metadata.row_group(number).num_rows
            for number in range(file.metadata.num_row_groups)
        ]
        assert max(sizes) < 10_000
        groups = file.read(["key_group"]).column(0).to_numpy()
        assert (np.diff(groups) >= 0).all()
    read: list[str] = []
    monkeypatch.setattr(
        "holdfast.backends.snapshots.restores.read_part",
        noting(read, "holdfast.backends.snapshots.restores.read_part"),
    )
    first, *_ = fleet(load_backend("hashmap"), part, slots=16).slots
    state = first.get_state(descriptor)
    found = {key: value for key in first.keys("value") for value in [under(first, state, key)]}
    assert found == {key: int(noise[int(key)]) for key in found}
    assert 0 < len(read) < len(files) / 2


def under(slot: KeyedStateBackend, state: Any, key: str) -> Any:
    slot.set_current_key(key)
    return state.value()


def noting(calls: list[str], name: str) -> Any:
    module, _, function = name.rpartition(".")
    original = getattr(__import__(module, fromlist=[function]), function)

    def call(storage: Any, handle: Any, *rest: Any, **named: Any) -> Any:
        calls.append(handle.file)
        return original(storage, handle, *rest, **named)

    return call


@dataclass
class Spent:
    total: int


@dataclass
class SpentMore:
    total: float
    note: str = "none"


def test_a_class_may_have_changed_since(
    backend: StateBackend, job: JobStorage, fleet: Opener
) -> None:
    (slot,) = fleet(backend).slots
    slot.set_current_key("a")
    slot.get_state(ValueStateDescriptor("spent", Spent)).update(Spent(3))
    slot.get_state(ListStateDescriptor("all", Spent)).update([Spent(1), Spent(2)])
    part = slot.snapshot(1, job, form=CANONICAL).result(WAIT_S)
    for max_parallelism in (128, 7):
        (after,) = fleet(backend, part, max_parallelism=max_parallelism).slots
        after.set_current_key("a")
        spent = after.get_state(ValueStateDescriptor("spent", SpentMore))
        assert spent.value() == SpentMore(3.0)
        every = after.get_state(ListStateDescriptor("all", SpentMore))
        assert every.get() == [SpentMore(1.0), SpentMore(2.0)]


@dataclass
class Noted:
    total: int
    note: str | None = "none"


def test_values_from_before_a_class_changed_are_written_as_it_is_now(
    backend: StateBackend, job: JobStorage, fleet: Opener
) -> None:
    (slot,) = fleet(backend).slots
    state = slot.get_state(ValueStateDescriptor("spent", Spent))
    for key in KEYS:
        slot.set_current_key(key)
        state.update(Spent(1))
    part = slot.snapshot(1, job).result(WAIT_S)
    (slot,) = fleet(backend, part).slots
    state = slot.get_state(ValueStateDescriptor("spent", Noted))
    slot.set_current_key("a")
    state.update(Noted(2, None))
    canonical = slot.snapshot(2, job, form=CANONICAL).result(WAIT_S)
    values = table_of(job, canonical, "spent").column("value").to_pylist()
    assert sorted(map(str, values)) == sorted(
        ["{'total': 2, 'note': None}"] + ["{'total': 1, 'note': 'none'}"] * len(KEYS)
    )
    (after,) = fleet(backend, canonical).slots
    again = after.get_state(ValueStateDescriptor("spent", Noted))
    assert [under(after, again, key) for key in ("a", KEYS[0])] == [Noted(2, None), Noted(1)]
    (carried,) = fleet(backend, part).slots  # not declared: it stays as it was written
    kept = carried.snapshot(3, job, form=CANONICAL).result(WAIT_S)
    assert table_of(job, kept, "spent").column("value").to_pylist() == [{"total": 1}] * len(KEYS)


def test_pickles_need_to_be_allowed(job: JobStorage) -> None:
    backend = load_backend("hashmap")
    pickled = ValueStateDescriptor("pickled", object, pickle=True)
    with opened(backend, job, allow_pickle=True) as state:
        state.set_current_key(1)
        state.get_state(pickled).update({1, 2})
        part = state.snapshot(1, job, form=CANONICAL).result(WAIT_S)
    file = pq.ParquetFile(job.open(part.handles["pickled/0"]))
    assert file.schema_arrow.field("value").metadata == {b"holdfast.encoding": b"pickle"}
    with (
        opened(backend, job, part) as state,
        pytest.raises(Invalid, match=r"'pickled' is .*pickle"),
    ):
        state.get_state(pickled)
    with opened(backend, job, part, allow_pickle=True) as state:
        state.set_current_key(1)
        assert state.get_state(pickled).value() == {1, 2}


def opened(
    backend: StateBackend, job: JobStorage, *restore: StateSnapshot, **options: Any
) -> KeyedStateBackend:
    slots, max_parallelism = options.pop("slots", 1), options.pop("max_parallelism", 128)
    return backend.open(
        uid=options.pop("uid", "op"),
        key_groups=key_groups_of_slots(slots, max_parallelism)[0],
        max_parallelism=max_parallelism,
        restore=restore,
        storage=job,
        **options,
    )


def test_a_state_without_entries_has_no_file(backend: StateBackend, job: JobStorage) -> None:
    with opened(backend, job) as state:
        state.get_state(STATES["value"])
        part = state.snapshot(1, job, form=CANONICAL).result(WAIT_S)
    assert not part.handles
    with opened(backend, job, part, max_parallelism=7) as state:
        assert list(state.keys(state.get_state(STATES["value"]) and "value")) == []


def test_another_max_parallelism_needs_all_parts_and_the_canonical_form(job: JobStorage) -> None:
    backend = load_backend("hashmap")
    with opened(backend, job, key_type=int) as state:
        state.set_current_key(1)
        state.get_state(STATES["value"]).update(1)
        neutral = state.snapshot(1, job, form=SnapshotForm.NEUTRAL).result(WAIT_S)
        canonical = state.snapshot(2, job, form=CANONICAL).result(WAIT_S)
    assert neutral.kind == ENTRIES_KIND
    with pytest.raises(Invalid, match=r"max parallelism.*canonical savepoint"):
        opened(backend, job, neutral, max_parallelism=64)
    half = structs.replace(canonical, key_groups=(0, 63))
    with pytest.raises(Invalid, match=r"do not have all key groups.*0 to 127.*64"):
        opened(backend, job, half, max_parallelism=64, slots=2)
    attributes = dict(canonical.attributes, max_parallelism=256)
    other = structs.replace(canonical, attributes=attributes, key_groups=(128, 255))
    with pytest.raises(Invalid, match="differ in max parallelism"):
        opened(backend, job, canonical, other)
