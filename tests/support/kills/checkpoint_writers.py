"""Writers of checkpoints that are killed: the child side of `test_kill.py`.

`python checkpoint_writers.py ROOT` reads a seed a line, forks a writer for each and prints what it
said, as one JSON line. Forking from here spares each writer the start of Python. The writer works
on job "job" at ROOT and kills itself with SIGKILL before, after or in the middle of a call to the
operating system that its seed chose.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

from holdfast.storage import (
    CheckpointMetadata,
    Handle,
    JobOwner,
    JobStorage,
    OperatorState,
    StateSnapshot,
    load_storage,
)
from holdfast.storage.segments.handles import block_checksum
from holdfast.storage.testing.example_jobs import remove, retain

KEEP = 3
CHECKPOINTS = 6
CALLS = ("open", "write", "fsync", "link", "replace", "unlink", "mkdir", "rmdir")
HIGHEST_CALL = 220
Say = Callable[[str, int], None]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(chance: random.Random) -> None:
    """Count calls to the operating system, and die at one of them."""
    fatal = chance.randrange(HIGHEST_CALL)
    before = chance.random() < 0.5
    numbers = itertools.count(1)  # of which no two threads get the same

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(numbers) != fatal:
                return real(*arguments, **options)
            try:
                if name == "write":  # a torn write
                    descriptor, data = arguments
                    real(descriptor, memoryview(data)[: chance.randrange(len(data) + 1)])
                elif not before:
                    real(*arguments, **options)
            finally:
                die()

        return call

    for name in CALLS:
        setattr(os, name, counted(name, getattr(os, name)))


def write_checkpoint(
    job: JobStorage, owner: JobOwner, chance: random.Random, before: list[Handle]
) -> tuple[CheckpointMetadata, list[Handle]]:
    """A checkpoint of a few segments, some in a shared file that the next one refers to too."""
    number = owner.next_checkpoint_id
    data = [chance.randbytes(chance.choice((10, 10_000, 90_000))) for _ in range(4)]
    with job.segments(number) as writer, job.shared_segments(number) as shared:
        own = [writer.add(part) for part in data]
        kept = [shared.add(data[0])]
    handles = {str(i): handle for i, handle in enumerate([*own, *before, *kept])}
    part = StateSnapshot(
        kind="killed",
        handles=handles,
        attributes={"sums": [block_checksum(piece) for piece in job.read_all(handles.values())]},
    )
    state = OperatorState(parallelism=1, max_parallelism=128, parts=(part,))
    metadata = CheckpointMetadata(
        job_id=job.job_id,
        checkpoint_id=number,
        triggered_ms=0,
        completed_ms=0,
        operators={"operator": state},
    )
    return metadata, kept


def work(root: str, seed: int, say: Say) -> None:
    """Take over, commit, retain and clean, and say each step before and after."""
    chance = random.Random(seed)
    job = load_storage(root).job("job")
    arm(chance)
    owner = job.take_over()
    kept: list[Handle] = []
    for _ in range(CHECKPOINTS):
        metadata, kept = write_checkpoint(job, owner, chance, kept)
        say("committing", metadata.checkpoint_id)
        owner.commit(metadata)
        say("committed", metadata.checkpoint_id)
        say("retaining", KEEP)
        retain(owner, KEEP)
        say("retained", KEEP)
        if chance.random() < 0.3:
            remove(owner, owner.orphans())
    say("done", 0)


def run_child(root: str, seed: int) -> list[tuple[str, int]]:
    """Fork a writer; what it said until it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        real_write = os.write

        def say(word: str, number: int) -> None:
            real_write(writing, f"{word} {number}\n".encode())

        try:
            work(root, seed, say)
        except BaseException as error:  # noqa: BLE001 - the parent must hear of anything
            real_write(writing, f"failed:{type(error).__name__}:{error!s} 0\n".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        lines = said.read().splitlines()
    os.waitpid(child, 0)
    return [(line.rpartition(" ")[0], int(line.rpartition(" ")[2])) for line in lines]


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run_child(sys.argv[1], int(line))) + "\n")
        sys.stdout.flush()
