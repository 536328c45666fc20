"""A slot's part of a checkpoint: one file for all, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from holdfast.backends import SnapshotTarget
from holdfast.runtime.protocol.checkpoints import OperatorStatistics
from holdfast.runtime.task.slot_checkpoint import SlotCheckpoint
from holdfast.storage import (
    FileHandle,
    FileSystemCheckpointStorage,
    Handle,
    InlineHandle,
    Invalid,
    JobStorage,
    ManualClock,
    StateSnapshot,
    Unavailable,
)

Snapshots = Sequence[Future[StateSnapshot]]


class Stage:
    """A checkpoint of so many chains, and the snapshots that a test ends by hand."""

    def __init__(self, job: JobStorage, chains: int = 1) -> None:
        self.job = job
        self.clock = ManualClock()
        self.written: list[SlotCheckpoint] = []
        self.checkpoint = SlotCheckpoint(
            5, 0, job, self.clock, chains=chains, on_written=self.written.append
        )
        self.target: SnapshotTarget = self.checkpoint

    def take(self, *uids: str) -> list[Future[StateSnapshot]]:
        """Snapshots of a chain of these operators, not yet written."""
        futures: list[Future[StateSnapshot]] = [Future() for _ in uids]

        def begin(future: Future[StateSnapshot]) -> Snapshots:
            self.clock.advance(10)
            return [future]

        self.checkpoint.take(
            [(uid, partial(begin, each)) for uid, each in zip(uids, futures, strict=True)]
        )
        return futures

    def write(self, future: Future[StateSnapshot], data: bytes) -> None:
        with self.target.segments(5, "mine", compression="lz4") as segments:
            handle = segments.add(data)
        future.set_result(StateSnapshot(kind="test/1", handles={"all": handle}))

    def log(self, data: bytes) -> Handle:
        with self.target.log_segments(5, "mine", compression="lz4") as segments:
            return segments.add(data)

    def files(self) -> list[str]:
        return [info.name for info in self.job.storage.list("job/chk-")]

    def shared_files(self) -> list[str]:
        return [info.name.partition("/")[2] for info in self.job.storage.list("job/shared/")]


@pytest.fixture
def make(tmp_path: Any) -> Callable[..., Stage]:
    storage = FileSystemCheckpointStorage(f"file://{tmp_path}", inline_limit_bytes=10)
    storage.prepare()
    return partial(Stage, storage.job("job"))


def test_all_operators_share_one_file(make: Callable[..., Stage]) -> None:
    stage = make()
    futures = stage.take("a", "b", "c")
    for number, future in enumerate(futures):
        stage.write(future, bytes([number]) * 100)
    part = stage.checkpoint.finish()
    handles = [part.parts[uid][0].handles["all"] for uid in "abc"]
    assert len({handle.file for handle in handles if isinstance(handle, FileHandle)}) == 1
    assert [stage.job.read(handle) for handle in handles] == [bytes([n]) * 100 for n in range(3)]
    assert len(stage.files()) == 1


def test_small_state_needs_no_file(make: Callable[..., Stage]) -> None:
    stage = make()
    (future,) = stage.take("a")
    stage.write(future, b"small")
    handle = stage.checkpoint.finish().parts["a"][0].handles["all"]
    assert isinstance(handle, InlineHandle)
    assert stage.files() == []


def test_the_file_is_complete_with_the_last_snapshot_of_the_last_chain(
    make: Callable[..., Stage],
) -> None:
    stage = make(chains=2)
    (first,) = stage.take("a")
    stage.write(first, b"x")
    told = [len(stage.written)]
    second, third = stage.take("b", "c")
    stage.write(third, b"x")
    told.append(len(stage.written))
    stage.write(second, b"x")
    assert [*told, len(stage.written)] == [0, 0, 1]


def test_a_slot_without_state_is_written_once_all_chains_are_aligned(
    make: Callable[..., Stage],
) -> None:
    stage = make(chains=2)
    stage.checkpoint.take([])
    told = [len(stage.written)]
    stage.checkpoint.take([("a", list)])
    assert [*told, len(stage.written)] == [0, 1]
    assert stage.checkpoint.finish().parts == {}


def test_durations_are_measured(make: Callable[..., Stage]) -> None:
    stage = make(chains=2)
    stage.clock.advance(100)
    (first,) = stage.take("a")
    stage.clock.advance(200)
    (second,) = stage.take("b")
    stage.clock.advance(50)
    stage.write(first, b"x")
    stage.write(second, b"x")
    took = stage.checkpoint.finish().statistics
    assert (took.alignment_ms, took.sync_ms, took.async_ms) == (310, 20, 60)
    assert took.operators == {
        "a": OperatorStatistics(sync_ms=10, async_ms=260),
        "b": OperatorStatistics(sync_ms=10, async_ms=50),
    }


def test_a_snapshot_that_fails_leaves_no_file(make: Callable[..., Stage]) -> None:
    stage = make()
    first, second = stage.take("a", "b")
    stage.write(first, b"x" * 100)
    second.set_exception(Unavailable("disk full"))
    assert len(stage.written) == 1
    with pytest.raises(Unavailable, match="disk full"):
        stage.checkpoint.finish()
    assert stage.files() == []
    assert list(stage.job.storage.unfinished("")) == []


@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_an_aborted_checkpoint_leaves_no_file(make: Callable[..., Stage], when: str) -> None:
    stage = make()
    if when == "before":
        stage.checkpoint.give_up()
    first, second = stage.take("a", "b")
    if not first.cancelled():
        stage.write(first, b"x" * 100)
    if when == "between":
        stage.checkpoint.give_up()
    if not second.cancelled():
        stage.write(second, b"x" * 100)
    if when == "after":
        stage.checkpoint.give_up()
    assert len(stage.written) == 1
    with pytest.raises(CancelledError):
        stage.checkpoint.finish()
    assert stage.files() == []
    assert list(stage.job.storage.unfinished("")) == []


def test_snapshots_of_what_was_given_up_are_not_written(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.checkpoint.give_up()
    assert all(future.cancelled() for future in stage.take("a", "b"))


def test_rows_in_flight_are_begun_at_the_cut_and_waited_for(make: Callable[..., Stage]) -> None:
    """Also where other chains have not cut: until they are written they are held in memory."""
    stage = make(chains=2)
    rows: Future[Sequence[StateSnapshot]] = Future()
    begun: list[bool] = []

    def begin() -> Future[Sequence[StateSnapshot]]:
        begun.append(True)
        return rows

    stage.checkpoint.take([], begin)
    assert begun
    stage.take()
    assert stage.written == []
    part = StateSnapshot(kind="test/1", handles={})
    rows.set_result([part])
    assert stage.written == [stage.checkpoint]
    assert stage.checkpoint.finish().in_flight == [part]


def test_rows_in_flight_of_what_was_given_up_are_not_written(make: Callable[..., Stage]) -> None:
    stage = make()
    rows: Future[Sequence[StateSnapshot]] = Future()
    stage.checkpoint.take([], lambda: rows)
    stage.checkpoint.check_wanted()
    stage.checkpoint.give_up()
    assert rows.cancelled()
    with pytest.raises(CancelledError):
        stage.checkpoint.check_wanted()
    with pytest.raises(CancelledError):
        stage.checkpoint.finish()


def test_a_snapshot_belongs_to_its_checkpoint(make: Callable[..., Stage]) -> None:
    with pytest.raises(Invalid, match="another checkpoint"):
        make().target.segments(6)
    with pytest.raises(Invalid, match="another checkpoint"):
        make().target.shared_segments(6)
    with pytest.raises(Invalid, match="another checkpoint"):
        make().target.log_segments(6)


def test_each_shared_file_is_another_one(make: Callable[..., Stage]) -> None:
    """Also of threads that ask at once; they count without the slot's own file."""
    stage = make()

    def write(number: int) -> Handle:
        with stage.target.shared_segments(5, "mine") as segments:
            return segments.add(bytes([number]) * 100)

    with ThreadPoolExecutor(4) as threads:
        handles = list(threads.map(write, range(8)))
    files = [handle.file for handle in handles if isinstance(handle, FileHandle)]
    assert len(set(files)) == 8
    assert all(name.startswith("shared/00000000000000000005-slot-0-") for name in files)
    assert [stage.job.read(handle) for handle in handles] == [bytes([n]) * 100 for n in range(8)]
    assert stage.files() == []


def test_an_aborted_checkpoint_begins_no_shared_file(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.checkpoint.give_up()
    with pytest.raises(CancelledError):
        stage.target.shared_segments(5)
    with pytest.raises(CancelledError):
        stage.target.log_segments(5)


def test_all_operators_share_one_file_for_their_logs(make: Callable[..., Stage]) -> None:
    """Also those that ask for it at once; it counts when the slot's part is finished."""
    stage = make()
    (future,) = stage.take("a")
    with ThreadPoolExecutor(4) as threads:
        handles = list(threads.map(stage.log, [bytes([number]) * 100 for number in range(8)]))
    assert stage.shared_files() == []
    stage.write(future, b"x" * 100)
    stage.checkpoint.finish()
    (file,) = stage.shared_files()
    assert file.startswith("shared/00000000000000000005-slot-0-")
    assert {handle.file for handle in handles if isinstance(handle, FileHandle)} == {file}
    assert [stage.job.read(handle) for handle in handles] == [bytes([n]) * 100 for n in range(8)]
    assert len(stage.files()) == 1


def test_a_small_log_needs_no_file(make: Callable[..., Stage]) -> None:
    stage = make()
    (future,) = stage.take("a")
    handle = stage.log(b"small")
    stage.write(future, b"x")
    stage.checkpoint.finish()
    assert isinstance(handle, InlineHandle)
    assert stage.shared_files() == []


@pytest.mark.parametrize("why", ["failed", "given up", "slot ends", "cannot be closed"])
def test_a_log_goes_with_the_slot_s_file(
    make: Callable[..., Stage], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make()
    first, second = stage.take("a", "b")
    stage.write(first, b"x" * 100)
    stage.log(b"y" * 100)
    if why == "slot ends":
        stage.checkpoint.abort()
    elif why == "failed":
        second.set_exception(Unavailable("disk full"))
    else:
        stage.write(second, b"x" * 100)
    if why == "given up":
        stage.checkpoint.give_up()
    if why == "cannot be closed":
        fail = Unavailable("disk full")
        monkeypatch.setattr(stage.checkpoint.writer, "close", Mock(side_effect=fail))
    if why != "slot ends":
        with pytest.raises(CancelledError if why == "given up" else Unavailable):
            stage.checkpoint.finish()
    # What was closed before it was known that it is of no use is an orphan.
    assert len(stage.shared_files()) == (why == "cannot be closed")
    assert stage.files() == []
    assert list(stage.job.storage.unfinished("")) == []


def test_an_operator_that_fails_while_it_writes_closes_nothing(make: Callable[..., Stage]) -> None:
    stage = make()
    first, second = stage.take("a", "b")
    with pytest.raises(ValueError, match="mine"), stage.target.segments(5) as segments:
        segments.add(b"y" * 50)
        raise ValueError("mine")
    stage.write(first, b"x" * 100)
    stage.write(second, b"x" * 100)
    parts = stage.checkpoint.finish().parts
    assert stage.job.read(parts["a"][0].handles["all"]) == b"x" * 100
