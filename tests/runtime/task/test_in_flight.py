"""Rows in flight of all slots, restored at any parallelism: each once, in order, where its key is.

The model is a list of rows by channel.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.snapshots.in_flight import in_flight_parts
from holdfast.runtime.api.errors import NotOpened
from holdfast.runtime.planning.job_plan import ChainPlan, EdgeKind, EdgePlan, JobPlan
from holdfast.runtime.protocol.elements import Barrier
from holdfast.runtime.task.channel import Bell, Channel
from holdfast.runtime.task.in_flight import (
    InFlightWriter,
    OvertakenRows,
    read_restored,
)
from holdfast.runtime.task.slot_checkpoint import SlotCheckpoint
from holdfast.runtime.task.spill import Spill, SpillFile
from holdfast.storage import (
    Corrupt,
    FileSystemCheckpointStorage,
    JobStorage,
    ManualClock,
    StateSnapshot,
    load_storage,
)
from holdfast.storage.names import writer_of

SCHEMA = pa.schema([("key", pa.int64()), ("sender", pa.int64()), ("number", pa.int64())])
PLACES = st.tuples(st.integers(1, 5), st.sampled_from([5, 128]))
"""Parallelism, and max parallelism."""
Row = tuple[int, int, int]


def plan(parallelism: int, max_parallelism: int, edges: str = "hpf") -> JobPlan:
    """A chain that reads a hash edge, an edge of a source by key, and one within the slot."""
    every = {
        "h": partial(EdgePlan, edge_id="a/0", kind=EdgeKind.HASH, key_columns=("key",)),
        "p": partial(EdgePlan, edge_id="a/1", kind=EdgeKind.SOURCE, key_columns=("key",)),
        "f": partial(EdgePlan, edge_id="a/2", kind=EdgeKind.FORWARD),
    }
    made = tuple(every[each](origin="o", target="a", schema=SCHEMA) for each in edges)
    chain = ChainPlan(
        chain_id="a", operators=(), inputs=tuple(edge.edge_id for edge in made), links=()
    )
    return JobPlan(
        job_id="job",
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        chains=(chain,),
        edges=made,
    )


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.RecordBatch.from_arrays(
        [pa.array(each, pa.int64()) for each in columns], schema=SCHEMA
    )


def as_rows(found: pa.RecordBatch | SpillFile) -> list[Row]:
    assert isinstance(found, pa.RecordBatch)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def written(
    writer: InFlightWriter,
    number: int,
    overtaken: list[OvertakenRows],
    job: JobStorage,
    completed: int | None = None,
) -> list[StateSnapshot]:
    write = writer.begin(number, completed, overtaken)
    return [] if write is None else [*write(job, lambda: None)]


def fill(
    before: JobPlan, keys: list[int], job: JobStorage
) -> tuple[list[StateSnapshot], dict[str, list[Row]]]:
    """What each slot has written, as its senders would have sent it; and all rows, by edge."""
    sent: dict[str, list[Row]] = {}
    waiting: dict[tuple[str, int, int], list[pa.RecordBatch]] = {}
    for edge in before.edges:
        for sender in range(before.parallelism):
            rows = [(key, sender, number) for number, key in enumerate(keys)]
            sent.setdefault(edge.edge_id, []).extend(rows)
            for first in range(0, len(rows), 3):
                some = batch(rows[first : first + 3])
                if edge.key_columns:
                    split = edge.partitioner(before.parallelism, before.max_parallelism).split(some)
                else:
                    split = [some if to == sender else None for to in range(before.parallelism)]
                for slot, part in enumerate(split):
                    if part is not None:
                        by = sender if edge.kind is EdgeKind.HASH else 0
                        waiting.setdefault((edge.edge_id, by, slot), []).append(part)
    parts: list[StateSnapshot] = []
    for slot in range(before.parallelism):
        overtaken = [
            OvertakenRows(edge, by, batches)
            for (edge, by, its), batches in waiting.items()
            if its == slot
        ]
        parts += written(InFlightWriter(before, slot), 1, overtaken, job)
    return parts, sent


@given(PLACES, PLACES, st.lists(st.integers(0, 30), max_size=20))
def test_each_row_comes_back_once_in_order_where_its_key_is(
    before: tuple[int, int], after: tuple[int, int], keys: list[int]
) -> None:
    job = load_storage("memory://in-flight?max_state_bytes=1000000").job("job")
    parts, sent = fill(plan(*before), keys, job)
    now = plan(*after)
    found: dict[str, list[Row]] = {}
    for slot in range(now.parallelism):
        restored = read_restored(parts, job, now, slot)
        for (edge_id, sender), batches in restored.items():
            edge = now.edge(edge_id)
            assert sender < edge.channels(now.parallelism)
            rows = [row for each in batches for row in as_rows(each)]
            found.setdefault(edge_id, []).extend(rows)
            in_order = {(key, by): -1 for key, by, _ in rows}
            for key, by, number in rows:
                assert number > in_order[key, by], "rows of one key by one sender keep their order"
                in_order[key, by] = number
            if edge.key_columns and rows:
                split = edge.partitioner(*after).split(batch(rows))
                assert [to for to, part in enumerate(split) if part is not None] == [slot]
    assert {edge: Counter(rows) for edge, rows in found.items()} == {
        edge: Counter(rows) for edge, rows in sent.items() if rows
    }


def test_a_restore_of_many_rows_holds_no_more_memory_than_their_channel(tmp_path: Path) -> None:
    """By what Arrow has allocated. A barrier overtakes them again while most are on disk."""
    storage = load_storage(f"file://{tmp_path}/stored")
    storage.prepare()
    job, each_rows, count = storage.job("job"), (1 << 20) // 24, 48
    edges = plan(1, 5, edges="p")

    def some(number: int) -> pa.RecordBatch:
        columns = [pa.repeat(number, each_rows) for _ in SCHEMA]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def values(batches: Iterable[pa.RecordBatch]) -> list[int]:
        return [int(value) for each in batches for value in set(each.column(0).to_pylist())]

    waiting = [some(number) for number in range(count)]
    parts = written(InFlightWriter(edges, 0), 1, [OvertakenRows("a/1", 0, waiting)], job)
    del waiting
    gc.collect()
    spill = Spill([str(tmp_path / "spill")])
    channel = Channel(4 << 20, Bell())
    before = pa.total_allocated_bytes()
    restored = read_restored(parts, job, edges, 0, memory_bytes=channel.capacity_bytes, spill=spill)
    channel.restore(restored["a/1", 0])
    del restored
    most = pa.total_allocated_bytes() - before
    channel.offer(some(count))
    channel.offer(Barrier(2))
    assert not channel.has_room
    found = []
    for number in range(count + 1):
        if number == 10:
            _, overtaken = channel.overtake()
            in_flight = OvertakenRows("a/1", 0, overtaken)
            assert values(in_flight.batches()) == [*range(10, count + 1)]
        assert channel.has_restored == (number < count)
        element = channel.take()
        assert isinstance(element, pa.RecordBatch)
        found += values([element])
        most = max(most, pa.total_allocated_bytes() - before)
        del element
    assert found == [*range(count + 1)]
    assert len(channel) == channel.size_bytes == 0
    assert most <= 10 << 20, f"{most} bytes"
    channel.close()
    spill.close()


def test_nothing_is_written_where_nothing_was_overtaken() -> None:
    job = load_storage("memory://nothing").job("job")
    writer = InFlightWriter(plan(1, 5), 0)
    assert written(writer, 1, [OvertakenRows("a/0", 0, [])], job) == []
    assert writer.begin(2, None, []) is None
    assert [*job.storage.list("job/")] == []


def test_rows_of_an_edge_that_is_gone_are_left_out() -> None:
    job = load_storage("memory://gone").job("job")
    parts, _ = fill(plan(2, 5), [1, 2], job)
    restored = read_restored(parts, job, plan(2, 5, edges="f"), 0)
    assert [*restored] == [("a/2", 0)]


def test_parts_say_by_what_way_their_rows_came() -> None:
    """A restore compares it with the edge as it is then."""
    parts, _ = fill(plan(1, 5), [1], load_storage("memory://ways").job("job"))
    ways = {
        each.about.edge: (each.about.kind, each.about.key_columns)
        for each in in_flight_parts(parts)
    }
    assert ways == {"a/0": ("hash", ("key",)), "a/1": ("source", ("key",)), "a/2": ("forward", ())}


def test_rows_are_restored_under_the_columns_of_today() -> None:
    """More may be null in them than when the rows were written."""
    job = load_storage("memory://nullable").job("job")
    pair = pa.struct([pa.field("left", pa.int64(), nullable=False)])
    strict = pa.schema(
        [pa.field("key", pa.int64(), nullable=False), pa.field("pair", pair, nullable=False)]
    )
    loose = pa.schema([("key", pa.int64()), ("pair", pa.struct([("left", pa.int64())]))])
    before, now = (
        replace(whole, edges=tuple(replace(each, schema=schema) for each in whole.edges))
        for schema in (strict, loose)
        for whole in (plan(1, 5, edges="p"),)
    )
    rows = pa.RecordBatch.from_pylist([{"key": 1, "pair": {"left": 2}}], schema=strict)
    parts = written(InFlightWriter(before, 0), 1, [OvertakenRows("a/1", 0, [rows])], job)
    ((found,),) = read_restored(parts, job, now, 0).values()
    assert isinstance(found, pa.RecordBatch)
    assert found.schema == loose
    assert found.to_pylist() == rows.to_pylist()


def test_damage_names_the_operator_before_which_the_rows_waited() -> None:
    job = load_storage("memory://damaged").job("job")
    parts, _ = fill(plan(1, 5), [1], job)
    (whole, *_) = parts
    lying = {**whole.attributes, "rows": {"0": 99}}
    crafted = StateSnapshot(kind=whole.kind, handles=whole.handles, attributes=lying, slot=0)
    with pytest.raises(NotOpened, match="'a'") as caught:
        read_restored([crafted], job, plan(1, 5), 0)
    assert isinstance(caught.value.__cause__, Corrupt)


STEPS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans(), st.booleans()), max_size=12
)
"""Between two checkpoints: rows that come, and that are processed; whether the checkpoint is
completed, and whether the slot hears of it before the next one."""


@given(STEPS, st.integers(0, 2))
def test_rows_that_wait_long_are_stored_once(
    steps: list[tuple[int, int, bool, bool]], skipped: int
) -> None:
    """Each checkpoint has what waits, in its own files and those of the one that it builds on."""
    storage = FileSystemCheckpointStorage("memory://", inline_limit_bytes=0)
    storage.prepare()
    job = storage.job("job")
    edges = plan(1, 5, edges="p")
    writer = InFlightWriter(edges, 0)
    came = taken = 0
    completed: int | None = None
    files_of: dict[int | None, frozenset[str]] = {None: frozenset()}
    came_by: dict[int | None, int] = {None: 0}
    for number, (more, less, is_complete, is_heard) in enumerate(steps, 1):
        came += more
        taken += min(less, came - taken)
        left = [(0, 0, row) for row in range(taken, came)]
        # As if the channel had been read on after the barrier has overtaken: at least once.
        before = min(skipped, taken)
        rows = [(0, 0, row) for row in range(taken - before, came)]
        overtaken = OvertakenRows("a/1", 0, [batch(rows[:2]), batch(rows[2:])], before, taken)
        parts = written(writer, number, [overtaken], job, completed)
        restored = read_restored(parts, job, edges, 0)
        found = [row for each in restored.get(("a/1", 0), ()) for row in as_rows(each)]
        assert found == left
        files = frozenset(file for part in parts for file in part.files())
        own = {file for file in files if writer_of(file) == number}
        assert files - own <= files_of[completed], "what it builds on, and nothing else"
        if came == came_by[completed]:
            assert not own, "nothing new came, so nothing is written"
        if is_complete and is_heard:
            completed = number
            files_of[number], came_by[number] = files, came


class _Counted:
    """Rows that wait elsewhere; says each batch that is read."""

    def __init__(self, on_read: Callable[[int], None]) -> None:
        self._on_read = on_read

    def batches(self) -> Iterator[pa.RecordBatch]:
        for number in range(9):
            self._on_read(number)
            yield batch([(number, 0, number)])


@pytest.mark.parametrize("skipped", [0, 8])
def test_rows_of_a_checkpoint_that_is_given_up_are_not_written_to_their_end(
    tmp_path: Path, skipped: int
) -> None:
    """They may be gigabytes, and the answers to later checkpoints wait for the same thread."""
    storage = FileSystemCheckpointStorage(f"file://{tmp_path}", inline_limit_bytes=0)
    storage.prepare()
    job, read = storage.job("job"), list[int]()
    checkpoint = SlotCheckpoint(1, 0, job, ManualClock(), chains=1, on_written=lambda _: None)

    def on_read(number: int) -> None:
        read.append(number)
        if number == 3:
            checkpoint.give_up()

    overtaken = OvertakenRows("a/1", 0, [_Counted(on_read)], skipped)
    write = InFlightWriter(plan(1, 5), 0).begin(1, None, [overtaken])
    assert write is not None
    with ThreadPoolExecutor(1) as thread:
        checkpoint.take([], partial(thread.submit, write, checkpoint, checkpoint.check_wanted))
    with pytest.raises(CancelledError):
        checkpoint.finish()
    assert read == [0, 1, 2, 3]
    assert [*storage.list("job/")] == []
