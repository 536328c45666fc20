"""Staging: pushed rows wait here until the driver says which attempts are admitted.

Spark runs a task again when it failed, and twice when it is slow, so a split of a batch may be
pushed by several attempts. None of them enters the job by itself: when the micro-batch has
succeeded, the driver names the winning attempts, and their rows go into the source's channels,
split by split, as if no other attempt had existed.

Rows beyond a budget of memory go to local disk as they come (`runtime/task/spill.py`). Admitted
rows wait, in memory or there, until their channel has room for them: what a slot holds in memory is
bounded, however long a micro-batch is. Rows that a barrier has overtaken are not counted any more
once they are in their channel, though a checkpoint holds them until it has written them: for each
checkpoint that is being written it may be as much again.

The driver's commands for a source are numbered from 1. A command whose answer was lost is sent
again under its number, and is not applied twice.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from holdfast.runtime.columns.types import detached
from holdfast.runtime.protocol.elements import (
    Barrier,
    EndOfInput,
    Idle,
    Watermark,
    size_bytes,
)
from holdfast.runtime.protocol.messages import PushKey, Winner
from holdfast.runtime.task.channel import Channel, Closed
from holdfast.runtime.task.free_memory import give_back
from holdfast.runtime.task.inlet import Inlet
from holdfast.runtime.task.spill import Spill, SpillFile
from holdfast.storage import Fenced, HoldfastError, Invalid, NotFound

__all__ = ["StagedPush", "Staging", "Superseded"]


class Superseded(Fenced):
    """Rejected: another attempt of this split was already admitted. Stop pushing."""


@dataclass(eq=False)
class StagedPush:
    """The rows of one push, as they arrive. Only `Staging` changes it, under its lock."""

    key: PushKey
    parts: list[pa.RecordBatch | SpillFile] = field(default_factory=list)
    batches: int = 0
    size_bytes: int = 0
    memory_bytes: int = 0
    """Of that, what is not on disk."""
    file: SpillFile | None = None
    """The last part, while it is being written: by the thread of the push, without the lock."""
    is_complete: bool = False

    @property
    def files(self) -> list[SpillFile]:
        return [part for part in self.parts if isinstance(part, SpillFile)]


@dataclass
class _Source:
    inlets: dict[str, Inlet]
    staged: dict[PushKey, StagedPush] = field(default_factory=dict)
    staged_bytes: int = 0
    admitted: int | None = None
    sequence: int = 0
    has_ended: bool = False

    def backlog_bytes(self) -> int:
        inlets = self.inlets.values()
        waiting = sum(each.waiting_bytes + each.channel.size_bytes for each in inlets)
        return self.staged_bytes + waiting


class Staging:
    """The pushes of all sources that feed one slot. Safe to call from any thread.

    `sources` has, by uid of the source and by edge, the channels that its rows go to. Admitted rows
    enter them as they have room, those on disk too. The driver bounds what waits: it awaits room
    before the next batch.

    Staged rows beyond `memory_bytes` go to `spill`; without it all stay in memory. `on_failure` is
    called when that cannot be written: the push fails, and would fail again. `give_memory_back` is
    called by a thread of its own, when rows have left most of a memory that was half full or more.
    """

    def __init__(
        self,
        sources: Mapping[str, Mapping[str, Channel]],
        *,
        memory_bytes: int = 0,
        spill: Spill | None = None,
        on_failure: Callable[[HoldfastError], None] = lambda _: None,
        give_memory_back: Callable[[], None] = give_back,
    ) -> None:
        self._lock = threading.Lock()
        self._sources = {
            uid: _Source({edge: Inlet(channel, self._lock) for edge, channel in channels.items()})
            for uid, channels in sources.items()
        }
        self._room = threading.Condition(threading.Lock())
        self._awaiting_room = 0
        self._is_closed = False
        self._memory_limit_bytes = memory_bytes
        self._memory_bytes = 0
        """Of rows that are staged or wait for room in their channel."""
        self._most_bytes = 0
        """Of `_memory_bytes`, since memory was given back."""
        self._give_memory_back = give_memory_back
        self._spill = spill
        self._on_failure = on_failure
        self._dropped: deque[SpillFile] = deque()
        for source in self._sources.values():
            for inlet in source.inlets.values():
                inlet.channel.watch(partial(self._taken, inlet))
                inlet.channel.reserve(inlet)

    def channel(self, source: str, edge: str) -> Channel:
        """The channel of an edge.

        Raises:
            Invalid: there is no such source or edge.
        """
        inlets = self._source(source).inlets
        if edge not in inlets:
            raise Invalid(
                f"source {source!r} has no such edge",
                expected=_listed(inlets),
                found=repr(edge),
            )
        return inlets[edge].channel

    def open(self, key: PushKey) -> StagedPush:
        """Begin to stage a push. One of the same key that was begun before is forgotten.

        Raises:
            Superseded: the batch was admitted already, or the source has ended.
            Closed: the slot is done with this attempt.
            Invalid: there is no such source or edge.
        """
        self.channel(key.source, key.edge)
        source = self._source(key.source)
        with self._lock:
            self._check_open()
            if _is_past(source, key.batch):
                raise _superseded(key)
            if (before := source.staged.get(key)) is not None:
                self._forget(source, before)
            push = source.staged[key] = StagedPush(key)
        self._changed()
        return push

    def add(self, push: StagedPush, batch: pa.RecordBatch) -> None:
        """Stage more rows of a push. Called by one thread for each push.

        Raises:
            Superseded: the push was rejected.
            Closed: the slot is done with this attempt.
            HoldfastError: the rows cannot be written to the local disk.
        """
        batch = detached(batch)
        size = size_bytes(batch)
        with self._lock:
            source = self._counting(push)
            if push.file is None and self._fits(size):
                push.parts.append(batch)
                push.memory_bytes += size
                self._memory_bytes += size
                self._most_bytes = max(self._most_bytes, self._memory_bytes)
                self._count(source, push, size)
                return
        # Without the lock: the slot's thread must not wait for the disk.
        self._write(push, batch)
        with self._lock:
            self._count(self._counting(push), push, size)

    def _fits(self, size: int) -> bool:
        is_bounded = self._spill is not None
        return not is_bounded or self._memory_bytes + size <= self._memory_limit_bytes

    @staticmethod
    def _count(source: _Source, push: StagedPush, size: int) -> None:
        push.batches += 1
        push.size_bytes += size
        source.staged_bytes += size

    def _write(self, push: StagedPush, batch: pa.RecordBatch) -> None:
        """Append rows to the file of a push, which is begun for the first of them."""
        assert self._spill is not None
        try:
            if push.file is None:
                file = self._spill.file(batch.schema)
                with self._lock:
                    push.file = file
                    push.parts.append(file)  # found here when the push is forgotten
                    if self._source(push.key.source).staged.get(push.key) is not push:
                        self._dropped.append(file)
            push.file.write(batch)
            if push.file.is_full:
                self._seal(push)
        except Fenced as error:  # nothing has failed
            raise Closed("the slot is done with this attempt", fix="Stop") from error
        except HoldfastError as error:
            self._on_failure(error)
            raise

    def _seal(self, push: StagedPush) -> None:
        if push.file is not None:
            push.file.seal()
            push.file = None

    def complete(self, push: StagedPush) -> None:
        """All rows of a push have arrived.

        Raises:
            Superseded: the push was rejected.
            Closed: the slot is done with this attempt.
            HoldfastError: the rows cannot be written to the local disk.
        """
        try:
            self._seal(push)
        except HoldfastError as error:
            self._on_failure(error)
            raise
        with self._lock:
            self._counting(push)
            push.is_complete = True

    def abandon(self, push: StagedPush) -> None:
        """Forget a push, unless it is complete: its sender is gone."""
        source = self._source(push.key.source)
        with self._lock:
            if source.staged.get(push.key) is push and not push.is_complete:
                self._forget(source, push)
        with suppress(HoldfastError):  # for the descriptor alone: the file is gone, or unreadable
            self._seal(push)
        self._changed()

    def admit(
        self,
        uid: str,
        sequence: int,
        *,
        batch: int,
        winners: Iterable[Winner],
        watermark: int | None = None,
    ) -> bool:
        """Admit a batch into the channels of its source: the winners' rows in order of split.

        They enter a channel at once as far as it has room, the rest by and by.

        The watermark follows them, if there is one. All other pushes of this batch and of earlier
        ones are dropped, and later ones are rejected.

        False if the command of this number was applied already.

        Raises:
            NotFound: a winner's rows did not all come, on some edge. Nothing was admitted.
            Invalid: the batch is not after the last one, the command not the next one, or a split
                has two winners.
            Closed: the slot is done with this attempt.
        """
        ordered = sorted(winners)
        if len({winner.split for winner in ordered}) < len(ordered):
            raise Invalid(
                "a split has two winners",
                where=f"source {uid!r}, batch {batch}",
                found=str(ordered),
            )

        def apply(source: _Source) -> None:
            if _is_past(source, batch):
                after = "the end" if source.has_ended else f"batch {source.admitted}"
                raise _not_next(uid, f"what may follow {after}", f"batch {batch}")
            chosen = {
                edge: [_complete_push(source, uid, edge, batch, winner) for winner in ordered]
                for edge in source.inlets
            }
            for edge, inlet in source.inlets.items():
                for push in chosen[edge]:
                    self._let_in(source, push, inlet)
                if watermark is not None:
                    inlet.waiting.append(Watermark(watermark))
            source.admitted = batch
            for push in [each for each in source.staged.values() if each.key.batch <= batch]:
                self._forget(source, push)
            self._fill(source.inlets.values())

        return self._command(uid, sequence, apply)

    def mark(self, uid: str, sequence: int, mark: Barrier | Idle | EndOfInput) -> bool:
        """Put a mark into the source's channels; False if the command was applied already.

        Raises:
            Invalid: the command is not the next one, or the source has ended.
            Closed: the slot is done with this attempt.
        """

        def apply(source: _Source) -> None:
            if source.has_ended and not isinstance(mark, Barrier):
                raise _not_next(uid, "only barriers, after the end", repr(mark))
            source.has_ended = source.has_ended or isinstance(mark, EndOfInput)
            for inlet in source.inlets.values():
                inlet.waiting.append(mark)
                if isinstance(mark, Barrier):
                    inlet.channel.announce(mark)
            self._fill(source.inlets.values())

        return self._command(uid, sequence, apply)

    def backlog_bytes(self, uid: str) -> int:
        """Bytes of the source that are staged or wait in its channels."""
        return self._source(uid).backlog_bytes()

    def await_room(self, uid: str, limit_bytes: int, timeout_s: float) -> bool:
        """Wait until the source's backlog is at most `limit_bytes`; False at the timeout.

        Raises:
            Closed: the slot is done with this attempt.
        """
        source = self._source(uid)
        with self._room:
            self._awaiting_room += 1
            try:
                has_room = self._room.wait_for(
                    lambda: self._is_closed or source.backlog_bytes() <= limit_bytes, timeout_s
                )
            finally:
                self._awaiting_room -= 1
        self._check_open()
        return has_room

    def close(self) -> None:
        """Drop what is staged, and refuse pushes. The owner of the channels closes them."""
        with self._lock:
            self._is_closed = True
            for source in self._sources.values():
                for push in list(source.staged.values()):
                    self._forget(source, push)
                for inlet in source.inlets.values():
                    inlet.waiting.clear()
                    inlet.waiting_bytes = 0
        self._changed()
        with self._room:
            self._room.notify_all()

    def _command(self, uid: str, sequence: int, apply: Callable[[_Source], None]) -> bool:
        source = self._source(uid)
        with self._lock:
            self._check_open()
            if sequence <= source.sequence:
                return False
            if sequence != source.sequence + 1:
                raise _not_next(uid, f"command {source.sequence + 1}", f"command {sequence}")
            apply(source)
            source.sequence = sequence
        self._changed()
        return True

    def _counting(self, push: StagedPush) -> _Source:
        self._check_open()
        source = self._source(push.key.source)
        if source.staged.get(push.key) is not push:
            raise _superseded(push.key)
        return source

    def _source(self, uid: str) -> _Source:
        try:
            return self._sources[uid]
        except KeyError:
            raise Invalid(
                "the slot is not fed by such a source",
                expected=_listed(self._sources),
                found=repr(uid),
            ) from None

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the slot is done with this attempt", fix="Stop")

    def _forget(self, source: _Source, push: StagedPush) -> None:
        del source.staged[push.key]
        source.staged_bytes -= push.size_bytes
        self._memory_bytes -= push.memory_bytes
        self._dropped += push.files

    def _let_in(self, source: _Source, push: StagedPush, inlet: Inlet) -> None:
        """Append the rows of a push to what waits for room. They are not staged any more."""
        del source.staged[push.key]
        source.staged_bytes -= push.size_bytes
        inlet.waiting.extend(push.parts)
        inlet.waiting_bytes += push.size_bytes

    def _fill(self, inlets: Iterable[Inlet]) -> None:
        for inlet in inlets:
            self._memory_bytes -= inlet.fill()
        limit_bytes = self._memory_limit_bytes
        if self._most_bytes * 2 >= limit_bytes > self._memory_bytes * 8:
            self._most_bytes = 0
            threading.Thread(
                target=self._give_memory_back, name="holdfast-giving-back", daemon=True
            ).start()

    def _taken(self, inlet: Inlet) -> None:
        """The channel may have room again. Called by the slot's thread for each element."""
        # What is admitted after this look finds the room by itself.
        if inlet.waiting:
            with self._lock:
                if not self._is_closed:
                    self._fill([inlet])
        self._changed()

    def _changed(self) -> None:
        """Something has left staging. Without the lock: files take time to remove."""
        while self._dropped:
            with suppress(IndexError):  # another thread was first
                self._dropped.popleft().discard()
        # A thread that begins to wait after this check sees what changed before it.
        if self._awaiting_room:
            with self._room:
                self._room.notify_all()


def _is_past(source: _Source, batch: int) -> bool:
    return source.has_ended or (source.admitted is not None and batch <= source.admitted)


def _complete_push(source: _Source, uid: str, edge: str, batch: int, winner: Winner) -> StagedPush:
    key = PushKey(uid, edge, batch, *winner)
    push = source.staged.get(key)
    if push is not None and push.is_complete:
        return push
    raise NotFound(
        "the rows of a winning task did not all arrive",
        where=str(key),
        expected="a complete push",
        found="none" if push is None else f"{push.batches} batches and no end",
        fix="The job starts again from its last checkpoint",
    )


def _superseded(key: PushKey) -> Superseded:
    return Superseded(
        "the push does not count any more",
        where=str(key),
        fix="Another attempt has won, or the push began anew; stop pushing, the job is in order",
    )


def _not_next(uid: str, expected: str, found: str) -> Invalid:
    return Invalid(
        "the commands of a source are out of order",
        where=f"source {uid!r}",
        expected=expected,
        found=found,
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "none: this slot has no sources"
