"""Other processes, and the calls that they make on a storage that is sent to them.

They are started once for a test run, by `spawn`: nothing is inherited, so a storage gets there by
pickle alone, as it gets to a slot on another machine.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any, TypeVar

from holdfast.storage.errors import Fenced, Taken
from holdfast.storage.interface import ObjectStorage
from holdfast.storage.jobs.job import JobStorage
from holdfast.storage.jobs.metadata import CheckpointMetadata
from holdfast.storage.segments.handles import Handle
from holdfast.storage.testing.checks import pattern

__all__ = [
    "COUNT",
    "at_once",
    "commit_until_fenced",
    "create_each",
    "half_written",
    "look",
    "mix",
    "put",
    "read_segments",
    "run",
    "write_segments",
]

COUNT = 3
_WAIT_S = 60

_Answer = TypeVar("_Answer")

_barrier: Barrier | None = None


def run(work: Callable[..., _Answer], storage: ObjectStorage, *arguments: Any) -> _Answer:
    """The answer of `work` in another process."""
    return _pool().submit(work, storage, *arguments).result(_WAIT_S)


def at_once(work: Callable[..., _Answer], storage: ObjectStorage, *arguments: Any) -> list[_Answer]:
    """The answers of `work` in `COUNT` processes that begin it together.

    Each gets its own number, from 0 on, after the storage.
    """
    tasks = [
        _pool().submit(_together, work, storage, number, *arguments) for number in range(COUNT)
    ]
    return [task.result(_WAIT_S) for task in tasks]


@contextmanager
def half_written(storage: ObjectStorage, names: list[str]) -> Iterator[Callable[[], None]]:
    """Another process that has begun to write each name; the returned call kills it by SIGKILL."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_write_and_wait, args=(there, storage, names))
    process.start()
    there.close()

    def kill() -> None:
        process.kill()
        process.join(_WAIT_S)

    try:
        if not here.poll(_WAIT_S) or here.recv() != "written":
            raise AssertionError("another process could not begin to write")
        yield kill
    finally:
        kill()
        process.close()
        here.close()


def put(storage: ObjectStorage, objects: dict[str, bytes], gone: list[str]) -> None:
    """Write and delete objects."""
    for name, data in objects.items():
        storage.write(name, data)
    storage.delete(gone)


def look(storage: ObjectStorage) -> dict[str, bytes]:
    """Every object that this process sees."""
    return {info.name: storage.read(info.name) for info in storage.list("")}


def create_each(storage: ObjectStorage, number: int, names: list[str]) -> dict[str, bytes]:
    """The names that this process created, out of all that it tried."""
    won = {}
    for name in names:
        mine = pattern(200, f"{number}/{name}")
        if storage.create(name, mine) is None:
            won[name] = mine
    return won


def mix(storage: ObjectStorage, number: int, rounds: int) -> str:
    """Make every call on names of its own; answers the failure, or nothing."""
    for turn in range(rounds):
        name, data = f"mixed/{number}/{turn:03}", pattern(500 + turn, f"{number}/{turn}")
        storage.write(name, data)
        if storage.create(name, b"late") != data:
            return f"{name} was not there for create, just after it was written"
        if storage.read_range(name, 100, 50) != data[100:150]:
            return f"{name} did not read as it was written"
        if name not in [info.name for info in storage.list(f"mixed/{number}/")]:
            return f"{name} was not listed, just after it was written"
        if turn % 3 == 0:
            storage.delete([name])
            if name in [info.name for info in storage.list(f"mixed/{number}/")]:
                return f"{name} was listed, just after it was deleted"
    return ""


def commit_until_fenced(
    storage: ObjectStorage, number: int, job_id: str, rounds: int
) -> dict[int, int]:
    """Take the job over again and again and commit; answers the epochs of commits that held."""
    held = {}
    for _ in range(rounds):
        try:
            owner = JobStorage(storage, job_id).take_over()
            for _ in range(rounds):
                checkpoint = CheckpointMetadata(
                    job_id=job_id,
                    checkpoint_id=owner.next_checkpoint_id,
                    triggered_ms=number,
                    completed_ms=number,
                )
                with suppress(Taken):  # by a fenced owner: the next number is free again
                    held[owner.commit(checkpoint).checkpoint_id] = owner.epoch
        except Fenced:
            continue
    return held


def write_segments(storage: ObjectStorage, job_id: str, contents: list[bytes]) -> list[Handle]:
    """Write segments as a slot does, all in a file."""
    with JobStorage(storage, job_id).shared_segments(1) as writer:
        return [writer.add(content) for content in contents]


def read_segments(storage: ObjectStorage, job_id: str, handles: list[Handle]) -> list[bytes]:
    """Read segments as a restore does."""
    return list(JobStorage(storage, job_id).read_all(handles))


@cache
def _pool() -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(
        COUNT, mp_context=context, initializer=_meet_at, initargs=(context.Barrier(COUNT),)
    )


def _meet_at(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603 (it can be passed only while a process starts)
    _barrier = barrier


def _together(work: Callable[..., _Answer], *arguments: Any) -> _Answer:
    assert _barrier is not None
    _barrier.wait(_WAIT_S)
    return work(*arguments)


def _write_and_wait(parent: Connection, storage: ObjectStorage, names: list[str]) -> None:
    writers = [storage.writer(name) for name in names]
    for writer in writers:
        writer.write(pattern(300_000))
    parent.send("written")
    parent.recv()  # nothing comes: the parent kills this process
