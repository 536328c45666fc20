"""Runs of a job of one operator, in several slots: as the driver and its slots do, by hand.

A slot has a backend of its own, as a process has. Checkpoints are committed, told and retained;
between them slots are tended, and time passes when the test says so.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import msgspec

from holdfast.backends import KeyedStateBackend, SnapshotFuture, StateBackend, key_groups_of_slots
from holdfast.backends.keyed.backend import EarlyFiles
from holdfast.backends.snapshots.logs import LOGGED_KIND, LoggedAttributes
from holdfast.backends.snapshots.neutral import SnapshotForm
from holdfast.storage import (
    CheckpointMetadata,
    JobStorage,
    ManualClock,
    OperatorState,
    SegmentWriter,
    StateFolder,
    StateSnapshot,
    SystemClock,
)
from holdfast.storage.testing.example_jobs import remove, retain
from support.states.logged_steps import GROUPS, NOW_MS, UID, Content, Step, apply, content, steps

__all__ = ["Begun", "LoggedRun", "lasting", "log_of", "parts_of"]

_WAIT_S = 60
_ABOVE_ALL = 10**15


@dataclass(frozen=True)
class Begun:
    """A checkpoint under way, and the one that was the newest when it began."""

    number: int
    base: int | None
    futures: Sequence[SnapshotFuture]


class LoggedRun:
    """One attempt; `from_job` is where the state of `restored` is, if it is of another job."""

    def __init__(
        self,
        job: JobStorage,
        backend: StateBackend,
        *,
        parallelism: int = 1,
        restored: CheckpointMetadata | None = None,
        from_job: StateFolder | None = None,
        retained: int = 1,
        key_type: Any = int,
        now_ms: int = NOW_MS,
    ) -> None:
        self.job = job
        self.owner = job.take_over()
        self.clock = ManualClock(now_ms)
        self._retained = retained
        self.number = self.owner.next_checkpoint_id
        remove(self.owner, self.owner.orphans(in_flight=range(self.number, _ABOVE_ALL)))
        self.slots: list[KeyedStateBackend] = []
        self.backends: list[StateBackend] = []
        """Of each slot."""
        self._under_way: list[Begun] = []
        try:
            for key_groups in key_groups_of_slots(parallelism, GROUPS):
                mine: StateBackend = pickle.loads(pickle.dumps(backend))
                self.backends.append(mine)
                slot = mine.open(
                    uid=UID,
                    key_groups=key_groups,
                    max_parallelism=GROUPS,
                    key_type=key_type,
                    restore=[] if restored is None else parts_of(restored),
                    storage=from_job or job,
                    clock=self.clock,
                    early=EarlyFiles(job, self.number),
                    allow_pickle=True,
                )
                self.slots.append(slot)
                if restored is not None and from_job is None:
                    slot.build_on_restored()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for slot in self.slots:
            slot.close()

    def change(self, every: Iterable[Step], *, tends_each: int = 20, passes_s: float = 0.1) -> None:
        """Make changes; after so many the slots are tended, and so much time has passed."""
        for number, each in enumerate(every):
            for slot in self.slots:
                apply(slot, [each])
            if number % tends_each == 0:
                self.tend(passes_s)

    def tend(self, passes_s: float = 0.1) -> list[bool]:
        """Whether each slot has room."""
        self.clock.advance(round(passes_s * 1000))
        return [slot.tend() for slot in self.slots]

    def tend_until(self, is_so: Callable[[], bool]) -> None:
        """Until it is so; threads in the background need real time for what they do."""
        real = SystemClock()
        deadline_s = real.monotonic_s() + _WAIT_S
        while not is_so():
            assert real.monotonic_s() < deadline_s
            self.tend()
            real.sleep_s(0.001)

    def numbers(self, name: str) -> list[float]:
        """A metric of each slot's operator."""
        return [slot.metrics().store[name] for slot in self.slots]

    def snapshot(self) -> list[StateSnapshot]:
        """The part of each slot in the next checkpoint."""
        return [future.result(_WAIT_S) for future in self.begin().futures]

    def begin(self, *, form: SnapshotForm = SnapshotForm.OWN) -> Begun:
        """Begin the next checkpoint."""
        target, number = _SlotFiles(self.job), self.number
        self.number += 1
        base = max(self.owner.completed, default=None)
        futures = [slot.snapshot(number, target, form=form) for slot in self.slots]
        begun = Begun(number, base, futures)
        self._under_way.append(begun)
        return begun

    def complete(self, begun: Begun) -> CheckpointMetadata:
        """Complete one: it is told, and what those under way cannot need is deleted."""
        parts = [future.result(_WAIT_S) for future in begun.futures]
        state = OperatorState(
            parallelism=len(self.slots), max_parallelism=GROUPS, parts=tuple(parts)
        )
        written = self.owner.commit(
            CheckpointMetadata(
                job_id=self.job.job_id,
                checkpoint_id=begun.number,
                triggered_ms=0,
                completed_ms=0,
                operators={UID: state},
            )
        )
        for slot in self.slots:
            slot.notify_checkpoint_complete(begun.number)
        self._under_way.remove(begun)
        bases = [each.base for each in self._under_way if each.base is not None]
        retain(self.owner, self._retained, since=min(bases, default=None))
        return written

    def give_up(self, begun: Begun) -> None:
        """One will not be completed."""
        self._under_way.remove(begun)
        for slot in self.slots:
            slot.notify_checkpoint_aborted(begun.number)

    def checkpoint(self) -> CheckpointMetadata:
        """Complete the next one."""
        return self.complete(self.begin())

    def content(self) -> Content:
        """What is in all slots; timers are gone by that."""
        found: Content = {}
        for slot in self.slots:
            found |= content(slot)
        return found


class _SlotFiles:
    """A target whose files are named for what they are, as those of a slot of the runtime."""

    def __init__(self, job: JobStorage) -> None:
        self._job = job

    def segments(self, number: int, _: str = "", *, compression: str = "") -> SegmentWriter:
        return self._job.segments(number, "slot", compression=compression)

    def shared_segments(self, number: int, _: str = "", *, compression: str = "") -> SegmentWriter:
        return self._job.shared_segments(number, "slot", compression=compression)

    def log_segments(self, number: int, _: str = "", *, compression: str = "") -> SegmentWriter:
        return self._job.log_segments(number, "slot-log", compression=compression)

    def table_file(self, number: int, path: str) -> SegmentWriter:
        return self._job.table_file(number, path)


def lasting(count: int, *, seed: int) -> list[Step]:
    """Steps of which none is about state that is past its time to live some day."""
    return [step for step in steps(count, seed) if not step.table.startswith("mortal")]


def parts_of(checkpoint: CheckpointMetadata) -> list[StateSnapshot]:
    """What the slots have left in it."""
    return list(checkpoint.operators[UID].parts)


def log_of(part: StateSnapshot) -> LoggedAttributes:
    """What a part says of its base and its logs."""
    assert part.kind == LOGGED_KIND
    return msgspec.convert(part.attributes, LoggedAttributes)
