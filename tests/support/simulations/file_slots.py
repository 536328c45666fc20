"""Slots of one operator as a campaign over shared files drives them, one message at a time.

A seat does with its backend what a slot of the runtime does: takes a snapshot at a barrier, which
also says what is complete, and hears of checkpoints that are complete or called off, sooner, later
or never. When and whether its snapshots are written is for the campaign to say.
"""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field

from holdfast.backends.keyed.backend import KeyedStateBackend
from holdfast.backends.snapshots.neutral import SnapshotForm, SnapshotFuture
from holdfast.backends.testing.gates import Gate
from holdfast.runtime.checkpoint.commands import Begin
from holdfast.storage import JobStorage, SegmentWriter, StateSnapshot, Unavailable
from support.storages.early_files import EarlyWriter

__all__ = ["Part", "Seat", "Target"]

_PATIENCE_S = 60


class Target(Gate):
    """A gate before a storage that fails after some shared files, if it is told so."""

    def __init__(self, job: JobStorage, *, files_left: int | None = None) -> None:
        super().__init__(job)
        self.files_left = files_left
        self._lock = threading.Lock()

    def shared_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> SegmentWriter:
        """As `JobStorage.shared_segments`, once the gate is open."""
        with self._lock:
            if self.files_left == 0:
                raise Unavailable("the storage is away")
            if self.files_left is not None:
                self.files_left -= 1
        return Gate.shared_segments(self, checkpoint_id, label, compression=compression)

    def log_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> SegmentWriter:
        """As `JobStorage.log_segments`, once the gate is open."""
        with self._lock:
            if self.files_left == 0:
                raise Unavailable("the storage is away")
            if self.files_left is not None:
                self.files_left -= 1
        return Gate.log_segments(self, checkpoint_id, label, compression=compression)


@dataclass(slots=True)
class Part:
    """What one slot does for one checkpoint."""

    target: Target
    future: SnapshotFuture
    is_answered: bool = False


@dataclass(slots=True)
class Seat:
    """One slot: its backend, what it is writing, and what it has not heard yet."""

    backend: KeyedStateBackend
    job: JobStorage
    early: EarlyWriter
    """Another operator, which begins files before the checkpoint that refers to them."""
    early_parts: dict[int, StateSnapshot] = field(default_factory=dict)
    barriers: list[Begin] = field(default_factory=list)
    """On their way, in their order."""
    news: list[tuple[str, int]] = field(default_factory=list)
    """On their way too, beside barriers and in any order."""
    parts: dict[int, Part] = field(default_factory=dict)
    _given_up: set[int] = field(default_factory=set)
    _completed: int | None = None

    def take(
        self, *, tells: bool, compression: str, form: SnapshotForm, files_left: int | None
    ) -> None:
        """The next barrier is here; if it `tells`, it says what was complete when it was sent."""
        begun = self.barriers.pop(0)
        number = begun.checkpoint_id
        if tells and begun.base is not None:
            self._complete(begun.base)
        target = Target(self.job, files_left=files_left)
        future = self.backend.snapshot(number, target, compression=compression, form=form)
        self.parts[number] = Part(target, future)
        self.early_parts[number] = self.early.snapshot(number)
        if number in self._given_up:
            future.cancel()

    def hear(self, place: int) -> None:
        """One piece of news is here."""
        word, number = self.news.pop(place)
        if word == "complete":
            self._complete(number)
            return
        self._given_up.add(number)
        if number in self.parts:
            self.parts[number].future.cancel()
        self.backend.notify_checkpoint_aborted(number)

    def answer(self, number: int) -> StateSnapshot | str:
        """Write a snapshot, and those before it; what became of it, or why it failed."""
        for each, part in self.parts.items():
            if each <= number:
                part.target.open.set()
        part = self.parts[number]
        part.is_answered = True
        try:
            return part.future.result(_PATIENCE_S)
        except CancelledError:
            return "it was given up"
        except Unavailable as error:
            return str(error)

    def unanswered(self) -> list[int]:
        """The numbers of snapshots whose outcome was never announced."""
        return [number for number, part in self.parts.items() if not part.is_answered]

    def end(self, *, writes: bool) -> None:
        """The process ends; what it still had to write is written before, or given up."""
        for number, part in self.parts.items():
            if writes:
                self.answer(number)
            else:
                part.future.cancel()
                part.target.open.set()
        with suppress(Unavailable):  # it is not needed, and may be deleted by now
            self.early.close()
        self.backend.close()

    def _complete(self, number: int) -> None:
        if self._completed is None or number > self._completed:
            self._completed = number
            self.backend.notify_checkpoint_complete(number)
