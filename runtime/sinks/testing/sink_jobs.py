"""Jobs with nothing but a sink, for tests: slots, checkpoints, notifications, crashes.

The stream is the row numbers 0, 1, 2 …; a checkpoint's position says how many of them it holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.backends import HashMapStateBackend, key_groups_of_slots
from holdfast.runtime.operators.commit_tries import commit_until_answered
from holdfast.runtime.operators.sink_operator import SinkOperator, SinkSpec
from holdfast.runtime.protocol.operator import Committer, OperatorContext
from holdfast.runtime.sinks import TwoPhaseCommitSink
from holdfast.storage import (
    CheckpointMetadata,
    Clock,
    JobOwner,
    JobStorage,
    ManualClock,
    OperatorState,
    StateSnapshot,
)

__all__ = [
    "CRASHES",
    "MAX_PARALLELISM",
    "SCHEMA",
    "UID",
    "Attempt",
    "Begun",
    "CommitsAtOnce",
    "Driver",
    "Step",
    "crash_after_acknowledgement",
    "crash_after_metadata",
    "crash_after_notification",
    "crash_after_prepare",
    "crash_after_writing",
    "crash_between_notifications",
    "crash_in_prepare",
    "rows",
]

UID = "out"
SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])
MAX_PARALLELISM = 128


def rows(first: int, end: int, *, step: int = 1) -> pa.RecordBatch:
    """Rows of these numbers."""
    numbers = list(range(first, end, step))
    return pa.record_batch([numbers, [f"row {number}" for number in numbers]], schema=SCHEMA)


class CommitsAtOnce(Committer):
    """Commits while the operator says that it shall, and not in a thread of its own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def commit(
        self,
        call: Callable[[], None],
        done: Callable[[], None] = lambda: None,
        *,
        what: str,
        deadline_s: float = math.inf,
    ) -> None:
        commit_until_answered(
            call, self._clock, what=what, pause=self._clock.sleep_s, deadline_s=deadline_s
        )
        done()

    def wait(self) -> None:
        """All are made."""


class Driver:
    """What collecting sinks hand their parts to; it outlives attempts."""

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}

    def collect(self, uid: str, part: str, rows: bytes) -> None:
        assert uid == UID
        assert self.parts.setdefault(part, rows) == rows


_NO_OUTPUT: Any = None
"""A sink emits nothing."""


@dataclass
class Begun:
    """A checkpoint in flight."""

    checkpoint_id: int
    position: int
    parts: list[StateSnapshot] = field(default_factory=list)


class Attempt:
    """One attempt of a job: as many slots as it likes, from the latest checkpoint on."""

    def __init__(
        self,
        sink: TwoPhaseCommitSink[Any],
        job: JobStorage,
        *,
        parallelism: int = 1,
        number: int = 0,
        driver: Driver | None = None,
        clock: Clock | None = None,
        owner: JobOwner | None = None,
    ) -> None:
        self.job = job
        self.owner = owner or job.take_over()
        latest = job.latest()
        self.position = latest.properties["position"] if latest else 0
        self.restored = latest.operators[UID].parts if latest else ()
        self.next_id = self.owner.next_checkpoint_id
        self.number = number
        self.parallelism = parallelism
        self.driver = driver or Driver()
        self.clock = clock or ManualClock()
        self.slots: list[SinkOperator] = []
        spec = SinkSpec(uid=UID, name="sink", input_schema=SCHEMA, sink=sink)
        self.slots = [spec.build() for _ in range(parallelism)]
        self.opened = 0

    def open_one(self) -> None:
        slot = self.opened
        self.slots[slot].open(self.context(slot))
        self.opened += 1

    def open(self) -> Attempt:
        while self.opened < self.parallelism:
            self.open_one()
        return self

    def context(self, slot: int) -> OperatorContext:
        return OperatorContext(
            uid=UID,
            slot=slot,
            parallelism=self.parallelism,
            max_parallelism=MAX_PARALLELISM,
            attempt=self.number,
            epoch=self.owner.epoch,
            key_groups=key_groups_of_slots(self.parallelism, MAX_PARALLELISM)[slot],
            job=self.job,
            backend=HashMapStateBackend(),
            restored=self.restored,
            first_checkpoint_id=self.next_id,
            clock=self.clock,
            output=_NO_OUTPUT,
            collect=self.driver.collect,
            committer=CommitsAtOnce(self.clock),
        )

    def feed(self, count: int) -> None:
        end = self.position + count
        for slot, operator in enumerate(self.slots):
            operator.process(rows(self.position + slot, end, step=self.parallelism), 0)
        self.position = end

    def prepare(self) -> Begun:
        begun = Begun(self.next_id, self.position)
        self.next_id += 1
        for operator in self.slots:
            operator.prepare(begun.checkpoint_id)
        return begun

    def snapshot(self, begun: Begun) -> Begun:
        for slot, operator in enumerate(self.slots):
            target: Any = self.job
            begun.parts += [
                future.result(30) for future in operator.snapshot(begun.checkpoint_id, target)
            ]
            assert begun.parts[-1].slot == slot
        return begun

    def begin(self) -> Begun:
        return self.snapshot(self.prepare())

    def commit(self, begun: Begun) -> None:
        state = OperatorState(
            parallelism=self.parallelism,
            max_parallelism=MAX_PARALLELISM,
            parts=tuple(begun.parts),
        )
        self.owner.commit(
            CheckpointMetadata(
                job_id=self.job.job_id,
                checkpoint_id=begun.checkpoint_id,
                triggered_ms=0,
                completed_ms=0,
                operators={UID: state},
                properties={"position": begun.position},
            )
        )

    def notify(self, checkpoint_id: int) -> None:
        for operator in self.slots:
            operator.completed(checkpoint_id)

    def checkpoint(self) -> Begun:
        begun = self.begin()
        self.commit(begun)
        self.notify(begun.checkpoint_id)
        return begun

    def finish(self) -> None:
        for operator in self.slots:
            while operator.finish():
                pass
        self.checkpoint()
        self.close()

    def close(self) -> None:
        for operator in self.slots:
            operator.close()


Step = Callable[[Attempt], None]


def crash_after_writing(attempt: Attempt) -> None:
    """Rows are written, and no checkpoint has begun."""
    attempt.feed(7)


def crash_in_prepare(attempt: Attempt) -> None:
    """One slot has prepared what it wrote, and no other."""
    attempt.feed(7)
    attempt.slots[0].prepare(attempt.next_id)


def crash_after_prepare(attempt: Attempt) -> None:
    """All slots have prepared, and have not acknowledged it."""
    attempt.feed(7)
    attempt.prepare()


def crash_after_acknowledgement(attempt: Attempt) -> None:
    """All is acknowledged, and the checkpoint not committed."""
    attempt.feed(7)
    attempt.begin()


def crash_after_metadata(attempt: Attempt) -> None:
    """The checkpoint is committed, and no slot has heard of it."""
    attempt.feed(7)
    attempt.commit(attempt.begin())


def crash_between_notifications(attempt: Attempt) -> None:
    """One slot has heard of it, and no other."""
    attempt.feed(7)
    begun = attempt.begin()
    attempt.commit(begun)
    attempt.slots[-1].completed(begun.checkpoint_id)


def crash_after_notification(attempt: Attempt) -> None:
    """All have committed what is theirs."""
    attempt.feed(7)
    attempt.checkpoint()


CRASHES: tuple[Step, ...] = (
    crash_after_writing,
    crash_in_prepare,
    crash_after_prepare,
    crash_after_acknowledgement,
    crash_after_metadata,
    crash_between_notifications,
    crash_after_notification,
)
