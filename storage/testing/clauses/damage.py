"""Clauses about damage: what has changed is noticed at the latest when it is read, and named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from holdfast.storage import names
from holdfast.storage.errors import Corrupt, HoldfastError, Invalid
from holdfast.storage.jobs.envelope import seal
from holdfast.storage.jobs.job import JobStorage
from holdfast.storage.jobs.metadata import METADATA
from holdfast.storage.segments.handles import CHECKED_BLOCK_BYTES, LZ4, FileHandle
from holdfast.storage.testing.checks import owed, pattern, require, same
from holdfast.storage.testing.example_jobs import (
    checkpoint,
    commit,
    document,
    ending,
    exclusive_segments,
    files_kept,
    metadata_name,
    remove,
    retain,
)
from holdfast.storage.testing.place import Place, opened

__all__ = ["DamageClauses"]

_T = TypeVar("_T")


class DamageClauses:
    """What the job level owes when stored bytes are no longer those that were written."""

    def test_damaged_metadata_is_named(self, place: Place) -> None:
        """Truncated, flipped, appended to, foreign: Corrupt, with the name of the file.

        The latest one names the older checkpoint too, which an operator can restore instead.
        """
        storage = opened(place)
        job = storage.job("job")
        owner = job.take_over()
        for number in (1, 7):
            commit(owner, job, number)
        file = metadata_name(job, 7)
        sound = storage.read(file)
        for what, data in _damaged(sound):
            storage.write(file, data)
            same(job.completed(), (1, 7), f"completed, with metadata that is {what}")
            with owed(Corrupt, f"load of metadata that is {what}") as caught:
                job.load(7)
            _names(caught, names.metadata(7), what)
            with owed(Corrupt, f"latest, with metadata that is {what}") as caught:
                job.latest()
            _names(caught, names.metadata(7), what)
            _names(caught, "checkpoint 1", what)
        storage.write(file, sound)
        same(job.load(7).checkpoint_id, 7, "the sound metadata, put back")

    def test_metadata_in_another_s_place_is_named(self, place: Place) -> None:
        """Sound metadata of another checkpoint, or of another job, is Corrupt where it lies."""
        storage = opened(place)
        job, other = storage.job("job"), storage.job("other")
        owner, other_owner = job.take_over(), other.take_over()
        for number in (1, 2):
            commit(owner, job, number)
        commit(other_owner, other, 2)
        for source in (metadata_name(job, 1), metadata_name(other, 2)):
            storage.write(metadata_name(job, 2), storage.read(source))
            with owed(Corrupt, f"load of metadata copied from {source}") as caught:
                job.load(2)
            _names(caught, names.metadata(2), "copied")

    def test_newer_metadata_is_refused(self, place: Place) -> None:
        """Written by a later version it is not damaged but Invalid here, with both versions."""
        storage = opened(place)
        job = storage.job("job")
        owner = job.take_over()
        commit(owner, job, 1)
        newer = METADATA.version + 41
        data = seal("checkpoint", newer, document(job, 2))
        storage.write(metadata_name(job, 2), data)
        for what, call in (("load", partial(job.load, 2)), ("latest", job.latest)):
            with owed(Invalid, f"{what} of newer metadata") as caught:
                call()
            for part in (names.metadata(2), str(newer), str(METADATA.version)):
                _names(caught, part, "newer")
        same(job.load(1).checkpoint_id, 1, "the older checkpoint")

    def test_a_damaged_owner_record_is_named(self, place: Place) -> None:
        """Corrupt with the name of the record, for readers and for a new owner.

        Without it, it is unknown which checkpoints count.
        """
        storage = opened(place)
        job = storage.job("job")
        commit(job.take_over(), job, 1)
        healthy = job.take_over()
        commit(healthy, job, 2)
        (record,) = (
            names.owner_record(found.epoch, "start", found.token)
            for found in job.owner_records()
            if found.epoch == healthy.epoch and found.token is not None
        )
        sound = storage.read(f"{job.folder}/{record}")
        calls: dict[str, Callable[[], object]] = {
            "completed": job.completed,
            "load": partial(job.load, 1),
            "take_over": job.take_over,
        }
        for what, data in _damaged(sound, step=29):
            storage.write(f"{job.folder}/{record}", data)
            for verb, call in calls.items():
                with owed(Corrupt, f"{verb} with an owner's record that is {what}") as caught:
                    call()
                _names(caught, record, what)
        storage.write(f"{job.folder}/{record}", sound)
        same(job.completed(), (1, 2), "completed, with the sound record put back")
        healthy.check()  # a takeover that cannot succeed must not fence the owner that there is

    def test_a_damaged_result_is_named(self, place: Place) -> None:
        """Corrupt with the name of the record; so is that of another job, put in its place.

        A take-over with `reopen` does not need it.
        """
        storage = opened(place)
        job, other = storage.job("job"), storage.job("other")
        healthy = job.take_over()
        healthy.end(ending(job))
        (record,) = _results(job)
        other.take_over().end(ending(other))
        (foreign,) = (storage.read(f"{other.folder}/{name}") for name in _results(other))
        sound = storage.read(f"{job.folder}/{record}")
        for what, data in (*_damaged(sound, step=29), ("another job's", foreign)):
            storage.write(f"{job.folder}/{record}", data)
            calls: dict[str, Callable[[], object]] = {
                "result": job.result,
                "take_over": job.take_over,
            }
            for verb, call in calls.items():
                with owed(Corrupt, f"{verb} with a result that is {what}") as caught:
                    call()
                _names(caught, record, what)
        healthy.check()  # a takeover that cannot succeed must not fence the owner that there is
        commit(job.take_over(reopen=True), job, 1)
        same(job.result(), None, "the result after the job was opened again")

    def test_damaged_segments_are_named(self, place: Place) -> None:
        """Flipped bytes and truncations: Corrupt with the name of the file, however it is read.

        What lies beside the damage is still read.
        """
        storage = opened(place, "keeps_segment_files")
        job = storage.job("job")
        for compression in ("", LZ4):
            handles = _write_segments(job, compression)
            file = f"{job.folder}/{handles[0].file}"
            sound = storage.read(file)
            for handle in handles:
                first, last = handle.offset, handle.offset + handle.length - 1
                for at in sorted({first, first + 1, (first + last) // 2, last - 1, last}):
                    storage.write(file, _flipped(sound, at))
                    _only_these_fail(job, handles, [handle], f"byte {at} is flipped")
                storage.write(file, sound[:last])
                behind = [each for each in handles if each.offset >= handle.offset]
                _only_these_fail(job, handles, behind, f"the file ends before byte {last}")
            storage.write(file, sound)
            _only_these_fail(job, handles, [], "the file is sound again")

    def test_a_missing_segment_file_is_named(self, place: Place) -> None:
        """A file that is gone, empty or swapped with another is Corrupt, not NotFound.

        For the checkpoint is there, and it is damaged.
        """
        storage = opened(place, "keeps_segment_files")
        job = storage.job("job")
        handles = _write_segments(job, "")
        file = f"{job.folder}/{handles[0].file}"
        size = len(storage.read(file))
        for what, data in (("empty", b""), ("another", pattern(size, "another"))):
            storage.write(file, data)
            _only_these_fail(job, handles, handles, f"the file is {what}")
        storage.delete([file])
        _only_these_fail(job, handles, handles, "the file is gone")

    def test_damage_in_a_long_segment_is_found_where_it_is(self, place: Place) -> None:
        """A stream hands out the sound blocks before the damage, and nothing after it."""
        storage = opened(place, "keeps_segment_files")
        job = storage.job("job")
        data = pattern(CHECKED_BLOCK_BYTES + 1000, "long")
        with exclusive_segments(job, 1) as writer:
            handle = writer.add(data)
        if not isinstance(handle, FileHandle):
            raise AssertionError("the segment must be in a file")
        file = f"{job.folder}/{handle.file}"
        for at, sound_blocks in (
            (0, 0),
            (CHECKED_BLOCK_BYTES - 1, 0),
            (CHECKED_BLOCK_BYTES, 1),
            (len(data) - 1, 1),
        ):
            storage.write(file, _flipped(data, at))
            delivered: list[bytes] = []
            with owed(Corrupt, f"stream with byte {at} flipped") as caught:
                delivered.extend(job.stream(handle))
            _names(caught, handle.file, f"flipped at {at}")
            pieces = [data[:CHECKED_BLOCK_BYTES]] * sound_blocks
            require(delivered == pieces, f"{sound_blocks} sound blocks come before byte {at}")
            with owed(Corrupt, f"read with byte {at} flipped") as caught:
                job.read(handle)
            _names(caught, handle.file, f"flipped at {at}")

    def test_a_damaged_checkpoint_harms_no_other(self, place: Place) -> None:
        """The others are loaded, and owners go on.

        Only calls that need the files of the damaged one are refused: nothing is deleted by guess.
        """
        storage = opened(place)
        job = storage.job("job")
        owner = job.take_over()
        for number in (1, 2):
            checkpoint(owner, job, number)
        storage.write(metadata_name(job, 2), b"damaged")
        newer = place.open().job("job").take_over()
        same(newer.completed, (1, 2), "completed for the next owner")
        same(job.load(1).checkpoint_id, 1, "the sound checkpoint")
        with owed(Corrupt, "orphans, with a damaged checkpoint") as caught:
            newer.orphans()
        _names(caught, names.metadata(2), "damaged")
        last = checkpoint(newer, job, newer.next_checkpoint_id)
        same(job.completed(), (1, 2, 3), "completed after the next commit")
        with owed(Corrupt, "retention that would keep the damaged checkpoint") as caught:
            retain(newer, 2)
        _names(caught, names.metadata(2), "damaged")
        same(job.completed(), (1, 2, 3), "completed after retention that was refused")
        same(retain(newer, 1), (2,), "released, the damaged one")
        remove(newer, newer.orphans())
        same(files_kept(job), sorted({*last.files(), names.metadata(3)}), "files in the end")


def _results(job: JobStorage) -> list[str]:
    return [
        names.owner_record(found.epoch, "result", found.token)
        for found in job.owner_records()
        if found.kind == "result" and found.token is not None
    ]


def _damaged(sound: bytes, step: int = 13) -> Iterator[tuple[str, bytes]]:
    """Each way in which a document is damaged, and the damaged bytes."""
    for end in (0, 1, len(sound) // 2, len(sound) - 1):
        yield f"truncated to {end} of {len(sound)} bytes", sound[:end]
    for at in {*range(0, len(sound), step), len(sound) - 1}:
        yield f"flipped at byte {at}", _flipped(sound, at)
    yield "appended to", sound + b"{}"
    yield "zeros", bytes(len(sound))
    yield "another program's", b"\x89PNG\r\n\x1a\n" + sound[8:]
    yield "Flink's", b"\x49\x60\x67\x2d\x00\x00\x00\x04"


def _flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 0x20 if at % 2 else 0x01
    return bytes(changed)


def _exhaust(read: Callable[[_T], Iterator[bytes]], argument: _T) -> list[bytes]:
    return list(read(argument))


def _names(caught: list[HoldfastError], part: str, what: str) -> None:
    require(part in str(caught[0]), f"the error must name {part} ({what}): {caught[0]}")


def _write_segments(job: JobStorage, compression: str) -> list[FileHandle]:
    """Segments side by side in one file, long ones and short ones, some that can be packed."""
    contents = [pattern(200), b"packs well " * 3000, pattern(9000), b"short", b"also " * 100]
    with exclusive_segments(job, 1, compression=compression) as writer:
        handles = [writer.add(content) for content in contents]
    return [handle for handle in handles if isinstance(handle, FileHandle)]


def _only_these_fail(
    job: JobStorage, handles: list[FileHandle], harmed: list[FileHandle], what: str
) -> None:
    for handle in handles:
        ways: dict[str, Callable[[], object]] = {
            "read": partial(job.read, handle),
            "read_all": partial(_exhaust, job.read_all, [handle]),
            "stream": partial(_exhaust, job.stream, handle),
        }
        for way, call in ways.items():
            if handle in harmed:
                with owed(Corrupt, f"{way} of bytes from {handle.offset}, when {what}") as caught:
                    call()
                _names(caught, handle.file, what)
            else:
                call()
    if harmed:
        with owed(Corrupt, f"read_all of everything, when {what}") as caught:
            list(job.read_all(handles))
        _names(caught, harmed[0].file, what)
