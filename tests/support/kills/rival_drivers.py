"""Drivers that fight for a job: the child side of `test_remote_campaign.py`.

`python rival_drivers.py`, with the credentials in its environment, reads a `Fight` a line as JSON,
forks its drivers, and prints what each of them said, as one JSON line. Each takes the job over,
commits, retains and cleans as if it were alone, is fenced, takes it over again; some are killed, at
a call to the storage or at any moment.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    Fenced,
    Handle,
    HoldfastError,
    JobOwner,
    JobStorage,
    SystemClock,
    Taken,
    Unavailable,
    load_storage,
)
from holdfast.storage.testing.example_jobs import remove, retain
from support.kills.checkpoint_writers import die, write_checkpoint

__all__ = ["DRIVERS", "KEEP", "Fight", "HurriedClock"]

DRIVERS = 2
KEEP = 3
_CHECKPOINTS = 5
_LIVES = 3
_LONGEST_PAUSE_S = 0.02
_CALLS = ("create", "delete", "list", "read_range", "unfinished", "writer")
_HIGHEST_CALL = 150
_LONGEST_LIFE_S = 2.0
_LONGEST_FIGHT_S = 120
_COMMIT_TRIES = 10
Say = Callable[[str, int], None]


@dataclass(frozen=True)
class Fight:
    """One job, and the seed of all that its drivers do."""

    url: str
    options: Mapping[str, Any]
    job_id: str
    seed: int

    def as_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"


class HurriedClock(SystemClock):
    """Pauses between tries are short: the faults of a test do not go away by waiting."""

    def sleep_s(self, seconds: float) -> None:
        super().sleep_s(min(seconds, _LONGEST_PAUSE_S))


def arm(storage: object, chance: random.Random) -> None:
    """Some live, some die at a call to the storage, some at any moment, in the midst of a call."""
    fate = chance.random()
    if fate < 0.35:
        return
    if fate < 0.65:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # as bad as SIGKILL, and has a timer
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.01, _LONGEST_LIFE_S))
        return
    fatal, before, count = chance.randrange(_HIGHEST_CALL), chance.random() < 0.5, 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal count
            count += 1
            if count != fatal:
                return real(*arguments)
            with suppress(HoldfastError):
                if not before:
                    real(*arguments)
            return die()

        return call

    for name in _CALLS:
        setattr(storage, name, counted(getattr(storage, name)))


def commit(owner: JobOwner, metadata: CheckpointMetadata) -> bool:
    """Commit a checkpoint, however often that takes to be decided; whether it is ours."""
    for turn in range(_COMMIT_TRIES):
        try:
            owner.commit(metadata)
        except Taken:
            return False
        except Unavailable:
            if turn == _COMMIT_TRIES - 1:
                raise
        else:
            break
    return True


def own(job: JobStorage, chance: random.Random, say: Say) -> None:
    """Take the job over, and do what an owner does; a checkpoint may fail."""
    owner = job.take_over()
    say("owns", owner.epoch)
    kept: list[Handle] = []
    for _ in range(_CHECKPOINTS):
        try:
            metadata, shared = write_checkpoint(job, owner, chance, kept)
        except Unavailable as error:
            say(f"unwritten: {error!s}", 0)
            continue
        except Corrupt:
            owner.check()  # a fenced driver may miss files that the new owner has removed
            raise
        say("committing", metadata.checkpoint_id)
        is_ours = commit(owner, metadata)
        say("committed" if is_ours else "taken", metadata.checkpoint_id)
        kept = shared if is_ours else []
        retain(owner, KEEP)
        if chance.random() < 0.3:
            remove(owner, owner.orphans())


def drive(fight: Fight, driver: int, say: Say) -> None:
    """The life of one driver."""
    chance = random.Random(f"{fight.seed}/{driver}")
    storage = load_storage(fight.url, **fight.options, clock=HurriedClock())
    with suppress(Unavailable):  # to connect takes long, and has nothing to do with the fight
        storage.prepare()
    arm(storage, chance)
    job = storage.job(fight.job_id)
    for _ in range(chance.randrange(1, _LIVES + 1)):
        try:
            own(job, chance, say)
        except Fenced:
            say("fenced", 0)
        except Unavailable as error:
            say(f"gave up: {error!s}", 0)
    say("done", 0)


def start(fight: Fight, driver: int) -> tuple[int, int]:
    """Fork a driver; its process and where it says what it does."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    os.close(reading)
    signal.alarm(_LONGEST_FIGHT_S)

    def say(word: str, number: int) -> None:
        os.write(writing, json.dumps([word, number]).encode() + b"\n")

    try:
        drive(fight, driver, say)
    except BaseException as error:  # noqa: BLE001 - the parent must hear of anything
        say(f"failed: {type(error).__name__}: {error!s}", 0)
    os._exit(0)


def run(fight: Fight) -> list[list[tuple[str, int]]]:
    """What each driver said until it ended."""
    load_storage(fight.url, **fight.options)  # what it imports the drivers have, then
    children = [start(fight, driver) for driver in range(DRIVERS)]
    said = []
    for child, reading in children:
        with os.fdopen(reading) as lines:
            said.append([json.loads(line) for line in lines])
        os.waitpid(child, 0)
    return said


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(Fight(**json.loads(line)))) + "\n")
        sys.stdout.flush()
