"""Staged rows beyond the budget wait on local disk, and come back as they were, by and by."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from holdfast.runtime.protocol.elements import Barrier, Element
from holdfast.runtime.protocol.messages import PushKey, Winner
from holdfast.runtime.task import spill as spill_module
from holdfast.runtime.task.channel import Bell, Channel, Closed
from holdfast.runtime.task.in_flight import OvertakenRows
from holdfast.runtime.task.spill import Spill
from holdfast.runtime.task.staging import Staging, Superseded
from holdfast.storage import Corrupt, HoldfastError, Invalid, Unavailable
from support.full_disk import largest_file

MIB = 1 << 20
KEY = PushKey("s", "e", 0, 0, 1)


def a_mebibyte(number: int) -> pa.RecordBatch:
    return pa.record_batch({"a": pa.repeat(number, MIB // 8)})  # in memory that Arrow counts


class Scene:
    """A source with one edge; memory for some staged batches, and a channel for some more."""

    def __init__(self, folder: Path, *, memory_bytes: int, capacity_bytes: int) -> None:
        self.folder = folder
        self.spill = Spill([str(folder)])
        self.channel = Channel(capacity_bytes, Bell())
        self.failures: list[HoldfastError] = []
        self.staging = Staging(
            {"s": {"e": self.channel}},
            memory_bytes=memory_bytes,
            spill=self.spill,
            on_failure=self.failures.append,
        )

    def push(self, *batches: pa.RecordBatch, key: PushKey = KEY) -> None:
        push = self.staging.open(key)
        for batch in batches:
            self.staging.add(push, batch)
        self.staging.complete(push)

    def admit(self, sequence: int = 1, batch: int = 0) -> None:
        self.staging.admit("s", sequence, batch=batch, winners=[Winner(0, 1)])

    def files(self) -> list[Path]:
        return sorted(self.folder.rglob("*.arrows"))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path, memory_bytes=4 * MIB, capacity_bytes=2 * MIB)
    yield scene
    scene.staging.close()
    scene.spill.close()
    assert not list(tmp_path.iterdir())


def test_a_batch_far_beyond_the_budget_holds_no_more_memory_than_that(scene: Scene) -> None:
    """By what Arrow has allocated: mapped files are not, their pages are the system's to drop."""
    gc.collect()
    before, most, count = pa.total_allocated_bytes(), 0, 64
    push = scene.staging.open(KEY)
    for number in range(count):
        scene.staging.add(push, a_mebibyte(number))
        most = max(most, pa.total_allocated_bytes() - before)
    scene.staging.complete(push)
    assert scene.staging.backlog_bytes("s") == count * MIB
    scene.admit()
    scene.staging.mark("s", 2, Barrier(1))
    for number in range(count):
        assert scene.channel.size_bytes <= 2 * MIB
        assert scene.staging.backlog_bytes("s") // MIB == count - number
        element = scene.channel.take()
        assert isinstance(element, pa.RecordBatch)
        assert set(element.column(0).to_numpy()) == {number}
        most = max(most, pa.total_allocated_bytes() - before)
        del element
    assert scene.channel.take() == Barrier(1), "a barrier stays behind the rows before it"
    assert scene.staging.backlog_bytes("s") == 0
    assert most <= (4 + 2 + 2) * MIB, f"{most} bytes"
    assert not scene.files()


def test_after_the_end_nothing_is_written_and_nothing_has_failed(scene: Scene) -> None:
    push = scene.staging.open(KEY)
    scene.spill.close()
    with pytest.raises(Closed):
        for number in range(9):
            scene.staging.add(push, a_mebibyte(number))
    assert not list(scene.folder.iterdir())
    assert not scene.failures


def test_files_are_spread_over_all_directories_that_can_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    bases = [tmp_path / name for name in ("a", "b", "file")]
    spill = Spill([*map(str, bases)])
    files = [spill.file(pa.schema([("a", pa.int64())])) for _ in range(64)]
    for file in files:
        file.seal()
    assert all(list(base.rglob("*.arrows")) for base in bases[:2])
    spill.close()
    assert not any(list(base.iterdir()) for base in bases[:2])
    with pytest.raises(Unavailable, match="cannot be made"):
        Spill([str(tmp_path / "file")]).file(pa.schema([]))


def test_rows_that_cannot_be_written_are_a_failure(scene: Scene) -> None:
    push = scene.staging.open(KEY)
    for number in range(5):
        scene.staging.add(push, a_mebibyte(number))
    with pytest.raises(Invalid, match="rows cannot be staged"):
        scene.staging.add(push, pa.record_batch({"b": ["x"]}))
    assert len(scene.failures) == 1


def test_memory_is_used_again_when_rows_have_left_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill_module, "_FILE_BYTES", 2 * MIB)
    scene.push(*map(a_mebibyte, range(7)))
    assert len(scene.files()) == 2, "three batches, in files of two"
    scene.admit()
    assert len(list(iter(scene.channel.take, None))) == 7
    scene.push(a_mebibyte(7), key=KEY._replace(batch=1))
    assert not scene.files(), "there is memory again"
    scene.admit(2, 1)
    assert scene.channel.take() == a_mebibyte(7)


def test_memory_of_a_long_batch_is_given_back_and_that_of_short_ones_is_not(
    tmp_path: Path,
) -> None:
    given_back = threading.Semaphore(0)
    channel = Channel(MIB, Bell())
    staging = Staging(
        {"s": {"e": channel}},
        memory_bytes=16 * MIB,
        spill=Spill([str(tmp_path)]),
        give_memory_back=given_back.release,
    )
    for batch, size in enumerate((2, 2, 8, 2, 2)):
        push = staging.open(KEY._replace(batch=batch))
        for number in range(size):
            staging.add(push, a_mebibyte(number))
        staging.complete(push)
        staging.admit("s", batch + 1, batch=batch, winners=[Winner(0, 1)])
        while channel.take() is not None:
            pass
        if size == 8:
            assert given_back.acquire(timeout=10)
        else:
            assert not given_back.acquire(blocking=False)
    staging.close()


def test_the_budget_is_one_for_all_pushes(scene: Scene) -> None:
    scene.push(*map(a_mebibyte, range(3)))
    scene.push(*map(a_mebibyte, range(3)), key=KEY._replace(split=1))
    assert len(scene.files()) == 1
    scene.staging.admit("s", 1, batch=0, winners=[Winner(0, 1), Winner(1, 1)])
    taken = list(iter(scene.channel.take, None))
    assert taken == [a_mebibyte(number) for number in (0, 1, 2, 0, 1, 2)]


def test_files_of_pushes_that_do_not_count_are_removed(scene: Scene) -> None:
    scene.push(*map(a_mebibyte, range(4)))
    broken = scene.staging.open(KEY._replace(split=1))
    for each in range(2):
        scene.staging.add(broken, a_mebibyte(each))
    slow = scene.staging.open(KEY._replace(attempt=2))
    scene.staging.add(slow, a_mebibyte(0))
    scene.push(a_mebibyte(5), key=KEY._replace(attempt=3))
    assert len(scene.files()) == 3
    scene.staging.abandon(broken)
    assert len(scene.files()) == 2
    scene.admit()
    assert not scene.files()
    with pytest.raises(Superseded):
        scene.staging.add(slow, a_mebibyte(1))
    scene.staging.abandon(slow)
    assert len(list(iter(scene.channel.take, None))) == 4


def test_closing_drops_what_waits_on_disk(scene: Scene) -> None:
    scene.push(*map(a_mebibyte, range(9)))
    scene.admit()
    scene.push(*map(a_mebibyte, range(9)), key=KEY._replace(batch=1))
    scene.staging.close()
    assert scene.staging.backlog_bytes("s") == scene.channel.size_bytes
    assert len(list(iter(scene.channel.take, None))) == 2
    with pytest.raises(Closed):
        scene.push(a_mebibyte(1), key=KEY._replace(batch=2))


@pytest.mark.parametrize("room_bytes", [1000, 3 * MIB], ids=["at once", "later"])
def test_a_full_disk_fails_the_push_and_says_why(tmp_path: Path, room_bytes: int) -> None:
    scene = Scene(tmp_path, memory_bytes=0, capacity_bytes=MIB)
    scene.push(pa.record_batch({"a": np.arange(3)}), key=KEY._replace(split=1))  # the directory
    with (
        largest_file(room_bytes),
        pytest.raises(Unavailable, match=r"cannot stage rows on local disk .*Free space") as caught,
    ):
        scene.push(*map(a_mebibyte, range(5)))
    assert str(tmp_path) in str(caught.value)
    assert scene.failures == [caught.value], "the attempt fails: retries would meet the same disk"
    scene.staging.close()
    scene.spill.close()


def test_a_file_that_was_changed_is_named(scene: Scene) -> None:
    scene.push(*map(a_mebibyte, range(6)))
    (file,) = scene.files()
    file.write_bytes(file.read_bytes()[: MIB + 1000])
    scene.admit()
    with pytest.raises(Corrupt, match=r"read back from local disk .*arrows"):
        list(iter(scene.channel.take, None))


def test_rows_with_dictionaries_of_their_own_come_back(tmp_path: Path) -> None:
    scene = Scene(tmp_path, memory_bytes=0, capacity_bytes=MIB)
    batches = [
        pa.record_batch(
            {
                "word": pa.array(words[:2]).dictionary_encode(),
                "many": pa.ListArray.from_arrays([0, 2, 3], pa.array(words).dictionary_encode()),
                "none": pa.nulls(2),
            }
        )
        for words in (["a", "b", "a"], ["c", "d", "e"], ["b", "b", "b"])
    ]
    scene.push(*batches, batches[0].slice(1, 1))
    scene.admit()
    taken: list[Element] = list(iter(scene.channel.take, None))
    scene.staging.close()
    scene.spill.close()
    for expected, found in zip([*batches, batches[0].slice(1, 1)], taken, strict=True):
        assert isinstance(found, pa.RecordBatch)
        found.validate(full=True)
        assert found.to_pylist() == expected.to_pylist()


HOLDING = """
import sys
import numpy as np, pyarrow as pa
from holdfast.runtime.task.in_flight import OvertakenRows
from holdfast.runtime.task.spill import Spill

file = Spill([sys.argv[1]]).file(pa.schema([("a", pa.int64())]))
file.write(pa.record_batch({"a": np.arange(1000)}))
print("written", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_slot_has_left_is_removed_when_the_next_one_starts(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDING, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        Spill([str(tmp_path)])
        assert list(tmp_path.iterdir()), "it is in use"
        other.send_signal(signal.SIGKILL)
        other.wait()
    Spill([str(tmp_path)])
    assert not list(tmp_path.iterdir())


def test_a_barrier_overtakes_rows_in_the_channel_in_memory_and_on_disk(scene: Scene) -> None:
    """All are found in order, once; they are processed afterwards as if nothing had happened."""
    scene.push(*map(a_mebibyte, range(12)))
    scene.admit()
    barrier = Barrier(7)
    scene.staging.mark("s", 2, barrier)
    scene.push(a_mebibyte(99), key=KEY._replace(batch=1))
    scene.admit(3, batch=1)
    assert scene.files(), "some are on disk"
    assert taken_value(scene.channel.take()) == 0
    waits = scene.channel.first_barrier
    assert waits is not None
    assert waits[0] is barrier
    found, rows = scene.channel.overtake()
    assert found is barrier
    assert scene.channel.first_barrier is None
    in_flight = OvertakenRows("e", 0, rows)
    assert [taken_value(batch) for batch in in_flight.batches()] == [*range(1, 12)]
    left: list[int] = []
    while (element := scene.channel.take()) is not None:
        left.append(taken_value(element))
    assert left == [*range(1, 12), 99]
    assert [taken_value(batch) for batch in in_flight.batches()] == [*range(1, 12)], "and again"


def test_files_that_wait_for_a_checkpoint_are_mapped_one_at_a_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mapped they would count to the memory of the slot, as many rows as a split has."""
    monkeypatch.setattr(spill_module, "_FILE_BYTES", 2 * MIB)
    scene.push(*map(a_mebibyte, range(24)))
    scene.admit()
    scene.staging.mark("s", 2, Barrier(7))
    files = scene.files()
    assert len(files) == 10
    _, rows = scene.channel.overtake()
    assert not mapped_files(scene.folder)
    while scene.channel.take() is not None:
        assert len(mapped_files(scene.folder)) <= 2, "one in the channel, one that is read"
    assert scene.files() == files, "the checkpoint is still to be written"
    in_flight = OvertakenRows("e", 0, rows)
    del rows
    for number, batch in enumerate(in_flight.batches()):
        assert taken_value(batch) == number
        assert len(mapped_files(scene.folder)) <= 2
    del batch, in_flight
    assert not mapped_files(scene.folder)
    assert not scene.files()


def mapped_files(folder: Path) -> set[str]:
    lines = Path("/proc/self/maps").read_text("utf-8").splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if str(folder) in line}


def test_a_barrier_that_gets_into_the_channel_is_there_once(scene: Scene) -> None:
    scene.push(*map(a_mebibyte, range(3)))
    scene.admit()
    scene.staging.mark("s", 2, Barrier(7))
    found = [scene.channel.take() for _ in range(4)]
    assert found[-1] == Barrier(7)
    assert scene.channel.first_barrier is None


def taken_value(element: Element | None) -> int:
    assert isinstance(element, pa.RecordBatch)
    (value,) = set(element.column(0).to_pylist())
    return int(value)


def test_rows_that_were_processed_before_the_cut_are_skipped() -> None:
    """At least once, a channel is read on after its barrier has overtaken the rows in it."""
    batches = [pa.record_batch({"a": [1, 2, 3]}), pa.record_batch({"a": [4, 5]})]
    for skipped in range(6):
        left = OvertakenRows("e", 0, batches, skipped).batches()
        values = [value for batch in left for value in batch.column(0).to_pylist()]
        assert values == [1, 2, 3, 4, 5][skipped:]
