"""Clauses about writers: what they take, how they end, what they leave."""

from __future__ import annotations

import tracemalloc
from array import array

import pytest

from holdfast.storage.checkpoint_storage import CheckpointStorage
from holdfast.storage.errors import Invalid
from holdfast.storage.interface import Buffer, ObjectStorage, ObjectWriter
from holdfast.storage.testing.checks import (
    is_absent,
    nothing_left,
    owed,
    pattern,
    reads,
    require,
    same,
)
from holdfast.storage.testing.place import Place, opened

__all__ = ["WritingClauses", "buffers"]

_MIB = 1024 * 1024
_LARGE_MIB = 20
_STREAMED_MIB = 80
_MEMORY_MIB = 64


class _Given(Exception):
    """What a caller's own code raises in the middle of a write."""


def buffers() -> list[tuple[str, Buffer, bytes]]:
    """Every kind of buffer that a writer takes: what it is, itself, and the bytes that it means.

    A view means its `tobytes`: wider items count all their bytes, and a strided view those it
    shows. The contract takes any `memoryview` and lets out no error of Python's, so these are owed.
    """
    data = pattern(600)
    numbers = memoryview(array("I", range(100)))
    return [
        ("bytes", data, data),
        ("a bytearray", bytearray(data), data),
        ("a view", memoryview(data), data),
        ("a view of a part", memoryview(bytearray(data))[100:200], data[100:200]),
        ("a view of wider items", numbers, numbers.tobytes()),
        ("a view of two dimensions", memoryview(data).cast("B", (20, 30)), data),
        ("a strided view", memoryview(data)[::2], data[::2]),
        ("a reversed view", memoryview(data)[::-1], data[::-1]),
        ("nothing", b"", b""),
        ("an empty view", memoryview(b""), b""),
    ]


class WritingClauses:
    """What `writer`, `write` and the `ObjectWriter` owe."""

    def test_takes_every_kind_of_buffer(self, place: Place) -> None:
        """`write` and `create` take bytes, bytearray and any memoryview, without a copy first."""
        storage = opened(place)
        for number, (kind, buffer, meaning) in enumerate(buffers()):
            storage.write(f"written-{number}", buffer)
            reads(storage, f"written-{number}", meaning, f"writing {kind}")
            same(storage.create(f"created-{number}", buffer), None, f"creating from {kind}")
            reads(storage, f"created-{number}", meaning, f"creating from {kind}")

    def test_a_buffer_may_be_reused(self, place: Place) -> None:
        """Once `write` or `create` has returned, the caller may fill the buffer with the next."""
        storage = opened(place)
        buffer = bytearray(1000)
        expected = b""
        with storage.writer("written") as writer:
            for number in range(20):
                buffer[:] = pattern(1000, number)
                expected += buffer
                writer.write(buffer if number % 2 else memoryview(buffer))
        buffer[:] = pattern(1000, "created")
        storage.create("created", buffer)
        buffer[:] = bytes(1000)
        reads(storage, "written", expected, "pieces out of one buffer")
        reads(storage, "created", pattern(1000, "created"), "created out of a buffer")

    def test_pieces_join_in_order(self, place: Place) -> None:
        """Pieces of any sizes join to one object in the order of the calls; empty ones add none."""
        storage = opened(place)
        pieces = [pattern(size, size) for size in (1, 0, 7, 5000, 0, 70_000, 2, 1_100_000, 3, 0)]
        with storage.writer("object") as writer:
            for piece in pieces:
                writer.write(piece)
        reads(storage, "object", b"".join(pieces), "the joined pieces")

    def test_a_writer_without_a_write_makes_an_empty_object(self, place: Place) -> None:
        """Nothing written and committed is an object of no bytes."""
        storage = opened(place)
        storage.writer("by-commit").commit()
        with storage.writer("by-block"):
            pass
        with storage.writer("by-empty-write") as writer:
            writer.write(b"")
        for name in ("by-block", "by-commit", "by-empty-write"):
            reads(storage, name, b"", "an object of no bytes")

    def test_a_large_object_is_whole(self, place: Place) -> None:
        """Twenty MiB in pieces: every byte in its place, also when read in ranges."""
        storage = opened(place)
        data = pattern(_LARGE_MIB * _MIB)
        with storage.writer("large") as writer:
            for start in range(0, len(data), 3 * _MIB + 11):
                writer.write(memoryview(data)[start : start + 3 * _MIB + 11])
        same([info.size_bytes for info in storage.list("large")], [len(data)], "its listed size")
        require(storage.read("large") == data, "20 MiB must come back whole")
        for start in range(0, len(data), 5 * _MIB - 7):
            found = storage.read_range("large", start, 3000)
            same(found, data[start : start + 3000], f"3000 bytes from {start} of 20 MiB")

    def test_memory_stays_bounded(self, place: Place) -> None:
        """However much is written, a writer holds at most 64 MiB: state is larger than memory."""
        storage = opened(place, "keeps_segment_files")
        if not (storage.capabilities.durable or storage.capabilities.shared_between_processes):
            pytest.skip("the storage declares that it keeps its objects in this process")
        piece = bytes(_MIB)
        already = tracemalloc.is_tracing()
        if not already:
            tracemalloc.start()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        try:
            with storage.writer("large") as writer:
                for _ in range(_STREAMED_MIB):
                    writer.write(piece)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            if not already:
                tracemalloc.stop()
        held = (peak - before) // _MIB
        require(held <= _MEMORY_MIB, f"at most {_MEMORY_MIB} MiB may be held, {held} MiB were")

    def test_abort_leaves_nothing(self, place: Place) -> None:
        """After an abort nothing is visible and nothing takes up room."""
        storage = opened(place)
        for size in (0, 1, 2 * _MIB):
            writer = storage.writer("folder/object")
            writer.write(pattern(size))
            writer.abort()
            is_absent(storage, "folder/object", f"after an abort at {size} bytes")
        nothing_left(storage, place.count, "after an abort")

    def test_an_exception_in_the_block_aborts(self, place: Place) -> None:
        """The caller's error gets out unchanged, and nothing of the object stays."""
        storage = opened(place)
        for error in (_Given("mine"), KeyboardInterrupt()):
            try:
                with storage.writer("object") as writer:
                    writer.write(pattern(1000))
                    raise error
            except (_Given, KeyboardInterrupt) as caught:
                require(caught is error, "the caller's own error must get out")
            is_absent(storage, "object", "after an exception in the block")
        nothing_left(storage, place.count, "after an exception in the block")

    def test_abort_may_come_at_any_time(self, place: Place) -> None:
        """It never raises, and after a commit or another abort it does nothing."""
        storage = opened(place)
        committed, aborted = _finished(storage)
        storage.write("aborted", b"written later")
        for writer in (committed, aborted, committed, aborted):
            _abort(writer)
        reads(storage, "committed", b"kept", "aborting after the commit")
        reads(storage, "aborted", b"written later", "aborting twice")

    def test_abort_survives_a_failed_write(self, place: Place) -> None:
        """A writer can be aborted even if its object or leftovers were removed."""
        storage = opened(place)
        writer = storage.writer("object")
        writer.write(pattern(1000))
        storage.delete([found.name for found in storage.unfinished("")])
        _abort(writer)
        nothing_left(storage, place.count, "after aborting a writer whose leftovers were deleted")

    def test_a_finished_writer_refuses(self, place: Place) -> None:
        """Writing or committing after the end is a mistake: Invalid, and the object stays."""
        storage = opened(place)
        committed, aborted = _finished(storage)
        for how, writer in (("commit", committed), ("abort", aborted)):
            with owed(Invalid, f"write after {how}"):
                writer.write(b"more")
            with owed(Invalid, f"an empty write after {how}"):
                writer.write(b"")
            with owed(Invalid, f"commit after {how}"):
                writer.commit()
        reads(storage, "committed", b"kept", "using a committed writer again")
        is_absent(storage, "aborted", "using an aborted writer again")

    def test_a_write_replaces_the_whole(self, place: Place) -> None:
        """A shorter object leaves nothing of a longer one; a written one replaces a created one."""
        storage = opened(place)
        storage.create("object", pattern(5000, "created"))
        for size in (9000, 100, 0, 3):
            storage.write("object", pattern(size, size))
            reads(storage, "object", pattern(size, size), f"replacing by {size} bytes")
        same([(i.name, i.size_bytes) for i in storage.list("")], [("object", 3)], "the listing")

    def test_a_write_can_be_repeated(self, place: Place) -> None:
        """After Unavailable the same bytes are written again, even while the first write goes on.

        The outcome is the object, once, whichever of the attempts ends last.
        """
        storage = opened(place)
        data = pattern(10_000)
        first, second = storage.writer("object"), storage.writer("object")
        for start in range(0, len(data), 1000):
            first.write(data[start : start + 1000])
            second.write(data[start : start + 1000])
        second.commit()
        reads(storage, "object", data, "the second attempt")
        first.commit()
        reads(storage, "object", data, "the first attempt, ending late")
        _write_in_halves(storage, "object", data)
        reads(storage, "object", data, "a third attempt")
        same([info.name for info in storage.list("")], ["object"], "the listing")

    def test_writers_of_one_name_do_not_mix(self, place: Place) -> None:
        """Two attempts with different bytes under one name: each commit shows one, unmixed."""
        storage = opened(place)
        one, two = pattern(3000, "one"), pattern(2000, "two")
        first, second, third = (storage.writer("object") for _ in range(3))
        for start in range(0, 3000, 500):
            first.write(one[start : start + 500])
            second.write(two[start : start + 500])
            third.write(b"given up")
        first.commit()
        reads(storage, "object", one, "the first to commit")
        third.abort()
        reads(storage, "object", one, "after another was aborted")
        second.commit()
        reads(storage, "object", two, "the second to commit")
        _nothing_left_but(storage, place, "object")


def _nothing_left_but(storage: CheckpointStorage, place: Place, name: str) -> None:
    storage.delete([name])
    nothing_left(storage, place.count, f"once {name} was deleted")


def _finished(storage: ObjectStorage) -> tuple[ObjectWriter, ObjectWriter]:
    """A writer that was committed, with content `kept`, and one that was aborted."""
    committed = storage.writer("committed")
    committed.write(b"kept")
    committed.commit()
    aborted = storage.writer("aborted")
    aborted.write(b"dropped")
    aborted.abort()
    return committed, aborted


def _abort(writer: ObjectWriter) -> None:
    try:
        writer.abort()
    except Exception as error:
        raise AssertionError(f"abort must never raise, it raised {error!r}") from error


def _write_in_halves(storage: CheckpointStorage, name: str, data: bytes) -> None:
    with storage.writer(name) as writer:
        writer.write(data[: len(data) // 2])
        writer.write(data[len(data) // 2 :])
