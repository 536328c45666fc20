"""Clauses about segments: what slots write through the storage and read back."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from holdfast.storage.errors import Invalid, TooLarge
from holdfast.storage.interface import Buffer
from holdfast.storage.jobs.job import JobStorage
from holdfast.storage.segments.handles import (
    CHECKED_BLOCK_BYTES,
    LZ4,
    FileHandle,
    Handle,
    InlineHandle,
)
from holdfast.storage.segments.writer import SegmentWriter
from holdfast.storage.testing import other_processes
from holdfast.storage.testing.checks import names_in, nothing_left, owed, pattern, require, same
from holdfast.storage.testing.clauses.creates import at_once
from holdfast.storage.testing.clauses.writes import buffers
from holdfast.storage.testing.example_jobs import exclusive_segments
from holdfast.storage.testing.place import Place, opened

__all__ = ["SegmentClauses"]

_THREADS = 6


class _GivenUp(Exception):
    """What a caller's own code raises in the middle of a segment."""


class SegmentClauses:
    """What `SegmentWriter` and the readers owe on this storage."""

    def test_segments_are_read_back(self, place: Place) -> None:
        """Added or streamed, packed or not, of every size: read, read_all and stream agree."""
        job = opened(place).job("job")
        sizes = (0, 1, 127, 128, 5000, 70_000, 1_100_000)
        contents = [pattern(size, size) for size in sizes] + [b"packs well " * 20_000]
        for compression in ("", LZ4):
            with exclusive_segments(job, 1, compression=compression) as writer:
                handles = [writer.add(content) for content in contents]
                handles += [_streamed(writer, content) for content in contents]
            _comes_back(place.open().job("job"), handles, contents * 2)

    def test_segments_take_every_kind_of_buffer(self, place: Place) -> None:
        """The handle covers the bytes that the buffer means, whatever its items are."""
        job = opened(place).job("job")
        for compression in ("", LZ4):
            with exclusive_segments(job, 1, compression=compression) as writer:
                handles = [writer.add(buffer) for _, buffer, _ in buffers()]
                handles += [_streamed(writer, buffer) for _, buffer, _ in buffers()]
            _comes_back(job, handles, [meaning for _, _, meaning in buffers()] * 2)

    def test_a_long_segment_is_read_back(self, place: Place) -> None:
        """Longer than what is checked at once, in pieces that end anywhere."""
        job = opened(place, "keeps_segment_files").job("job")
        data = pattern(2 * CHECKED_BLOCK_BYTES + 12_345, "long")
        with exclusive_segments(job, 1) as writer:
            writer.add(b"before")
            added = writer.add(data)
            with writer.stream() as segment:
                for start in range(0, len(data), 1_000_003):
                    segment.write(data[start : start + 1_000_003])
        for handle in (added, segment.handle):
            require(job.read(handle) == data, "a long segment must come back whole")
            pieces = list(job.stream(handle))
            longest = max(map(len, pieces))
            require(longest <= CHECKED_BLOCK_BYTES, f"streamed in pieces of {longest} bytes")
            require(b"".join(pieces) == data, "a long segment must be streamed whole")

    def test_small_state_is_inline(self, place: Place) -> None:
        """Up to the limit that the storage declares, nothing is written at all.

        Past it, a storage that keeps no files says so, and any other writes one.
        """
        storage = opened(place)
        job = storage.job("job")
        limit = storage.inline_limit_bytes
        with job.segments(1) as writer:
            handles = [writer.add(b""), writer.add(bytes(limit))]
        same([type(handle) for handle in handles], [InlineHandle] * 2, "handles up to the limit")
        _comes_back(job, handles, [b"", bytes(limit)])
        nothing_left(storage, place.count, "after state up to the inline limit")
        if storage.capabilities.keeps_segment_files:
            with job.segments(2) as writer:
                handles = [writer.add(bytes(limit + 1))]
            same(type(handles[0]), FileHandle, "the handle past the limit")
            _comes_back(job, handles, [bytes(limit + 1)])
            return
        for writer in (job.segments(2), job.shared_segments(2)):
            with owed(TooLarge, "a segment past the limit"):
                writer.add(bytes(limit + 1))
            writer.abort()
        nothing_left(storage, place.count, "after a segment that was too large")

    def test_a_slot_writes_one_file(self, place: Place) -> None:
        """All segments of one writer lie in one object, however many there are."""
        storage = opened(place, "keeps_segment_files")
        job = storage.job("job")
        contents = [pattern(100, number) for number in range(2000)]
        with exclusive_segments(job, 1) as writer:
            handles = [writer.add(content) for content in contents]
        files = {handle.file for handle in handles if isinstance(handle, FileHandle)}
        same(names_in(storage), [f"{job.folder}/{file}" for file in files], "the objects")
        same(len(files), 1, "files for 2000 segments")
        require(list(job.read_all(handles)) == contents, "2000 segments must come back")

    def test_a_cancelled_writer_leaves_nothing(self, place: Place) -> None:
        """A checkpoint that is given up, by abort or by an exception, leaves no file behind."""
        storage = opened(place)
        job = storage.job("job")
        size = 100 if not storage.capabilities.keeps_segment_files else 1_500_000
        aborted = exclusive_segments(job, 1)
        aborted.add(pattern(size))
        aborted.abort()
        aborted.abort()
        with owed(Invalid, "adding to an aborted writer"):
            aborted.add(b"x")
        for error in (_GivenUp(), KeyboardInterrupt()):
            try:
                with exclusive_segments(job, 2) as writer:
                    writer.add(pattern(size))
                    with writer.stream() as segment:
                        segment.write(pattern(size))
                        raise error
            except (_GivenUp, KeyboardInterrupt) as caught:
                require(caught is error, "the caller's own error must get out")
        unused = exclusive_segments(job, 3)
        unused.abort()
        nothing_left(storage, place.count, "after cancelled writers")

    def test_a_cancelled_segment_harms_no_other(self, place: Place) -> None:
        """One segment given up half-way: it has no handle, those before and after are whole."""
        job = opened(place).job("job")
        for compression in ("", LZ4):
            with exclusive_segments(job, 1, compression=compression) as writer:
                before = writer.add(pattern(3000, "before"))
                segment = writer.stream()
                with suppress(_GivenUp), segment:
                    segment.write(pattern(50_000, "given up"))
                    raise _GivenUp
                with owed(Invalid, "the handle of a segment that was given up"):
                    _ = segment.handle
                after = writer.add(pattern(4000, "after"))
            contents = [pattern(3000, "before"), pattern(4000, "after")]
            _comes_back(job, [before, after], contents)

    def test_threads_share_a_writer(self, place: Place) -> None:
        """Operators of one slot write side by side; each segment is whole."""
        job = opened(place).job("job")
        with exclusive_segments(job, 1) as writer:

            def add(number: int) -> list[Handle]:
                contents = [pattern(700 + turn, f"{number}/{turn}") for turn in range(20)]
                added = [writer.add(content) for content in contents[::2]]
                return added + [_streamed(writer, content) for content in contents[1::2]]

            handles = at_once([partial(add, number) for number in range(_THREADS)])
        for number, found in enumerate(handles):
            contents = [pattern(700 + turn, f"{number}/{turn}") for turn in range(20)]
            _comes_back(job, found, contents[::2] + contents[1::2])

    def test_another_process_reads_what_a_slot_wrote(self, place: Place) -> None:
        """A handle is all that travels: with it and the storage any process reads the state."""
        job = opened(place, "shared_between_processes", "keeps_segment_files").job("job")
        contents = [pattern(size, size) for size in (10, 3000, 200_000)]
        handles = other_processes.run(other_processes.write_segments, job.storage, "job", contents)
        same([type(handle) for handle in handles], [FileHandle] * 3, "the handles from elsewhere")
        _comes_back(job, handles, contents)
        with exclusive_segments(job, 2) as writer:
            mine = [writer.add(content) for content in contents]
        found = other_processes.run(other_processes.read_segments, job.storage, "job", mine)
        require(found == contents, "another process must read what was written here")


def _streamed(writer: SegmentWriter, data: Buffer) -> Handle:
    """The data as a segment of its own, in two pieces where it can be cut."""
    with writer.stream() as segment:
        if isinstance(data, bytes):
            segment.write(data[: len(data) // 3])
            segment.write(data[len(data) // 3 :])
        else:
            segment.write(data)
    return segment.handle


def _comes_back(job: JobStorage, handles: list[Handle], contents: list[bytes]) -> None:
    for handle, content in zip(handles, contents, strict=True):
        same(handle.state_bytes, len(content), "the state bytes of a handle")
        same(job.read(handle), content, "a segment that is read")
        same(b"".join(job.stream(handle)), content, "a segment that is streamed")
    for number, found in enumerate(job.read_all(handles)):
        same(found, contents[number], "a segment among all")
