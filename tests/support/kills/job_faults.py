"""Faults of the campaign: what happens to a job, when, and how that is brought about.

A fault happens once: it leaves a flag in a folder, which also processes see that come after it.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.runtime import FileSink, JobHandle, SinkWriter
from holdfast.runtime.sinks.files.committables import FileCommittable
from holdfast.storage import CheckpointStorage, SystemClock, Unavailable
from holdfast.storage.testing.watched_storage import Call, WatchedStorage

SLOTS = 2
_POLL_S = 0.02

RUNNING: list[JobHandle] = []
"""In the driver: its jobs, the newest last. To kill a slot one must know its process."""

AT_ROW = ("slot dies at a row", "function raises")
AT_TIME = ("slot dies", "driver dies")
AT_COMMIT = (
    "slot dies between ack and commit",
    "driver dies between ack and commit",
    "slot dies between commit and notification",
    "driver dies between commit and notification",
    "answer of the commit is lost",
)
AT_WRITE = ("storage is full",)
AT_SINK = (
    "slot dies between prepare and ack",
    "slot dies between notification and sink commit",
    "slot dies between sink commits",
    "slot dies after sink commit",
    "sink commit is refused",
)
KINDS = (*AT_ROW, *AT_TIME, *AT_COMMIT, *AT_WRITE, *AT_SINK)


@dataclass(frozen=True)
class Fault:
    """One fault. What the numbers mean depends on its kind."""

    kind: str
    flag: str
    operator: str
    row: int
    slot: int
    count: int
    """At the checkpoint, write or call of this number, as each process counts."""
    delay_ms: int

    @property
    def hits_driver(self) -> bool:
        return self.kind.startswith("driver")

    def has_happened(self) -> bool:
        return Path(self.flag).exists()

    def is_mine(self) -> bool:
        """Whether the caller is the one to make it happen: true once."""
        try:
            os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


@dataclass(frozen=True)
class Faults:
    """All faults of one story. Picklable: it is in functions, in the sinks and in the storage."""

    listed: tuple[Fault, ...]
    driver_pid: int

    def of(self, *kinds: str) -> list[Fault]:
        return [fault for fault in self.listed if fault.kind in kinds and not fault.has_happened()]

    def on_row(self, operator: str, row: int) -> None:
        """In a slot, for each row."""
        for fault in self.listed:
            if fault.kind in AT_ROW and (fault.operator, fault.row) == (operator, row):
                if not fault.is_mine():
                    continue
                if fault.kind == "function raises":
                    raise ValueError(f"row {row} is one too many")
                die()

    def kill(self, fault: Fault) -> None:
        """In the driver: kill the driver, or a slot if it has come."""
        if fault.hits_driver:
            if fault.is_mine():
                die()
            return
        pid = RUNNING[-1].slot_pids().get(fault.slot) if RUNNING else None
        if pid is not None and fault.is_mine():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                os.remove(fault.flag)  # it was on its way down anyway: this was no fault

    def watch(self, job: JobHandle) -> None:
        """In a thread of the driver: those faults that come some time after a checkpoint."""
        RUNNING.append(job)
        clock = SystemClock()
        for fault in self.of(*AT_TIME):
            while not fault.has_happened() and not job.status.is_final:
                if job.checkpoints().counts.completed >= fault.count:
                    clock.sleep_s(fault.delay_ms / 1000)
                    self.kill(fault)
                clock.sleep_s(_POLL_S)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class FaultyStorage(WatchedStorage):
    """A storage of checkpoints with faults at the commit and at writes of slots."""

    def __init__(self, inner: CheckpointStorage, faults: Faults) -> None:
        super().__init__(inner, before=self._begins, after=self._took_effect)
        self._faults = faults
        self._commits = 0
        self._writes = 0
        self._due: list[Fault] = []

    def _begins(self, call: Call) -> None:
        if call.verb == "writer":
            self._begins_to_write(call.name)
        if not _is_commit(call):
            return
        self._commits += 1
        self._due = [fault for fault in self._faults.of(*AT_COMMIT) if self._commits >= fault.count]
        for fault in self._due:
            if fault.kind.endswith("between ack and commit"):
                self._faults.kill(fault)

    def _took_effect(self, call: Call) -> None:
        if not _is_commit(call):
            return
        for fault in self._due:
            if fault.kind.endswith("between commit and notification"):
                self._faults.kill(fault)
            if fault.kind == "answer of the commit is lost" and fault.is_mine():
                raise Unavailable("the line is dead", where=call.name)

    def _begins_to_write(self, name: str) -> None:
        self._writes += 1
        if os.getpid() != self._faults.driver_pid:
            for fault in self._faults.of(*AT_WRITE):
                if self._writes >= fault.count and fault.is_mine():
                    raise Unavailable("no space left", where=name)


def _is_commit(call: Call) -> bool:
    return call.verb == "create" and call.name.endswith("/_metadata")


class FaultySink(FileSink):
    """A sink with faults between the two phases, and after each."""

    def __init__(self, url: str, file_format: str, faults: Faults) -> None:
        super().__init__(url, file_format)
        self._faults = faults
        self._calls = 0

    def open_writer(self, context: Any) -> Any:
        writer = super().open_writer(context)
        return _FaultyWriter(writer, self._dies) if context.uid == "out" else writer

    def commit(self, committables: Sequence[FileCommittable], context: Any) -> None:
        if not committables or context.uid != "out":
            super().commit(committables, context)
            return
        self._calls += 1
        self._dies("slot dies between notification and sink commit")
        for fault in self._due("sink commit is refused"):
            if fault.is_mine():
                raise Unavailable("the place does not answer")
        if self._due("slot dies between sink commits"):
            super().commit(committables[:1], context)
            self._dies("slot dies between sink commits")
        super().commit(committables, context)
        self._dies("slot dies after sink commit")

    def _due(self, kind: str) -> list[Fault]:
        return [fault for fault in self._faults.of(kind) if self._calls >= fault.count]

    def _dies(self, kind: str) -> None:
        for fault in self._due(kind):
            if fault.is_mine():
                die()


class _FaultyWriter(SinkWriter[FileCommittable]):
    def __init__(self, writer: SinkWriter[FileCommittable], dies: Callable[[str], None]) -> None:
        self._writer = writer
        self._dies = dies

    def write(self, batch: Any) -> None:
        self._writer.write(batch)

    def prepare(self, checkpoint_id: int) -> Sequence[FileCommittable]:
        prepared = self._writer.prepare(checkpoint_id)
        if prepared:
            self._dies("slot dies between prepare and ack")
        return prepared

    def close(self) -> None:
        self._writer.close()


def choose_faults(seed: int, folder: Path, rows: int) -> tuple[Fault, ...]:
    """One fault, or two: the first one's kind by turns, so that no kind is missed."""
    chance = random.Random(seed)
    kinds = [KINDS[seed % len(KINDS)]]
    if chance.random() < 0.5:
        kinds.append(chance.choice(KINDS))
    return tuple(
        Fault(
            kind=kind,
            flag=str(folder / f"fault-{number}"),
            operator=chance.choice(("spend", "digits")),
            row=chance.randrange(rows),
            slot=chance.randrange(SLOTS),
            count=chance.randrange(1, 4),
            delay_ms=chance.randrange(400),
        )
        for number, kind in enumerate(kinds)
    )
