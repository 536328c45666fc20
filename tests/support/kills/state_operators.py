"""Operators that are killed: the child side of `backends/test_kill.py`, and what both sides know.

`python state_operators.py ROOT BACKEND` reads `STORY LIFE` a line, forks a process that lives this
life of the story, and prints what it said as one JSON line. A story is a sequence of steps that
follows from its number alone. A life restores the story's last checkpoint, goes on from there, and
kills itself with SIGKILL: at a step, also while snapshots are written, or at a call to the
operating system, also in a thread that writes one.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from holdfast.backends import SnapshotFuture, StateBackend, StateVisibility
from holdfast.backends.snapshots import file_uploads as file_snapshots
from holdfast.backends.snapshots.neutral import SnapshotForm
from holdfast.backends.testing.model.fleet import UID, Fleet, Settings
from holdfast.backends.testing.model.model import Model, ModelTimer
from holdfast.backends.testing.model.subjects import (
    KEY_KINDS,
    SUBJECT_COUNT,
    TIMER_NAMESPACES,
    TTLS,
    Action,
    Picks,
    action_of,
    subjects_of,
)
from holdfast.storage import (
    CheckpointMetadata,
    JobOwner,
    JobStorage,
    ManualClock,
    OperatorState,
    load_storage,
)
from holdfast.storage.testing.example_jobs import retain
from support.kills.checkpoint_writers import arm, die
from support.states.tried_backends import backend_named

STEPS = 10_000
LONGEST_LIFE = 250
START_MS = 1_000_000
_RETAINED = 2
_IN_FLIGHT = 3
_VISIBLE = [
    ttl for ttl in TTLS if ttl is None or ttl.visibility is StateVisibility.NEVER_RETURN_EXPIRED
]
"""What is past its time is not seen: a life that ended and one that went on must be the same."""

Say = Callable[[str, int], None]


class Player(Protocol):
    """What goes through a story: live slots, or the model."""

    def do(self, action: Action) -> Any: ...
    def register(self, timer: ModelTimer) -> None: ...
    def delete(self, timer: ModelTimer) -> None: ...
    def fire(self, domain: str, until: int, again: int) -> list[ModelTimer]: ...


class Story:
    """The steps of one job, the same for every process that does them."""

    def __init__(self, number: int) -> None:
        self.number = number
        chance = random.Random(number)
        self.key_kind = KEY_KINDS[chance.choice(sorted(KEY_KINDS))]
        self.max_parallelism = chance.choice((4, 128))
        self.subjects = subjects_of([chance.choice(_VISIBLE) for _ in range(SUBJECT_COUNT)])
        self.declares_keys = chance.random() < 0.5

    def play(self, step: int, player: Player, advance: Callable[[int], None]) -> None:
        """Take one step; `advance` moves the clock."""
        chance = random.Random(self.number * STEPS + step)
        keys = self.key_kind.keys
        sort = chance.random()
        domain = chance.choice(("event", "processing"))
        if sort < 0.8:
            player.do(action_of(chance.choice(list(self.subjects.values())), keys, _picks(chance)))
        elif sort < 0.9:
            change = player.register if chance.random() < 0.8 else player.delete
            space = chance.choice(TIMER_NAMESPACES)
            change(ModelTimer(domain, step + chance.randrange(50), chance.choice(keys), space))
        elif sort < 0.95:
            player.fire(domain, step, chance.choice((0, 1)))
        else:
            advance(chance.choice((1, 400, 1000)))

    def settings(self, backend: StateBackend, job: JobStorage, clock: ManualClock) -> Settings:
        """How its operator is opened."""
        return Settings(
            backend=backend,
            key_kind=self.key_kind,
            max_parallelism=self.max_parallelism,
            clock=clock,
            job=job,
            declares_keys=self.declares_keys,
        )


class Telling:
    """The model going through a story, as far as one likes."""

    def __init__(self, number: int) -> None:
        self.story = Story(number)
        self.clock = ManualClock(START_MS)
        self.model = Model(self.story.subjects, START_MS)
        self.step = 0
        for name in self.story.subjects:
            self.model.declare(name)

    def go_to(self, step: int) -> None:
        """Take the steps up to before this one."""
        for each in range(self.step, step):
            self.story.play(each, self.model, self._advance)
        self.step = step

    def _advance(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.model.advance(self.clock.now_ms())


class Life:
    """A process that goes through a story with live slots, from the last checkpoint on."""

    def __init__(
        self, job: JobStorage, backend: StateBackend, story: Story, chance: random.Random
    ) -> None:
        self.story = story
        self.chance = chance
        self.owner: JobOwner = job.take_over()
        latest = job.latest()
        properties = latest.properties if latest else {"step": 0, "now_ms": START_MS}
        self.step: int = properties["step"]
        self.clock = ManualClock(properties["now_ms"])
        self.job = job
        self.next_number = self.owner.next_checkpoint_id
        self.flights: deque[tuple[CheckpointMetadata, list[SnapshotFuture]]] = deque()
        self.bases: deque[int | None] = deque()
        """What each of these builds on."""
        self.fleet = Fleet(
            story.settings(backend, job, self.clock),
            story.subjects,
            parallelism=chance.randrange(1, 4),
            restore=latest.operators[UID].parts if latest else (),
            builds_on_restored=True,
            first_checkpoint_id=self.next_number,
        )
        for name in story.subjects:
            self.fleet.declare(name)
        self.fleet.load_timers()

    def run(self, fatal_step: int, say: Say) -> None:
        """Go on to the end, or to the step that is fatal."""
        for step in range(self.step, STEPS):
            if step == fatal_step:
                die()
            self.story.play(step, self.fleet, self.clock.advance)
            if self.chance.random() < 0.5:
                self.fleet.tend()
            if self.chance.random() < 0.06:
                if len(self.flights) == _IN_FLIGHT:
                    self._commit(say)
                self._begin(step + 1, say)
            while self.flights and all(future.done() for future in self.flights[0][1]):
                self._commit(say)
        self._begin(STEPS, say)
        while self.flights:
            self._commit(say)

    def _begin(self, step: int, say: Say) -> None:
        metadata = CheckpointMetadata(
            job_id=self.job.job_id,
            checkpoint_id=self.next_number,
            triggered_ms=self.clock.now_ms(),
            completed_ms=self.clock.now_ms(),
            properties={"step": step, "now_ms": self.clock.now_ms()},
        )
        self.next_number += 1
        compression = self.chance.choice(("", "lz4"))
        form = SnapshotForm.NEUTRAL if self.chance.random() < 0.3 else SnapshotForm.OWN
        futures = self.fleet.begin(
            metadata.checkpoint_id, self.job, compression=compression, form=form
        )
        self.flights.append((metadata, futures))
        self.bases.append(max(self.owner.completed, default=None))
        say("began", metadata.checkpoint_id)

    def _commit(self, say: Say) -> None:
        begun, futures = self.flights.popleft()
        self.bases.popleft()
        parts = tuple(future.result(60) for future in futures)
        state = OperatorState(
            parallelism=len(parts), max_parallelism=self.story.max_parallelism, parts=parts
        )
        known = {name: getattr(begun, name) for name in begun.__struct_fields__}
        self.owner.commit(CheckpointMetadata(**{**known, "operators": {UID: state}}))
        say("committed", begun.checkpoint_id)
        self.fleet.completed(begun.checkpoint_id)
        bases = [base for base in self.bases if base is not None]
        retain(self.owner, _RETAINED, since=min(bases, default=None))


def job_of(root: str, number: int, inline_limit_bytes: int = 0) -> JobStorage:
    """The folder of a story's job."""
    return load_storage(root, inline_limit_bytes=inline_limit_bytes).job(f"story-{number}")


def backend_of(root: str, name: str) -> StateBackend:
    """A backend whose files are beside the jobs' folders."""
    return backend_named(name, Path(root) / "state")


def live(root: str, backend: str, number: int, life: int, say: Say) -> None:
    """Live one life of a story."""
    chance = random.Random(life)
    story = Story(number)
    job = job_of(root, number, chance.choice((0, 5_000)))
    sys.setswitchinterval(chance.choice((0.00005, 0.005)))
    file_snapshots._SHARED_FROM_BYTES = chance.choice((1, 64 * 1024))
    at_a_call = chance.random() < 0.5
    if at_a_call:
        arm(chance)
    alive = Life(job, backend_of(root, backend), story, chance)
    say("restored", alive.step)
    fatal_step = -1 if at_a_call else alive.step + chance.randrange(LONGEST_LIFE)
    alive.run(fatal_step, say)
    alive.fleet.close()
    say("done", STEPS)


def run_child(root: str, backend: str, number: int, life: int) -> list[tuple[str, int]]:
    """Fork a process for a life; what it said until it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        real_write = os.write

        def say(word: str, about: int) -> None:
            real_write(writing, f"{word} {about}\n".encode())

        try:
            live(root, backend, number, life, say)
        except BaseException as error:  # noqa: BLE001 - the parent must hear of anything
            what = str(error).replace("\n", " ")
            real_write(writing, f"failed:{type(error).__name__}:{what} 0\n".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        lines = said.read().splitlines()
    os.waitpid(child, 0)
    return [(line.rpartition(" ")[0], int(line.rpartition(" ")[2])) for line in lines]


def _picks(chance: random.Random) -> Picks:
    return Picks(
        verb=chance.randrange(12),
        key=chance.randrange(8),
        namespace=chance.randrange(3),
        more=tuple(chance.randrange(24) for _ in range(chance.randrange(1, 5))),
        as_column=chance.random() < 0.5,
    )


if __name__ == "__main__":
    for line in sys.stdin:
        told = run_child(sys.argv[1], sys.argv[2], *map(int, line.split()))
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
