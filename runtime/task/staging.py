"""Staging: pushed rows wait here until the driver says which attempts are admitted.

Spark runs a task again when it failed, and twice when it is slow, so a split of a batch may be
pushed by several attempts. None of them enters the job by itself: when the micro-batch has
succeeded, the driver names the winning attempts, and their rows go into the source's channels,
split by split, as if no other attempt had existed.

The driver's commands for a source are numbered from 1. A command whose answer was lost is sent
again under its number, and is not applied twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.runtime.columns.types import detached
from holdfast.runtime.protocol.elements import Barrier, EndOfInput, Idle, Watermark, size_bytes
from holdfast.runtime.protocol.messages import PushKey, Winner
from holdfast.runtime.task.channel import Channel, Closed
from holdfast.storage import Fenced, Invalid, NotFound

__all__ = ["StagedPush", "Staging", "Superseded"]


class Superseded(Fenced):
    """Rejected: another attempt of this split was already admitted. Stop pushing."""


@dataclass(eq=False)
class StagedPush:
    """The rows of one push, as they arrive. Only `Staging` changes it, under its lock."""

    key: PushKey
    batches: list[pa.RecordBatch] = field(default_factory=list)
    size_bytes: int = 0
    is_complete: bool = False


@dataclass
class _Source:
    channels: dict[str, Channel]
    staged: dict[PushKey, StagedPush] = field(default_factory=dict)
    staged_bytes: int = 0
    admitted: int | None = None
    sequence: int = 0
    has_ended: bool = False

    def forget(self, push: StagedPush) -> None:
        del self.staged[push.key]
        self.staged_bytes -= push.size_bytes

    def backlog_bytes(self) -> int:
        return self.staged_bytes + sum(each.size_bytes for each in self.channels.values())


class Staging:
    """The pushes of all sources that feed one slot. Safe to call from any thread.

    `sources` has, by uid of the source and by edge, the channels that its rows go to. Admitted rows
    enter them at once, also beyond their capacity, since they are in memory already. The driver
    bounds them: it awaits room before the next batch.
    """

    def __init__(self, sources: Mapping[str, Mapping[str, Channel]]) -> None:
        self._sources = {uid: _Source(dict(channels)) for uid, channels in sources.items()}
        self._lock = threading.Lock()
        self._room = threading.Condition(threading.Lock())
        self._awaiting_room = 0
        self._is_closed = False
        for source in self._sources.values():
            for channel in source.channels.values():
                channel.watch(self._room_may_be)

    def channel(self, source: str, edge: str) -> Channel:
        """The channel of an edge.

        Raises:
            Invalid: there is no such source or edge.
        """
        channels = self._source(source).channels
        if edge not in channels:
            raise Invalid(
                f"source {source!r} has no such edge",
                expected=_listed(channels),
                found=repr(edge),
            )
        return channels[edge]

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
                source.forget(before)
            push = source.staged[key] = StagedPush(key)
        self._room_may_be()
        return push

    def add(self, push: StagedPush, batch: pa.RecordBatch) -> None:
        """Stage more rows of a push.

        Raises:
            Superseded: the push was rejected.
            Closed: the slot is done with this attempt.
        """
        batch = detached(batch)
        size = size_bytes(batch)
        with self._lock:
            source = self._counting(push)
            push.batches.append(batch)
            push.size_bytes += size
            source.staged_bytes += size

    def complete(self, push: StagedPush) -> None:
        """All rows of a push have arrived.

        Raises:
            Superseded: the push was rejected.
            Closed: the slot is done with this attempt.
        """
        with self._lock:
            self._counting(push)
            push.is_complete = True

    def abandon(self, push: StagedPush) -> None:
        """Forget a push, unless it is complete: its sender is gone."""
        source = self._source(push.key.source)
        with self._lock:
            if source.staged.get(push.key) is push and not push.is_complete:
                source.forget(push)
        self._room_may_be()

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
                for edge in source.channels
            }
            for edge, channel in source.channels.items():
                for push in chosen[edge]:
                    for rows in push.batches:
                        channel.offer(rows)
                if watermark is not None:
                    channel.offer(Watermark(watermark))
            source.admitted = batch
            for push in [each for each in source.staged.values() if each.key.batch <= batch]:
                source.forget(push)

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
            for channel in source.channels.values():
                channel.offer(mark)

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
                    source.forget(push)
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
        self._room_may_be()
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

    def _room_may_be(self) -> None:
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
        found="none" if push is None else f"{len(push.batches)} batches and no end",
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
