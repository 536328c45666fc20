"""A slot with a changelog that goes on and on: checkpoints, materializations, deaths, rescaling.

Everything is compared with a model after each restore, and what is stored and held in memory is
recorded at each checkpoint, to check that it does not grow (`check_bounded`).
"""

from __future__ import annotations

import csv
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean

from holdfast.backends import StateBackend
from holdfast.backends.snapshots.neutral import SnapshotFuture
from holdfast.changelog import ChangelogOptions, ChangelogStateBackend
from holdfast.storage import CheckpointMetadata, JobOwner, OperatorState, load_storage
from holdfast.storage.jobs.decisions import open_from
from holdfast.storage.testing.example_jobs import remove, retain
from support.simulations.churned_state import GROUPS, UID, Churn, Content, Slots, SteadyClock

__all__ = ["Plan", "Reading", "Soak", "check_bounded", "written"]

_PATIENCE_S = 60
_ABOVE_ALL = 1 << 62
_PAUSE_S = 0.001
_PARALLELISMS = (1, 2, 2, 3)
"""Of one life after the other: as before, more, fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long, how much, and how often."""

    seconds: float
    keys: int
    checkpoint_s: float
    materialize_s: float
    life_s: float
    clean_s: float
    warm_s: float = 0.0
    """What is read before is not written down: state is not yet as large as it will be."""

    @property
    def options(self) -> ChangelogOptions:
        """Of the changelog: some pieces are written before the checkpoint that they are in."""
        return ChangelogOptions(
            materialization_interval_s=self.materialize_s,
            persist_threshold_bytes=256 * 1024,
            persist_interval_s=self.checkpoint_s * 2.5,
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """What was seen when a checkpoint was committed."""

    second: float
    checkpoint_id: int
    life: int
    parallelism: int
    rows: int
    checkpoint_ms: float
    stored_bytes: int
    log_bytes: int
    base_bytes: int
    materializations: int
    resident_bytes: int


@dataclass(slots=True)
class _Flight:
    """A checkpoint on its way, and what is in it if that matters."""

    number: int
    began_s: float
    futures: list[SnapshotFuture]
    content: Content | None


class Soak:
    """`run` it once."""

    def __init__(self, inner: StateBackend, folder: Path, plan: Plan, *, seed: int = 1) -> None:
        self.plan = plan
        self.lives = 0
        self.readings: list[Reading] = []
        self._folder = folder
        self._backend = ChangelogStateBackend(inner, plan.options)
        self._job = load_storage(str(folder)).job("soak")
        self._clock = SteadyClock()
        self._churn = Churn(seed, plan.keys, self._clock)
        self._chance = random.Random(seed)
        self._began_s = self._clock.monotonic_s()
        self._materialized = 0
        self.deletes = True
        """Whether older checkpoints are deleted, and what none of them needs."""
        self._newest = 0
        self._cleaned_s = self._began_s

    def run(self) -> None:
        """Live and die until the time is over.

        Raises:
            AssertionError: something is not as the model has it.
        """
        content: Content | None = None
        while self._second() < self.plan.seconds:
            content = self._live(content)
            self.lives += 1
        owner, slots = self._open()
        assert content is not None
        self._churn.model = content
        self._churn.compare(slots)
        self._churn.compare_timers(slots)
        slots.close()
        owner.check()

    def _second(self) -> float:
        return self._clock.monotonic_s() - self._began_s

    def _open(self) -> tuple[JobOwner, Slots]:
        """As the next driver does: what killed slots have left is deleted first."""
        owner = self._job.take_over()
        if self.deletes:
            begun_from_now = range(owner.next_checkpoint_id, _ABOVE_ALL)
            remove(owner, owner.orphans(in_flight=begun_from_now))
        latest = self._job.latest()
        parts = latest.operators[UID].parts if latest else ()
        slots = Slots(
            self._backend,
            self._job,
            self._clock,
            parallelism=_PARALLELISMS[self.lives % len(_PARALLELISMS)],
            keys=self.plan.keys,
            restore=parts,
            first_checkpoint_id=owner.next_checkpoint_id,
        )
        return owner, slots

    def _live(self, content: Content | None) -> Content:
        """From the last checkpoint to a death; what the last one has that was completed."""
        owner, slots = self._open()
        if content is None:
            self._churn.fill(slots)
        else:
            self._churn.model = content
            self._churn.compare(slots)
        plan, clock = self.plan, self._clock
        number, kept, flight = owner.next_checkpoint_id, None, None
        began_s = due_s = clock.monotonic_s()
        while True:
            self._churn.round(slots)
            while not slots.tend():
                clock.sleep_s(_PAUSE_S)
            now_s = clock.monotonic_s()
            if flight is not None and all(future.done() for future in flight.futures):
                kept = flight.content or kept
                self._commit(owner, slots, flight)
                flight = None
            is_dying = now_s - began_s >= plan.life_s
            if is_dying and kept is not None:
                break
            if flight is None and now_s >= due_s:
                due_s = max(due_s + plan.checkpoint_s, now_s)
                content = self._churn.model.copied() if is_dying else None
                flight = _Flight(number, now_s, slots.begin(number, self._job), content)
                number += 1
        if self._chance.random() < 0.5:  # with one on its way, and changes behind it
            slots.begin(number, self._job)
            self._churn.round(slots)
        self._materialized += slots.metric("materializations")
        slots.close()
        return kept

    def _commit(self, owner: JobOwner, slots: Slots, flight: _Flight) -> None:
        parts = tuple(future.result(_PATIENCE_S) for future in flight.futures)
        now_ms = self._clock.now_ms()
        state = OperatorState(parallelism=slots.parallelism, max_parallelism=GROUPS, parts=parts)
        metadata = owner.commit(
            CheckpointMetadata(
                job_id=self._job.job_id,
                checkpoint_id=flight.number,
                triggered_ms=now_ms,
                completed_ms=now_ms,
                operators={UID: state},
            )
        )
        took_ms = (self._clock.monotonic_s() - flight.began_s) * 1000
        slots.completed(flight.number)
        if self.deletes:
            retain(owner, 1)
            self._clean(owner, metadata)
        self._read(slots, flight.number, took_ms)

    def _clean(self, owner: JobOwner, completed: CheckpointMetadata) -> None:
        """Now and then, as a driver does: of what is written early some is never referred to."""
        before, self._newest = self._newest, completed.checkpoint_id
        now_s = self._clock.monotonic_s()
        if before and now_s - self._cleaned_s >= self.plan.clean_s:
            self._cleaned_s = now_s
            first = min(before, open_from(completed.checkpoint_id, completed.begun_from))
            remove(owner, owner.orphans(in_flight=range(first, _ABOVE_ALL)))

    def _read(self, slots: Slots, number: int, took_ms: float) -> None:
        second = self._second()
        if second < self.plan.warm_s:
            return
        self.readings.append(
            Reading(
                second=round(second, 3),
                checkpoint_id=number,
                life=self.lives,
                parallelism=slots.parallelism,
                rows=self._churn.rows,
                checkpoint_ms=round(took_ms, 3),
                stored_bytes=_stored_bytes(self._folder),
                log_bytes=slots.metric("log_bytes"),
                base_bytes=slots.metric("base_bytes"),
                materializations=self._materialized + slots.metric("materializations"),
                resident_bytes=_resident_bytes(),
            )
        )


def check_bounded(readings: Sequence[Reading], most: float) -> None:
    """Nothing that should stay as it is has grown from the first third to the last.

    Raises:
        AssertionError: something has; names it.
    """
    third = len(readings) // 3
    assert third > 0, f"{len(readings)} readings are too few"
    sizes: dict[str, Callable[[Reading], int]] = {
        "what is stored": lambda each: each.stored_bytes,
        "the log": lambda each: each.log_bytes,
        "memory": lambda each: each.resident_bytes,
    }
    for what, size in sizes.items():
        first, last = (fmean(map(size, part)) for part in (readings[:third], readings[-third:]))
        assert last <= first * most, f"{what} grows: {first:.0f} bytes at first, {last:.0f} at last"


def written(readings: Sequence[Reading], path: Path) -> Path:
    """The readings as a CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Reading)])
        writer.writeheader()
        writer.writerows(map(asdict, readings))
    return path


def _stored_bytes(folder: Path) -> int:
    return sum(_sizes(folder))


def _sizes(folder: Path) -> Iterator[int]:
    """Of all files; those that are written meanwhile may be gone when they are looked at."""
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.stat(os.path.join(path, name)).st_size
            except FileNotFoundError:
                continue


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
