"""The storage room on a local disk, against plain files.

Figures of issue 1: writing and reading 1 GiB in 64 MiB handles at 0.8 of plain files with fsync;
10 000 handles of 100 bytes at 200 000 a second; below 64 MiB of memory while 1 GiB streams through.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import xxhash

from benchmarks.harness import Result, Scale, compare, peak_memory_bytes, rate
from holdfast.storage import Handle, JobStorage, load_storage

__all__ = ["run", "write_handles"]

_MIB = 1024 * 1024
_PIECE = 4 * _MIB


def run(scale: Scale) -> Iterator[Result]:
    """Every figure of this module."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=_disk()) as root:
        yield from _large(scale, Path(root))
        yield from _small(scale, Path(root))
        yield _memory(scale, Path(root))


def _disk() -> str | None:
    """A folder on a disk: the temporary folder may be memory."""
    return os.environ.get("HOLDFAST_BENCH_DIR")


class _Large:
    """The same bytes in one plain file and in handles, written and read both ways."""

    def __init__(self, scale: Scale, root: Path) -> None:
        self.handle_bytes = scale.pick(64 * _MIB, 2 * _MIB)
        self.count = scale.pick(16, 2)
        self.piece = random.Random(7).randbytes(min(_PIECE, self.handle_bytes))
        self.job = load_storage(str(root / "ours")).job("large")
        self.job.storage.prepare()
        self.plain = root / "plain"
        self.handles: list[Handle] = []

    def clean(self) -> None:
        """Let both write to new blocks of the disk, neither while the other's are flushed."""
        self.plain.unlink(missing_ok=True)
        self.job.storage.delete([found.name for found in self.job.storage.list("")])

    def write_plain(self) -> None:
        with self.plain.open("wb", buffering=0) as file:
            for _ in range(self.handle_bytes * self.count // len(self.piece)):
                file.write(self.piece)
            os.fsync(file.fileno())

    def write_ours(self) -> None:
        self.handles = write_handles(self.job, self.piece, self.handle_bytes, self.count)

    def read_plain(self, size: int) -> None:
        with self.plain.open("rb", buffering=0) as file:
            while file.read(size):
                pass

    def read_ours(self) -> None:
        for handle in self.handles:
            for _ in self.job.stream(handle):
                pass

    def answer(self) -> str:
        """A hash of everything that ours reads."""
        digest = xxhash.xxh3_64()
        for handle in self.handles:
            for block in self.job.stream(handle):
                digest.update(block)
        return digest.hexdigest()


def _large(scale: Scale, root: Path) -> Iterator[Result]:
    large = _Large(scale, root)
    parameters = {
        "handle_bytes": large.handle_bytes,
        "handles": large.count,
        "piece_bytes": len(large.piece),
    }
    written = compare(large.write_ours, large.write_plain, scale, clean=large.clean)
    large.clean()
    large.write_plain()
    large.write_ours()
    answer = large.answer()
    yield Result(
        "storage.file.write_large",
        "share of plain file write with fsync",
        written,
        answer,
        ">= 0.8",
        parameters,
    )
    for size in (large.handle_bytes, len(large.piece)):
        yield Result(
            "storage.file.read_large",
            f"share of plain file read of the same bytes by {size // _MIB} MiB",
            compare(large.read_ours, partial(large.read_plain, size), scale),
            answer,
            ">= 0.8",
            parameters,
        )


def write_handles(job: JobStorage, piece: bytes, handle_bytes: int, count: int) -> list[Handle]:
    """Write one file of so many handles, each of the piece over and over."""
    handles = []
    with job.segments(1) as writer:
        for _ in range(count):
            with writer.stream() as segment:
                for _ in range(handle_bytes // len(piece)):
                    segment.write(piece)
            handles.append(segment.handle)
    return handles


def _small(scale: Scale, root: Path) -> Iterator[Result]:
    count = scale.pick(10_000, 500)
    job = load_storage(str(root / "ours"), inline_limit_bytes=0).job("small")
    job.storage.prepare()
    data = random.Random(7).randbytes(100 * count)
    segments = [data[start : start + 100] for start in range(0, len(data), 100)]
    handles: list[Handle] = []

    def write() -> None:
        with job.segments(1) as writer:
            handles[:] = map(writer.add, segments)

    def read() -> None:
        answers[:] = job.read_all(handles)

    answers: list[bytes] = []
    parameters = {"segments": count, "segment_bytes": 100}
    rates = rate(write, count, scale)
    yield Result(
        "storage.file.write_small",
        "segments/s",
        rates,
        f"{len(handles)} handles",
        ">= 200000",
        parameters,
    )
    rates = rate(read, count, scale)
    answer = xxhash.xxh3_64_hexdigest(b"".join(answers))
    yield Result("storage.file.read_small", "segments/s", rates, answer, ">= 200000", parameters)


def _memory(scale: Scale, root: Path) -> Result:
    """Peak memory above the start, in a process of its own that streams both ways."""
    mebibytes = scale.pick(1024, 16)
    command = [sys.executable, "-m", "benchmarks.storage_files", str(root), str(mebibytes)]
    samples = []
    for _ in range(scale.repetitions):
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        samples.append(float(answer))
    return Result(
        "storage.file.stream_memory",
        "MiB above the start",
        tuple(samples),
        f"{mebibytes} MiB streamed",
        "< 64",
        {"mebibytes": mebibytes},
    )


def _stream_through(root: str, mebibytes: int) -> float:
    """How far the peak of memory rises while a segment is written and read back, in MiB."""
    job = load_storage(f"{root}/memory").job("memory")
    piece = random.Random(7).randbytes(_MIB)
    before = peak_memory_bytes()
    (handle,) = write_handles(job, piece, mebibytes * _MIB, 1)
    if sum(map(len, job.stream(handle))) != mebibytes * _MIB:
        raise AssertionError("what was read is not what was written")
    job.storage.delete([f"{job.folder}/{handle.file}"])  # type: ignore[union-attr]
    return (peak_memory_bytes() - before) / _MIB


if __name__ == "__main__":
    print(_stream_through(sys.argv[1], int(sys.argv[2])))
