"""One attempt of a job: starts its slots and sources, takes checkpoints, and sees it to its end.

    deploying ─▶ opening ─▶ running ─▶ finishing ─▶ finished
        └───────────┴─────────┴──────────┴─▶ failed, or cancelled

One thread makes all decisions; what happens elsewhere reaches it as an event. The attempt ends with
an outcome. After that nothing of it is left: no slot, no source, no thread.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack

from holdfast.runtime.checkpoint.commands import (
    Abort,
    Begin,
    Command,
    FailJob,
    Notify,
    Retain,
    Store,
)
from holdfast.runtime.checkpoint.coordinator import CheckpointCoordinator
from holdfast.runtime.checkpoint.savepoint_orders import (
    SavepointOrder,
    SavepointPurpose,
    SavepointRequest,
)
from holdfast.runtime.driver.checkpoints.savepoint_requests import (
    announcement,
    no_savepoint,
    not_completed,
)
from holdfast.runtime.driver.events import (
    AttemptEvent,
    CancelWanted,
    CheckpointStored,
    CheckpointWanted,
    CutFailed,
    EventQueue,
    SavepointRefused,
    SavepointWanted,
    SlotLost,
    SlotsEnded,
    SourceBacklog,
    SourceCut,
    SourceFailed,
    StoreFailed,
    TaskSlotsFound,
)
from holdfast.runtime.driver.failure.long_calls import LongCalls
from holdfast.runtime.driver.failure.lost_slots import LostSlots, loss_in
from holdfast.runtime.driver.outcomes import (
    AttemptPhase,
    Cancelled,
    Outcome,
    Succeeded,
    Unsuccessful,
    classify_slot_failure,
    classify_source_failure,
    first_line_of,
)
from holdfast.runtime.driver.run_parts import AttemptParts, Deployment
from holdfast.runtime.driver.slot_deadlines import SlotDeadlines
from holdfast.runtime.driver.slot_lines import SlotLines
from holdfast.runtime.driver.source_feed import Feed
from holdfast.runtime.driver.source_thread import SourceThread
from holdfast.runtime.protocol.messages import (
    Acknowledge,
    CancelAttempt,
    CheckpointAborted,
    CheckpointCompleted,
    Decline,
    Failed,
    Finish,
    Finished,
    Heartbeat,
    Ready,
    Register,
    Start,
    ToDriver,
    ToSlot,
)
from holdfast.runtime.protocol.metrics import SlotMetrics
from holdfast.storage import HoldfastError

__all__ = ["Attempt"]

# Deadlines of slots pass without an event: they are looked at this often.
_LONGEST_WAIT_S = 0.5
_logger = logging.getLogger(__name__)


class Attempt:
    """`run` is called once, by the deciding thread. Other threads use `handle` and the queue."""

    def __init__(self, parts: AttemptParts, events: EventQueue) -> None:
        self._parts = parts
        self._events = events
        self._clock = parts.clock
        self._phase = AttemptPhase.DEPLOYING
        self._began_ms, self._began_s = parts.clock.now_ms(), parts.clock.monotonic_s()
        self._deadlines = SlotDeadlines(parts.slots, self._began_s, parts.room_timeout_s)
        self._registered: dict[int, Register] = {}
        self._lines = SlotLines(events, parts.clock)
        self._sources = {
            uid: SourceThread(source, events, parts.clock) for uid, source in parts.sources.items()
        }
        self._ready: set[int] = set()
        self._finished: set[int] = set()
        self._feeds: dict[str, Feed] = {}
        self._coordinator: CheckpointCoordinator | None = None
        self._outcome: Outcome | None = None
        self._is_over = self._is_symptom = False
        self._silent: set[int] = set()
        self._orders: dict[SavepointRequest | None, SavepointOrder | None] = {None: None}
        """The order of each request: the coordinator knows the request only."""
        self._lost = LostSlots()
        self._metrics: dict[int, SlotMetrics] = {}
        self.long_calls = LongCalls()
        self.decided_s: float | None = None
        """When its outcome was known, by the steady clock; its slots are stopped after that."""

    @property
    def feeds(self) -> Mapping[str, Feed]:
        """The feeds of its sources, by uid; empty before it runs. Safe to call from any thread."""
        return dict(self._feeds)

    @property
    def metrics(self) -> Mapping[int, SlotMetrics]:
        """The latest metrics that each slot has reported. Safe to call from any thread."""
        return dict(self._metrics)

    @property
    def pids(self) -> Mapping[int, int]:
        return {slot: registered.process.pid for slot, registered in list(self._registered.items())}

    @property
    def next_checkpoint_id(self) -> int:
        """A number above that of every checkpoint that has begun."""
        if self._coordinator is None:
            return self._parts.next_checkpoint_id
        return self._coordinator.next_checkpoint_id

    def handle(self, message: ToDriver) -> bool:
        """Take a message of a slot; False if the attempt is over. Safe to call from any thread."""
        if self._is_over:
            return False
        if isinstance(message, Heartbeat):
            now_s = self._clock.monotonic_s()
            self._deadlines.heard(message.slot, now_s, is_closing=message.is_closing)
            self._metrics[message.slot] = message.metrics
            self.long_calls.heard(message.slot, message.call)
            self._lost.lives(message.slot, message.memory)
        elif isinstance(message, Register | Ready | Acknowledge | Decline | Failed | Finished):
            if isinstance(message, Failed):
                self._lost.saw(message.slot, message.memory)
            self._events.put(message)
        return True

    def run(self) -> Outcome:
        """Start the slots, and return the outcome of the attempt when it has ended."""
        deployment: Deployment | None = None
        try:
            deployment = self._deployed()
            while self._outcome is None:
                event = self._events.next(self._wait_s())
                if event is not None:
                    self._happened(event)
                if self._outcome is None:
                    self._check_time()
        finally:
            self.decided_s = self._clock.monotonic_s()
            self._stop(deployment)
        return self._explained(self._outcome)

    def _deployed(self) -> Deployment | None:
        try:
            return self._parts.deploy(self._events)
        except Exception as error:  # noqa: BLE001 - Spark raises many kinds, and may be back soon
            self._fail(
                f"the slots cannot be started: {first_line_of(error)}", traceback.format_exc()
            )
            return None

    def _now_ms(self) -> int:
        """The time of day by a steady clock: setting the system clock expires no checkpoint."""
        return self._began_ms + round((self._clock.monotonic_s() - self._began_s) * 1000)

    def _wait_s(self) -> float:
        if self._coordinator is None or self._phase is not AttemptPhase.RUNNING:
            return _LONGEST_WAIT_S  # no checkpoint begins or expires
        due_ms = self._coordinator.next_tick_ms()
        if due_ms is None:
            return _LONGEST_WAIT_S
        return min(max((due_ms - self._now_ms()) / 1000, 0.0), _LONGEST_WAIT_S)

    def _check_time(self) -> None:
        self._parts.room.look(is_running=self._phase is not AttemptPhase.DEPLOYING)
        lost = self._deadlines.lost(self._clock.monotonic_s())
        if lost and self._is_all_committed(lost):
            self._outcome = self._outcome or Succeeded()  # the slots that hang are stopped
        elif lost:
            why = (self._parts.room.trouble, self.long_calls.told())
            self._fail(": ".join(filter(None, (lost, *why))))
        if self._coordinator is not None and self._phase is AttemptPhase.RUNNING:
            self._carry_out(self._coordinator.tick(self._now_ms()))

    def _happened(self, event: AttemptEvent) -> None:
        match event:
            case TaskSlotsFound() | Register() | Ready() | Finished():
                self._slots_advance(event)
            case Failed():
                self._slot_has_failed(event)
            case SlotLost(slot, reason):
                self._lose(slot, reason)
            case SlotsEnded(error):
                self._slots_have_ended(error)
            case SourceFailed():
                self._source_has_failed(event)
            case CancelWanted():
                self._outcome = Cancelled()
            case SavepointWanted(order):
                self._begin_savepoint(order)
            case SavepointRefused(number):
                self._savepoint_is_refused(number)
            case _:
                self._checkpoint_event(event)

    def _slots_advance(self, event: TaskSlotsFound | Register | Ready | Finished) -> None:
        match event:
            case TaskSlotsFound():
                self._deadlines.found_room(self._clock.monotonic_s())
            case Register():
                self._register(event)
            case Ready(slot):
                self._slot_is_ready(slot)
            case Finished(slot):
                self._slot_has_finished(slot)

    def _checkpoint_event(self, event: AttemptEvent) -> None:
        coordinator, now_ms = self._coordinator, self._now_ms()
        if coordinator is None:
            return
        commands: Sequence[Command] = ()
        match event:
            case Acknowledge(checkpoint_id=number, slot=slot, parts=parts, statistics=took):
                rows = event.in_flight
                commands = coordinator.acknowledged(
                    now_ms, number, slot=slot, parts=parts, statistics=took, in_flight=rows
                )
            case Decline(checkpoint_id=number, slot=slot, reason=reason):
                commands = coordinator.declined(now_ms, number, slot=slot, reason=reason)
            case SourceCut(number, uid, position):
                commands = coordinator.source_position(now_ms, number, uid=uid, position=position)
            case CutFailed(number, uid, reason):
                commands = coordinator.trigger_failed(
                    now_ms, number, reason=f"the position of source {uid!r}: {reason}"
                )
            case CheckpointStored() | StoreFailed():
                commands = self._store_decided(coordinator, now_ms, event)
            case SourceBacklog(uid, is_read):
                commands = coordinator.source_backlog(now_ms, uid=uid, is_read=is_read)
            case CheckpointWanted():
                commands = coordinator.request(now_ms)
        self._carry_out(commands)

    def _store_decided(
        self, coordinator: CheckpointCoordinator, now_ms: int, event: CheckpointStored | StoreFailed
    ) -> Sequence[Command]:
        if isinstance(event, StoreFailed):
            if not event.is_fatal:
                return coordinator.store_failed(now_ms, event.checkpoint_id, reason=event.reason)
            self._fail(event.reason, is_fatal=True)
            return ()
        commands = coordinator.stored(now_ms, event.checkpoint_id)
        if event.order is not None:  # after the history, which the caller may read next
            event.order.complete()
        return commands

    def _carry_out(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Begin():
                    self._begin(command)
                case Store():
                    self._parts.store(command, self._events, self._orders[command.savepoint])
                case Notify(number):
                    self._tell_all(CheckpointCompleted(number))
                case Retain(since):
                    self._parts.retain(since)
                case Abort(checkpoint_id=number):
                    for feed in self._feeds.values():
                        feed.give_up(number)
                    self._give_up_savepoint(command)
                    self._tell_all(CheckpointAborted(number))
                case FailJob(reason):
                    self._fail(reason)
        if self._coordinator is not None:
            self._see_to_the_end(self._coordinator)

    def _see_to_the_end(self, coordinator: CheckpointCoordinator) -> None:
        if coordinator.is_finished:
            self._finish()
        if coordinator.is_to_be_cancelled:
            self._outcome = self._outcome or Cancelled()

    def _source_has_failed(self, event: SourceFailed) -> None:
        if self._phase is AttemptPhase.FINISHING:
            return  # its rows are in the last checkpoint; the slots that it called had ended
        self._outcome = self._outcome or classify_source_failure(event)
        self._is_symptom = True

    def _begin_savepoint(self, order: SavepointOrder) -> None:
        coordinator = self._coordinator
        if coordinator is None or self._phase is not AttemptPhase.RUNNING:
            order.fail(no_savepoint(order, f"one that is {self._phase.value}"))
            return
        self._orders[order.request] = order
        try:
            commands = coordinator.request_savepoint(self._now_ms(), order.request)
        except HoldfastError as error:
            order.fail(error)
            return
        if order.purpose is SavepointPurpose.DRAIN:
            for feed in self._feeds.values():
                feed.drain()
        self._carry_out(commands)

    def _begin(self, begin: Begin) -> None:
        number, order = begin.checkpoint_id, self._orders[begin.savepoint]
        announced = () if order is None else self._tell_all(announcement(order, number))
        for feed in self._feeds.values():
            feed.cut(number, begin.base, order, announced)

    def _savepoint_is_refused(self, number: int) -> None:
        if self._coordinator is not None:
            reason = "a slot cannot open its place; the log of its executor says why"
            now_ms = self._now_ms()
            self._carry_out(self._coordinator.trigger_failed(now_ms, number, reason=reason))

    def _give_up_savepoint(self, abort: Abort) -> None:
        order = self._orders[abort.savepoint]
        if order is None:
            return
        self._parts.discard(order, abort.checkpoint_id)
        why = f"{abort.reason.value}: {abort.detail}"
        order.fail(not_completed(order, why, attempt_is_over=False))
        if order.ends_job:
            for feed in self._feeds.values():
                feed.release()

    def _register(self, event: Register) -> None:
        if event.holdfast_version != self._parts.version:
            host, found = event.process.host, event.holdfast_version
            self._fail(
                f"slot {event.slot} on {host} has Holdfast {found}, the "
                f"driver {self._parts.version}: install the same version everywhere",
                is_fatal=True,
            )
        if event.slot in self._registered:
            if self._registered[event.slot].process != event.process:
                self._fail(f"slot {event.slot} has come twice: Spark has started it again")
            return
        self._registered[event.slot] = event
        self._lost.came(event.slot, event.process)
        self._lines.add(event.slot, self._parts.link(event.address))
        self._deadlines.came(event.slot, self._clock.monotonic_s())
        if len(self._registered) == self._parts.slots and self._outcome is None:
            self._enter(AttemptPhase.OPENING)
            self._tell_all(Start(self._addresses))

    @property
    def _addresses(self) -> dict[int, str]:
        return {slot: registered.address for slot, registered in self._registered.items()}

    def _slot_is_ready(self, slot: int) -> None:
        self._ready.add(slot)
        if len(self._ready) < self._parts.slots or self._phase is not AttemptPhase.OPENING:
            return
        self._enter(AttemptPhase.RUNNING)
        self._coordinator = CheckpointCoordinator(
            self._parts.config,
            slots=self._parts.slots,
            sources=self._parts.sources.keys(),
            next_id=self._parts.next_checkpoint_id,
            now_ms=self._now_ms(),
            restored=self._parts.restored,
            history=self._parts.history,
            why_late=self.long_calls.told,
        )
        for uid, source in self._parts.sources.items():
            feed = self._feeds[uid] = Feed(
                source, self._lines.links, self._addresses, self._events, self._clock
            )
            self._sources[uid].start(feed)

    def _slot_has_finished(self, slot: int) -> None:
        is_news = slot not in self._finished
        self._finished.add(slot)
        if len(self._finished) < self._parts.slots or self._coordinator is None or not is_news:
            return
        if self._coordinator.is_draining:
            self._carry_out(self._coordinator.drained(self._now_ms()))
        elif self._parts.config.final_checkpoint:
            self._carry_out(self._coordinator.request_final(self._now_ms()))
        else:
            self._finish()

    def _finish(self) -> None:
        if self._phase is not AttemptPhase.FINISHING and self._outcome is None:
            self._enter(AttemptPhase.FINISHING)
            self._deadlines.finish(self._clock.monotonic_s())
            self._tell_all(Finish())

    def _slots_have_ended(self, error: str | None) -> None:
        if self._phase is AttemptPhase.FINISHING and (
            error is None or self._is_all_committed(error)
        ):
            self._outcome = Succeeded()
        else:
            # A slot's own failure has been reported before: its event is older than this one.
            self._fail("slots have ended before the job", error or "")
            self._is_symptom = loss_in(error) is not None

    def _is_all_committed(self, trouble: str) -> bool:
        """Whether all output is committed: trouble after that is logged, and is no failure."""
        if not (self._phase is AttemptPhase.FINISHING and self._deadlines.all_is_committed):
            return False
        _logger.warning("the job is complete, but its end is not in order: %s", trouble)
        return True

    def _slot_has_failed(self, event: Failed) -> None:
        if not self._is_all_committed(event.summary):
            self._outcome = self._outcome or classify_slot_failure(event)
            self._is_symptom = event.uid is None

    def _tell_all(self, message: ToSlot) -> Sequence[Future[bool]]:
        """Send a message to all slots; their answers come later."""
        if self._outcome is not None:
            return ()
        # A slot that has ended as ordered has ended its writes, too.
        is_abort = isinstance(message, CheckpointAborted)
        may_be_gone = is_abort and self._phase is AttemptPhase.FINISHING
        return self._lines.tell(message, may_be_gone=may_be_gone)

    def _enter(self, phase: AttemptPhase) -> None:
        self._phase = phase
        self._parts.on_phase(phase)

    def _lose(self, slot: int, reason: str) -> None:
        if self._is_all_committed(reason):
            return
        self._fail(f"slot {slot} is lost: {reason}")
        self._is_symptom = True

    def _fail(self, reason: str, details: str = "", *, is_fatal: bool = False) -> None:
        if self._outcome is None:
            self._outcome = Unsuccessful(reason, details, is_fatal)

    def _explained(self, outcome: Outcome) -> Outcome:
        """Replace a symptom by its cause: a lost connection is noticed before Spark reports why."""
        if not isinstance(outcome, Unsuccessful) or outcome.is_fatal or not self._is_symptom:
            return outcome
        loss = loss_in(outcome.details)
        while (event := self._events.next(0)) is not None:
            if isinstance(event, Failed) and event.uid is not None:
                return classify_slot_failure(event)
            if isinstance(event, SlotsEnded):
                loss = loss or loss_in(event.error)
        return outcome if loss is None else self._lost.outcome(loss, self._silent)

    def _stop(self, deployment: Deployment | None) -> None:
        """Leave nothing behind. Sources first: they would meet slots that are gone."""
        self._is_over = True
        if self._coordinator is not None:
            self._coordinator.shutdown(self._now_ms())
        for feed in self._feeds.values():
            feed.close()
        with ExitStack() as last_first:  # what fails to stop does not keep the others running
            last_first.callback(self._lines.close)
            if deployment is not None:
                deployment.ending()
                last_first.callback(deployment.cancel)
            for source in reversed(self._sources.values()):  # also those that have not begun
                last_first.callback(source.stop())
            if not isinstance(self._outcome, Succeeded):
                # No later attempt would commit a checkpoint that slots are just being told of.
                is_last = isinstance(self._outcome, Cancelled)
                last = CancelAttempt("the attempt is over")
                self._silent |= self._lines.tell_last(last, in_order=is_last)
