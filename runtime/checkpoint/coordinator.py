"""The coordinator of checkpoints: decides what to do after each event.

    Begin ─▶ every slot and source answers ─▶ Store ─▶ stored ─▶ Notify, Abort of older ones, Retain
      └── declined, expired, failed ─▶ Abort ◀── store_failed ┘

A savepoint is begun as a checkpoint is, when one is requested, whatever else is in progress. With
one beside which the job goes on no slot is notified: no checkpoint builds on it or is obsolete by
it, no restart goes back to it, and that it fails is no failure of the job. One that ends the job is
the last of its checkpoints, as the final one is.

Pure: no threads, no input or output, no clock. The driver tells it what has happened, one thing
at a time, and carries out the commands that it answers, in their order.

A drain ends the sources as if they had ended by themselves, and takes the savepoint where the final
checkpoint would be taken. No checkpoint is completed in between: a job restored from it would
flush the same windows again. `Retain` follows `Notify` and not the commit: the next checkpoint
could just be triggered on a base that is being deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.checkpoint.commands import (
    Abort,
    AbortReason,
    Begin,
    Command,
    FailJob,
    Notify,
    Retain,
    Store,
    Trigger,
)
from holdfast.runtime.checkpoint.pending_checkpoint import PendingCheckpoint
from holdfast.runtime.checkpoint.savepoint_orders import SavepointPurpose, SavepointRequest
from holdfast.runtime.checkpoint.schedule import CheckpointSchedule
from holdfast.runtime.checkpoint.statistics import CheckpointHistory
from holdfast.runtime.protocol.checkpoints import SlotStatistics
from holdfast.storage import Invalid, StateSnapshot, Unavailable

__all__ = ["CheckpointCoordinator"]


class CheckpointCoordinator:
    """The checkpoints of one attempt of a job. Not safe to call from several threads at once.

    Make it when all slots run: the first interval begins now. `now_ms` is in milliseconds since the
    epoch, of a clock that does not go back; one that does is taken to stand still. Numbers ascend
    from `next_id`. `restored` is the checkpoint that the attempt goes on from, if that is in the
    job's own folder: what begins may refer to its files. `why_late` says what is known of slots
    that do not answer.

    Every method answers the commands to carry out, in order. After `FailJob` or `shutdown`
    there are none.
    """

    def __init__(
        self,
        config: CheckpointConfig,
        *,
        slots: int,
        sources: Collection[str],
        next_id: int,
        now_ms: int,
        restored: int | None = None,
        history: CheckpointHistory | None = None,
        why_late: Callable[[], str] = str,
    ) -> None:
        self._why_late = why_late
        self._config = config
        self._timeout_ms = config.timeout_ms
        self._slots = slots
        self._sources = frozenset(sources)
        self._first_id = self._next_id = next_id
        self._completed = restored
        self._now_ms = now_ms
        self._schedule = CheckpointSchedule(config, now_ms)
        self._backlogs: set[str] = set()
        self._history = CheckpointHistory() if history is None else history
        self._pending: dict[int, PendingCheckpoint] = {}
        self._storing: int | None = None
        self._failures = 0
        self._suspending: SavepointRequest | None = None
        """For which no checkpoint begins: one that ends the job, or its checkpoints."""
        self._has_stopped = self._is_to_be_cancelled = False
        self._is_shut_down = False

    @property
    def next_checkpoint_id(self) -> int:
        return self._next_id

    @property
    def pending(self) -> tuple[int, ...]:
        """The numbers of those that have begun and not ended, ascending."""
        return tuple(self._pending)

    @property
    def is_finished(self) -> bool:
        """Whether the final checkpoint, or a savepoint that ends the job, is complete."""
        return self._schedule.is_finished or self._has_stopped

    @property
    def is_to_be_cancelled(self) -> bool:
        """Whether a savepoint is complete after which the job was to be cancelled."""
        return self._is_to_be_cancelled

    @property
    def is_draining(self) -> bool:
        """Whether `drained` is waited for."""
        request = self._suspending
        return request is not None and request.purpose is SavepointPurpose.DRAIN

    @property
    def is_shut_down(self) -> bool:
        """Whether it has answered its last command."""
        return self._is_shut_down

    @property
    def history(self) -> CheckpointHistory:
        return self._history

    def next_tick_ms(self) -> int | None:
        """When `tick` has something to do; None when it has not, unless something happens."""
        if self._is_shut_down:
            return None
        times = [
            pending.begun.triggered_ms + self._timeout_ms
            for pending in self._pending.values()
            if not pending.is_storing
        ]
        wanted = self._schedule.next()
        if wanted is not None and self._has_room:
            times.append(wanted[0])
        return min(times, default=None)

    def tick(self, now_ms: int) -> Sequence[Command]:
        """Time has passed: give up what takes too long, begin what is due."""
        self._pass_time(now_ms)
        commands: list[Command] = []
        for pending in tuple(self._pending.values()):
            age_ms = self._now_ms - pending.begun.triggered_ms
            if age_ms >= self._timeout_ms and self._may_abort(pending):
                waited = f"{self._timeout_ms / 1000:g} s"
                late = f"no answer from {pending.missing()} within {waited}"
                detail = "; ".join(filter(None, (late, self._why_late())))
                if pending.is_ready:
                    detail = f"checkpoint {self._storing} was still being stored after {waited}"
                commands += self._abort(pending, AbortReason.EXPIRED, detail)
        return self._proceed(commands)

    def acknowledged(
        self,
        now_ms: int,
        checkpoint_id: int,
        *,
        slot: int,
        parts: Mapping[str, Sequence[StateSnapshot]],
        statistics: SlotStatistics,
        in_flight: Sequence[StateSnapshot] = (),
    ) -> Sequence[Command]:
        """A slot has taken its snapshots: all of its operators', by uid. A second time is nothing.

        Raises:
            Invalid: there is no such slot, or the checkpoint has not begun.
        """
        self._check_slot(slot)
        pending = self._find(now_ms, checkpoint_id)
        if pending is None:
            return ()  # too late: no checkpoint refers to its files
        pending.acknowledge(self._now_ms, slot, parts, statistics, in_flight)
        self._report(pending)
        return self._proceed([])

    def source_position(
        self, now_ms: int, checkpoint_id: int, *, uid: str, position: StateSnapshot
    ) -> Sequence[Command]:
        """Where a source was at the barrier. A second time is nothing.

        Raises:
            Invalid: there is no such source, or the checkpoint has not begun.
        """
        if uid not in self._sources:
            raise Invalid(
                f"a position is of source {uid!r}, which the job does not have",
                expected=f"one of {sorted(self._sources)}",
            )
        pending = self._find(now_ms, checkpoint_id)
        if pending is None:
            return ()
        pending.locate(uid, position)
        self._report(pending)
        return self._proceed([])

    def declined(
        self, now_ms: int, checkpoint_id: int, *, slot: int, reason: str
    ) -> Sequence[Command]:
        """A slot cannot take its snapshots.

        Raises:
            Invalid: there is no such slot, or the checkpoint has not begun.
        """
        self._check_slot(slot)
        pending = self._find(now_ms, checkpoint_id)
        if pending is None or not self._may_abort(pending):
            return ()
        return self._proceed(self._abort(pending, AbortReason.DECLINED, f"slot {slot}: {reason}"))

    def trigger_failed(self, now_ms: int, checkpoint_id: int, *, reason: str) -> Sequence[Command]:
        """A `Begin` could not be carried out: no barrier, or no position of a source.

        Raises:
            Invalid: the checkpoint has not begun.
        """
        pending = self._find(now_ms, checkpoint_id)
        if pending is None or not self._may_abort(pending):
            return ()
        return self._proceed(self._abort(pending, AbortReason.IO, reason))

    def stored(self, now_ms: int, checkpoint_id: int) -> Sequence[Command]:
        """A `Store` was carried out: the checkpoint is complete, and those before it obsolete.

        Raises:
            Invalid: it is not the one that is being stored.
        """
        pending = self._end_storing(now_ms, checkpoint_id)
        del self._pending[checkpoint_id]
        self._history.completed(checkpoint_id, self._now_ms)
        if pending.is_aside:
            self._is_to_be_cancelled |= pending.begun.savepoint == self._suspending
            return self._proceed([])
        self._completed = checkpoint_id
        if self._is_shut_down:
            return ()
        if pending.begun.savepoint is not None:
            self._has_stopped = True
        else:
            self._schedule.ended(pending.begun.trigger, self._now_ms, is_complete=True)
        self._failures = 0
        commands: list[Command] = [Notify(checkpoint_id)]
        for older in tuple(self._pending.values()):
            if older.checkpoint_id < checkpoint_id and not older.is_aside:
                detail = f"checkpoint {checkpoint_id} was completed before it"
                commands += self._abort(older, AbortReason.SUBSUMED, detail)
        commands.append(Retain(self._needed_since(checkpoint_id)))
        return self._proceed(commands)

    def store_failed(self, now_ms: int, checkpoint_id: int, *, reason: str) -> Sequence[Command]:
        """A `Store` was not carried out, and it is known that it never will be.

        Raises:
            Invalid: it is not the one that is being stored.
        """
        pending = self._end_storing(now_ms, checkpoint_id)
        was_shut_down = self._is_shut_down
        commands = self._abort(pending, AbortReason.FINALIZE, reason)
        return () if was_shut_down else self._proceed(commands)

    def request(self, now_ms: int) -> Sequence[Command]:
        """Request a checkpoint: begin one as soon as those in progress leave room."""
        self._pass_time(now_ms)
        self._schedule.request(self._now_ms)
        return self._proceed([])

    def source_backlog(self, now_ms: int, *, uid: str, is_read: bool) -> Sequence[Command]:
        """A source begins, or has ended, to read what had gathered before it."""
        self._pass_time(now_ms)
        (self._backlogs.add if is_read else self._backlogs.discard)(uid)
        self._schedule.set_backlog(is_read=bool(self._backlogs))
        return self._proceed([])

    def request_savepoint(self, now_ms: int, request: SavepointRequest) -> Sequence[Command]:
        """Request a savepoint: begin it now, beside everything in progress.

        One that is to end the job, or its checkpoints, suspends those; if it fails they go on.
        One with a drain is begun by `drained`, and if it fails so does the job: there is no way
        back for what was flushed.

        Raises:
            Unavailable: it would not be completed, or not be the last word; says why.
        """
        self._pass_time(now_ms)
        self._check_open_for_savepoints(request)
        if request.purpose is not SavepointPurpose.KEEP_RUNNING:
            self._suspending = request
            self._schedule.suspend()
        if request.purpose is SavepointPurpose.DRAIN:
            return ()
        return [self._begin(Trigger.SAVEPOINT, request)]

    def drained(self, now_ms: int) -> Sequence[Command]:
        """All that the sources had given is processed and flushed: begin the savepoint of that.

        Raises:
            Invalid: no such savepoint was requested.
        """
        self._pass_time(now_ms)
        request = self._suspending
        if request is None or request.purpose is not SavepointPurpose.DRAIN:
            raise Invalid("the job was drained, but no savepoint with a drain was requested")
        return () if self._is_shut_down else [self._begin(Trigger.SAVEPOINT, request)]

    def request_final(self, now_ms: int) -> Sequence[Command]:
        """All input has ended and is processed: take the final checkpoint, and no other.

        It begins as soon as those under way leave room. If it fails and that is tolerated, it
        is tried again a second later.
        """
        self._pass_time(now_ms)
        self._schedule.request_final(self._now_ms)
        return self._proceed([])

    def shutdown(self, now_ms: int) -> Sequence[Command]:
        """The attempt ends: give up what has begun.

        What is being stored is left alone, because it may be complete: a restore will tell. The
        driver still reports what became of it, for the history.
        """
        self._pass_time(now_ms)
        return () if self._is_shut_down else self._shut_down("the attempt has ended")

    @property
    def _has_room(self) -> bool:
        return len(self._pending) < self._config.max_concurrent

    def _pass_time(self, now_ms: int) -> None:
        self._now_ms = max(self._now_ms, now_ms)

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self._slots:
            raise Invalid(
                "an answer comes from a slot that the job does not have",
                expected=f"0 to {self._slots - 1}",
                found=str(slot),
            )

    def _find(self, now_ms: int, checkpoint_id: int) -> PendingCheckpoint | None:
        """The checkpoint, unless it has ended or the coordinator has."""
        self._pass_time(now_ms)
        if checkpoint_id >= self._next_id:
            raise Invalid(
                "an answer is to a checkpoint that has not begun",
                expected=f"a number below {self._next_id}",
                found=str(checkpoint_id),
            )
        return None if self._is_shut_down else self._pending.get(checkpoint_id)

    def _may_abort(self, pending: PendingCheckpoint) -> bool:
        """Whether it is still there, and not with the storage, where it may be complete already."""
        return pending.checkpoint_id in self._pending and not pending.is_storing

    def _end_storing(self, now_ms: int, checkpoint_id: int) -> PendingCheckpoint:
        self._pass_time(now_ms)
        pending = self._pending.get(checkpoint_id)
        if pending is None or not pending.is_storing:
            storing = [number for number, each in self._pending.items() if each.is_storing]
            raise Invalid(
                "an answer is about a checkpoint that is not being stored",
                expected="none" if not storing else f"checkpoint {', '.join(map(str, storing))}",
                found=f"checkpoint {checkpoint_id}",
            )
        pending.is_storing = False
        if self._storing == checkpoint_id:
            self._storing = None
        return pending

    def _check_open_for_savepoints(self, request: SavepointRequest) -> None:
        found = ""
        if self._is_shut_down:
            found = "this attempt of the job is over"
        elif self._schedule.is_ending:
            found = "all its input has ended, and it is about to finish"
        elif self._suspending is not None:
            found = f"another savepoint is on its way, to {self._suspending.purpose.value} the job"
        if found:
            raise Unavailable(
                "no savepoint can be taken now",
                where=request.url,
                expected="a job that runs, and is to go on",
                found=found,
            )

    def _needed_since(self, completed: int) -> int:
        """The oldest checkpoint whose files one under way may refer to; else the one completed.

        Where there was none to build on at the trigger, a slot may build on any completed since.
        """
        bases = (
            pending.begun.base
            for pending in self._pending.values()
            if pending.begun.savepoint is None
        )
        return min((self._first_id if base is None else base for base in bases), default=completed)

    def _abort(self, pending: PendingCheckpoint, reason: AbortReason, detail: str) -> list[Command]:
        """Give one up, and the job if that was one failure too many."""
        checkpoint_id = pending.checkpoint_id
        del self._pending[checkpoint_id]
        request = pending.begun.savepoint
        abort = Abort(checkpoint_id=checkpoint_id, reason=reason, detail=detail, savepoint=request)
        self._history.aborted(abort, self._now_ms)
        if request is not None:
            return [abort, *self._give_up_request(request, f"{reason.value}: {detail}")]
        self._schedule.ended(pending.begun.trigger, self._now_ms, is_complete=False)
        self._failures += reason.counts
        tolerable = self._config.tolerable_failures
        if not reason.counts or self._failures <= tolerable or self._is_shut_down:
            return [abort]
        explained = (
            f"checkpoint {checkpoint_id} failed ({reason.value}: {detail}); "
            f"{self._failures} failed in a row, tolerable_failures is {tolerable}"
        )
        return [abort, *self._shut_down("the job fails"), FailJob(explained)]

    def _give_up_request(self, request: SavepointRequest, why: str) -> list[Command]:
        """Go on without a savepoint, if there is a way on."""
        if request != self._suspending or self._is_shut_down:
            return []
        self._suspending = None
        self._schedule.resume(self._now_ms)
        if request.purpose is not SavepointPurpose.DRAIN:
            return []
        explained = f"the job was drained, and the savepoint at its end was not completed ({why})"
        return [*self._shut_down("the job fails"), FailJob(explained)]

    def _shut_down(self, detail: str) -> list[Command]:
        self._is_shut_down = True
        commands: list[Command] = []
        for pending in tuple(self._pending.values()):
            if not pending.is_storing:
                commands += self._abort(pending, AbortReason.SHUTDOWN, detail)
        return commands

    def _report(self, pending: PendingCheckpoint) -> None:
        self._history.answered(
            pending.checkpoint_id,
            size_bytes=pending.size_bytes,
            written_bytes=pending.written_bytes,
            slots=pending.slots,
        )

    def _proceed(self, commands: list[Command]) -> Sequence[Command]:
        """Store what is ready and begin what is wanted, as far as there is room for it."""
        if self._is_shut_down:
            return commands
        for pending in self._pending.values():
            may_store = pending.is_ready and not pending.is_storing
            if may_store and (pending.is_aside or self._storing is None):
                commands.append(self._store(pending))
        wanted = self._schedule.next()
        if wanted is not None and wanted[0] <= self._now_ms and self._has_room:
            commands.append(self._begin(wanted[1]))
        return commands

    def _store(self, pending: PendingCheckpoint) -> Store:
        pending.is_storing = True
        if not pending.is_aside:
            self._storing = pending.checkpoint_id
        self._history.storing(pending.checkpoint_id)
        return pending.store()

    def _begin(self, trigger: Trigger, request: SavepointRequest | None = None) -> Begin:
        begun = Begin(
            checkpoint_id=self._next_id,
            triggered_ms=self._now_ms,
            trigger=trigger,
            base=self._completed,
            savepoint=request,
        )
        self._next_id += 1
        self._pending[begun.checkpoint_id] = PendingCheckpoint(
            begun, slots=self._slots, sources=self._sources
        )
        if request is None:
            self._schedule.begun(trigger, self._now_ms)
        self._history.begun(begun)
        return begun
