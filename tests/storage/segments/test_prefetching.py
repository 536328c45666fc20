"""Ranges are read before their turn: in order, bounded, and with errors where they belong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

from holdfast.storage import (
    Capabilities,
    Corrupt,
    FileHandle,
    FileSystemCheckpointStorage,
    Handle,
    InlineHandle,
    JobStorage,
)
from holdfast.storage.segments.handles import CHECKED_BLOCK_BYTES, LZ4
from holdfast.storage.segments.prefetching import Task, in_turn

WAIT_S = 30


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "read-ahead" in thread.name]


class Gauge:
    """Counts calls that are under way at once, and lets them end when it is told to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.begun: list[int] = []
        self.now = self.most = 0
        self.may_end = threading.Event()

    def call(self, number: int) -> int:
        with self.lock:
            self.begun.append(number)
            self.now += 1
            self.most = max(self.most, self.now)
        assert self.may_end.wait(WAIT_S)
        with self.lock:
            self.now -= 1
        return number

    def tasks(self, count: int, size_bytes: int = 1) -> Iterator[Task[int]]:
        for number in range(count):
            yield Task(partial(self.call, number), size_bytes)

    def await_begun(self, count: int) -> None:
        for _ in range(WAIT_S * 100):
            with self.lock:
                if len(self.begun) >= count:
                    return
            threading.Event().wait(0.01)
        raise AssertionError(f"{count} calls were to begin, {self.begun} did")


def test_answers_are_in_order_whichever_call_ends_first() -> None:
    ends = [threading.Event() for _ in range(4)]

    def call(number: int) -> int:
        if number < 3:
            assert ends[number + 1].wait(WAIT_S)  # later ones end first
        ends[number].set()
        return number

    tasks = [Task(partial(call, number), 1) for number in range(4)]
    assert [*in_turn(tasks, at_once=4, limit_bytes=100)] == [0, 1, 2, 3]
    assert threads() == []


@pytest.mark.parametrize(
    ("at_once", "limit_bytes", "expected"), [(3, 100, 3), (8, 40, 4), (8, 5, 1), (8, 19, 1)]
)
def test_calls_at_once_are_bounded_by_number_and_by_bytes(
    at_once: int, limit_bytes: int, expected: int
) -> None:
    gauge = Gauge()
    found: list[int] = []

    def read() -> None:
        found.extend(
            in_turn(gauge.tasks(20, size_bytes=10), at_once=at_once, limit_bytes=limit_bytes)
        )

    reader = threading.Thread(target=read)
    reader.start()
    gauge.await_begun(expected)
    assert len(gauge.begun) == expected
    gauge.may_end.set()
    reader.join(WAIT_S)
    assert found == [*range(20)]
    assert gauge.most == expected


def test_untaken_answers_bound_the_calls_begun() -> None:
    gauge = Gauge()
    gauge.may_end.set()
    answers = in_turn(gauge.tasks(20), at_once=3, limit_bytes=100)
    assert next(answers) == 0
    threading.Event().wait(0.05)
    assert max(gauge.begun) <= 5  # as many as may be under way at once, and as many again
    assert next(answers) == 1
    answers.close()
    assert threads() == []


def test_an_error_comes_in_its_turn() -> None:
    later = threading.Event()

    def call(number: int) -> int:
        if number == 2:
            raise OSError("two")
        if number == 3:
            later.set()
        if number == 0:
            assert later.wait(WAIT_S)  # the error is there long before it is due
        return number

    answers = in_turn(
        [Task(partial(call, number), 1) for number in range(6)], at_once=4, limit_bytes=9
    )
    assert [next(answers), next(answers)] == [0, 1]
    with pytest.raises(OSError, match="two"):
        next(answers)
    assert [*answers] == []
    assert threads() == []


def test_closing_early_waits_for_what_is_under_way_and_begins_no_more() -> None:
    gauge = Gauge()
    answers = in_turn([Task(lambda: -1, 1), *gauge.tasks(10)], at_once=3, limit_bytes=100)
    assert next(answers) == -1
    gauge.await_begun(3)
    closer = threading.Thread(target=answers.close)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive()
    gauge.may_end.set()
    closer.join(WAIT_S)
    assert sorted(gauge.begun) == [0, 1, 2]
    assert threads() == []


@pytest.mark.parametrize(("count", "at_once"), [(0, 4), (1, 4), (5, 1)])
def test_no_thread_is_begun_without_need(count: int, at_once: int) -> None:
    caller = threading.current_thread()
    tasks = [Task(threading.current_thread, 1)] * count
    assert [*in_turn(tasks, at_once=at_once, limit_bytes=9)] == [caller] * count


def test_tasks_without_data_run_in_the_caller_s_thread() -> None:
    tasks = [Task(threading.current_thread, size) for size in (1, 0, 1)]
    found = [*in_turn(tasks, at_once=4, limit_bytes=9)]
    assert [thread is threading.current_thread() for thread in found] == [False, True, False]


class Far(FileSystemCheckpointStorage):
    """A directory that says that ranges are best read side by side, and counts them.

    No read ends before `together` of them were under way at once.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.lock = threading.Lock()
        self.now = self.most = self.reads = 0
        self.together = 0
        self.met = threading.Event()

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, ranges_at_once=3)

    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        with self.lock:
            self.reads += 1
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now >= self.together:
                self.met.set()
        try:
            assert self.met.wait(WAIT_S), f"{self.together} reads were to be under way at once"
            return super().read_range(name, offset, length)
        finally:
            with self.lock:
                self.now -= 1


@pytest.fixture
def far(tmp_path: Path) -> Far:
    return Far(tmp_path)


@pytest.fixture
def job(far: Far) -> JobStorage:
    return far.job("job")


def block(number: int) -> bytes:
    return bytes([number]) * CHECKED_BLOCK_BYTES


@pytest.mark.parametrize("compression", ["", LZ4])
def test_a_long_segment_streams_with_blocks_side_by_side(
    far: Far, job: JobStorage, compression: str
) -> None:
    data = b"".join(block(number) for number in range(6)) + b"tail"
    with job.segments(1, compression=compression) as writer:
        handle = writer.add(data)
    if not compression:
        far.together = 3
    assert b"".join(job.stream(handle)) == data
    assert far.most == (1 if compression else 3)  # packed it is one block
    assert threads() == []


def test_damage_is_told_at_its_block(far: Far, job: JobStorage) -> None:
    with job.segments(1) as writer:
        handle = writer.add(b"".join(block(number) for number in range(6)))
    [name] = [info.name for info in far.list("")]
    data = bytearray(far.read(name))
    data[3 * CHECKED_BLOCK_BYTES + 5] ^= 1
    far.write(name, data)
    stream = job.stream(handle)
    for number in range(3):
        assert next(stream) == block(number)
    with pytest.raises(Corrupt, match=name.rpartition("/")[2]):
        next(stream)
    assert threads() == []


def test_a_stream_that_is_left_early_ends_its_threads(far: Far, job: JobStorage) -> None:
    with job.segments(1) as writer:
        handle = writer.add(b"".join(block(number) for number in range(20)))
    for piece in job.stream(handle):
        assert piece == block(0)
        break
    assert threads() == []
    assert far.reads <= 6  # as many as may be under way at once, and as many again


def test_segments_are_read_ahead_in_runs_of_neighbours(far: Far, job: JobStorage) -> None:
    contents = [bytes([number]) * 1_500_000 for number in range(12)]
    handles: list[Handle] = []
    with job.segments(1) as writer:
        handles += [writer.add(content) for content in contents]
    with job.segments(2) as writer:
        handles.insert(3, writer.add(b"inline"))
    contents.insert(3, b"inline")
    far.together = 2
    assert [*job.read_all(handles)] == contents
    assert far.reads == 7  # two of these fit into a block, and the inline one parts a run
    assert threads() == []


def test_a_harmed_segment_in_a_run_is_told_in_its_turn(far: Far, job: JobStorage) -> None:
    with job.segments(1) as writer:
        handles = [writer.add(bytes([number]) * 100_000) for number in range(4)]
        writer.add(b"x" * 5_000_000)
    [name] = [info.name for info in far.list("")]
    data = bytearray(far.read(name))
    data[250_000] ^= 1
    far.write(name, data)
    found = job.read_all(handles)
    assert [next(found), next(found)] == [bytes([0]) * 100_000, bytes([1]) * 100_000]
    with pytest.raises(Corrupt):
        next(found)


@pytest.mark.parametrize("compression", ["", LZ4])
def test_segments_follow_one_another_without_a_gap(
    far: Far, job: JobStorage, compression: str
) -> None:
    """The next ones are under way while the first is read, and each comes as it is."""
    contents = [block(1), b"", b"small", block(2) + block(3) + b"tail", b"", block(4)]
    with job.segments(1, compression=compression) as writer:
        handles: list[Handle] = [writer.add(data) for data in contents]
    handles[2] = InlineHandle(b"small")
    far.together = 3
    assert [b"".join(pieces) for pieces in job.stream_all(handles)] == contents
    assert far.most == 3
    assert threads() == []


def test_the_rest_of_an_abandoned_segment_is_skipped(job: JobStorage) -> None:
    with job.segments(1) as writer:
        handles = [writer.add(block(number) + block(number + 1)) for number in (1, 3, 5)]
    every = job.stream_all(handles)
    assert next(next(every)) == block(1)
    assert b"".join(next(every)) == block(3) + block(4)
    every.close()  # type: ignore[attr-defined]
    assert threads() == []


def test_a_harmed_segment_is_told_in_its_turn(job: JobStorage) -> None:
    with job.segments(1) as writer:
        handles = [writer.add(block(number)) for number in range(3)]
    assert isinstance(handles[1], FileHandle)
    handles[1] = msgspec.structs.replace(handles[1], checksum="0" * 16)
    every = job.stream_all(handles)
    assert b"".join(next(every)) == block(0)
    with pytest.raises(Corrupt, match="was changed after it was written"):
        b"".join(next(every))
    assert threads() == []
