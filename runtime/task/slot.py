"""A slot: all chains of the job, once, in one thread; it processes, aligns and takes snapshots.

It does not know the network: other threads fill channels and give commands, elements for other
slots go to outlets, and messages for the driver to an object that is passed in.
"""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from holdfast.backends import key_groups_of_slots
from holdfast.runtime.api.errors import NotOpened, OperatorFailed
from holdfast.runtime.planning.job_plan import ChainPlan, EdgePlan
from holdfast.runtime.protocol.checkpoints import SavepointFormat
from holdfast.runtime.protocol.elements import Barrier
from holdfast.runtime.protocol.messages import (
    Acknowledge,
    BeginSavepoint,
    CancelAttempt,
    CheckpointAborted,
    CheckpointCompleted,
    Collect,
    Decline,
    Finish,
    Finished,
    Heartbeat,
    Ready,
    ToDriver,
)
from holdfast.runtime.protocol.metrics import LongCall, SlotMetrics
from holdfast.runtime.protocol.operator import OperatorContext
from holdfast.runtime.task.alignment import AlignedExactlyOnce
from holdfast.runtime.task.chain import Chain, chain_inputs
from holdfast.runtime.task.channel import Bell, Channel
from holdfast.runtime.task.committer import SlotCommitters
from holdfast.runtime.task.fair_turns import Turns
from holdfast.runtime.task.routing import Outlet, Router, router_of
from holdfast.runtime.task.slot_assignment import SlotAssignment
from holdfast.runtime.task.slot_checkpoint import SlotCheckpoint, SlotSavepoint
from holdfast.runtime.task.slot_metrics import Gauges
from holdfast.runtime.task.watchdog import Watchdog
from holdfast.storage import (
    Clock,
    Fenced,
    HoldfastError,
    Invalid,
    JobStorage,
    SavepointFolder,
    SegmentWriter,
)
from holdfast.storage.names import is_savepoint_folder
from holdfast.storage.registry import storage_at

__all__ = ["Driver", "Slot", "SlotCommand"]

SlotCommand = CheckpointCompleted | CheckpointAborted | Finish | CancelAttempt
_LONGEST_WAIT_S = 0.5
_logger = logging.getLogger(__name__)


class Driver(Protocol):
    """The slot's connection to the driver. Safe to call from any thread."""

    def call(self, message: ToDriver) -> bool:
        """Send a message; the docstring of the message says what the answer means."""
        ...


class Slot:
    """Runs in the thread that calls `run`. `command` may be called from any thread.

    `channels` are by edge, and for each edge by sender; `outlet` answers the way to an edge's
    channel in another slot.
    """

    def __init__(
        self,
        assignment: SlotAssignment,
        number: int,
        channels: Mapping[str, Sequence[Channel]],
        outlet: Callable[[EdgePlan, int], Outlet],
        driver: Driver,
        bell: Bell,
        clock: Clock,
    ) -> None:
        self._assignment = assignment
        self._number = number
        self._channels = channels
        self._outlet = outlet
        self._driver = driver
        self._bell = bell
        self._clock = clock
        self._commands: deque[SlotCommand] = deque()
        self._checkpoints: dict[int, SlotCheckpoint] = {}
        self._given_up: set[int] = set()
        self._savepoints: dict[int, SlotSavepoint] = {}
        self._completed: int | None = None
        """The newest checkpoint that the slot knows to be complete."""
        self._acknowledging = ThreadPoolExecutor(1, f"acknowledgements of {number}")
        self._acknowledging_savepoints = ThreadPoolExecutor(1, f"savepoints of {number}")
        self._has_said_finished = False
        self._is_finishing = self._is_done = False
        self._lost: HoldfastError | None = None
        self.chains: list[Chain] = []
        self._committers = SlotCommitters(clock, bell.ring)
        self._turns = Turns(len(assignment.plan.chains))
        self._gauges = Gauges(assignment.backend, self.chains)
        entries = (Slot.open, Slot.step, Slot.close)
        self._watchdog = Watchdog(clock, entries, self._operator_at_work)

    def command(self, command: SlotCommand) -> None:
        """Queue a command for the slot's thread."""
        self._commands.append(command)
        self._bell.ring()

    def begin_savepoint(self, told: BeginSavepoint) -> bool:
        """Know of a savepoint before its barriers come; False if its place cannot be opened.

        Or if its folder is not called like one: it would be written elsewhere.

        Only the name of the place comes over the network. What opens it came with the task, and
        with that all secrets.
        """
        given = self._assignment
        if not is_savepoint_folder(told.folder):
            _logger.warning("no folder of a savepoint is called %r", told.folder[:200])
            return False
        try:
            storage = storage_at(told.directory, given.job.storage, given.open_storage)
        except HoldfastError as error:
            _logger.warning("the place of a savepoint cannot be opened: %s", error)
            return False
        self._savepoints[told.checkpoint_id] = SlotSavepoint(
            SavepointFolder(storage, told.folder), SavepointFormat(told.format), told.ends_job
        )
        return True

    def fail(self, error: HoldfastError) -> None:
        """Stop the slot with an error that happened elsewhere, such as a broken stream."""
        self._lost = self._lost or error
        self._bell.ring()

    def rows(self) -> int:
        """Rows that its chains have read so far. Safe to call from any thread."""
        return sum(chain.rows for chain in self.chains)

    def metrics(self) -> SlotMetrics:
        """Numbers of the slot. Any thread; those of state are as of the call before, or later."""
        metrics = self._gauges.ask()
        self._bell.ring()
        return msgspec.structs.replace(metrics, rows=self.rows())

    def long_call(self) -> LongCall | None:
        """The call that it, or a commit, has been in for some seconds. For one other thread."""
        return self._watchdog.look() or self._committers.long_call()

    def _operator_at_work(self) -> str:
        return next(filter(None, (chain.inside for chain in self.chains)), "")

    def run(self, on_failure: Callable[[Exception], None] = lambda _: None) -> None:
        """Open all operators, process until the driver says that it is over, close them.

        `on_failure` is told of a failure before operators are closed: that may take for ever.

        When it is over, all is committed: an operator that then cannot be closed is warned of, and
        is no failure, for the job would be run again, and its end fail again.

        Raises:
            OperatorFailed: an operator did.
            Fenced: the driver has called the attempt off, perhaps before anything was opened.
            HoldfastError: what `fail` was called with.
        """
        self._watchdog.begin()
        try:
            self.open()
            while not self.is_done:
                if not self.step():
                    self._bell.wait(self._wait_s())
        except BaseException as error:
            if isinstance(error, Exception):
                on_failure(error)
            with suppress(Exception):  # that it cannot be closed either is not what went wrong
                self.close()
            raise
        else:
            for failure in self.close():
                _logger.warning("the job is complete, but %s", failure, exc_info=failure)
        finally:
            self._watchdog.end()

    @property
    def is_done(self) -> bool:
        """Whether the driver has said that it is over, and all is committed."""
        return self._is_done

    @property
    def has_committed(self) -> bool:
        """Whether all is committed that completed checkpoints list."""
        return self._committers.are_idle

    def open(self) -> None:
        """Open all operators, and say that the slot is ready. The first part of `run`."""
        self._open()
        self._driver.call(Ready(self._number))

    def step(self) -> bool:
        """Do one thing, a command if there is one; False if there is nothing to do now."""
        self._gauges.read_if_asked()
        self._committers.collect()
        has_done = self._obey() or self._work()
        if self._is_finishing and self.has_committed:
            self._is_done = True
            self._say_closing()
        self._watchdog.left()
        return has_done

    def close(self) -> list[OperatorFailed]:
        """Close all operators, and give up the checkpoints on their way. The last part of `run`.

        Answers the failures of operators that cannot be closed; the others are.
        """
        for checkpoint in self._checkpoints.values():
            checkpoint.give_up()
        self._committers.close()
        failures = [failure for chain in reversed(self.chains) for failure in chain.close()]
        for acknowledging in (self._acknowledging, self._acknowledging_savepoints):
            acknowledging.shutdown(wait=True, cancel_futures=True)
        for checkpoint in self._checkpoints.values():
            checkpoint.abort()
        return failures

    def _open(self) -> None:
        plan = self._assignment.plan
        self._check_wanted()
        for chain_plan in plan.chains:
            inputs = chain_inputs(plan, chain_plan, self._channels)
            chain = Chain(
                chain_plan,
                inputs,
                AlignedExactlyOnce(len(inputs)),
                self._routers(chain_plan),
                self._see,
                self._take_snapshot,
            )
            self.chains.append(chain)
        # Those that take rows are open before those that may emit while they open.
        for chain in reversed(self.chains):
            for place in reversed(range(len(chain.operators))):
                self._check_wanted()
                with chain.named(place, NotOpened):
                    chain.operators[place].open(self._context(chain, place))

    def _check_wanted(self) -> None:
        """Stop before users' functions are opened, if the attempt is over."""
        if self._lost is not None:
            raise self._lost
        for command in tuple(self._commands):
            if isinstance(command, CancelAttempt):
                raise _called_off(command)

    def _routers(self, chain_plan: ChainPlan) -> dict[str, Router]:
        plan = self._assignment.plan
        edges = [link.target for link in chain_plan.links if isinstance(link.target, str)]
        return {
            edge: router_of(plan.edge(edge), self._number, plan, self._channels[edge], self._outlet)
            for edge in edges
        }

    def _context(self, chain: Chain, place: int) -> OperatorContext:
        given = self._assignment
        plan = given.plan
        uid = chain.plan.operators[place].uid
        return OperatorContext(
            uid=uid,
            slot=self._number,
            parallelism=plan.parallelism,
            max_parallelism=plan.max_parallelism,
            attempt=given.attempt,
            epoch=given.epoch,
            key_groups=key_groups_of_slots(plan.parallelism, plan.max_parallelism)[self._number],
            job=given.job,
            backend=given.backend,
            restored=given.restored.get(uid, ()),
            restored_from=given.restored_from,
            allow_pickle=given.allow_pickle,
            allow_missing_output=given.allow_missing_output,
            first_checkpoint_id=given.first_checkpoint_id,
            compression=given.compression,
            clock=self._clock,
            output=chain.outputs[place],
            collector=_Collector(self._driver),
            committer=self._committers.make(uid),
        )

    def _work(self) -> bool:
        """Have one chain do a bounded amount; chains share the time of the slot's thread.

        A chain that has no room for what comes of it has no turn, so the furthest downstream that
        has work always may have one: nothing can jam.
        """
        for chain in self.chains:
            chain.tend()
        now_ms = self._clock.now_ms()
        ready = [
            place
            for place, chain in enumerate(self.chains)
            if chain.has_room and (chain.has_work or chain.is_due(now_ms))
        ]
        if not ready:
            return False
        place = self._turns.next(ready)
        chain, began_s = self.chains[place], self._clock.monotonic_s()
        if chain.is_due(now_ms):
            chain.tick(now_ms)
        if chain.has_room:
            chain.step()
        self._turns.charge(place, self._clock.monotonic_s() - began_s)
        self._say_finished()
        return True

    def _say_finished(self) -> None:
        """At once: barriers may come so fast that there is always something to do."""
        if not self._has_said_finished and all(chain.has_ended for chain in self.chains):
            self._has_said_finished = True
            self._driver.call(Finished(self._number))

    def _wait_s(self) -> float:
        # The receiver that makes room rings the bell.
        due = [chain.next_tick_ms() for chain in self.chains if chain.has_room]
        first = min((moment for moment in due if moment is not None), default=None)
        if first is None:
            return _LONGEST_WAIT_S
        return min(max((first - self._clock.now_ms()) / 1000, 0.001), _LONGEST_WAIT_S)

    def _see(self, barrier: Barrier) -> None:
        """A channel brings a barrier. The time of alignment runs from the first one.

        The files that the driver keeps are those of the checkpoint that the barrier says is
        complete, and of newer ones: so snapshots must not build on an older one, though the news
        of this one may still be on its way.
        """
        if barrier.completed is not None:
            self._complete(barrier.completed)
        self._checkpoint(barrier)

    def _checkpoint(self, barrier: Barrier) -> None:
        """Be ready to write what a barrier asks for."""
        if barrier.checkpoint_id not in self._checkpoints:
            begun = self._begin(barrier)
            self._checkpoints[barrier.checkpoint_id] = begun
            if barrier.checkpoint_id in self._given_up:
                begun.give_up()

    def _begin(self, barrier: Barrier) -> SlotCheckpoint:
        given, label = self._assignment, f"slot-{self._number}"
        checkpoint_id, compression = barrier.checkpoint_id, given.compression
        told = self._savepoints.get(checkpoint_id)
        if barrier.is_savepoint != (told is not None):
            raise Invalid(  # its state would be written where no restore looks for it
                "a barrier and what was said of it do not agree whether it is of a savepoint",
                found=f"barrier {checkpoint_id}, is_savepoint={barrier.is_savepoint}",
                fix="The job starts again from its last checkpoint",
            )
        place: JobStorage | SavepointFolder = given.job if told is None else told.place

        def begin(how: Callable[..., SegmentWriter]) -> Callable[[], SegmentWriter]:
            return partial(how, checkpoint_id, label, compression=compression)

        def begin_log(asked: str) -> SegmentWriter:
            return place.log_segments(checkpoint_id, label, compression=asked or compression)

        return SlotCheckpoint(
            checkpoint_id,
            begin(place.segments)(),
            begin(place.shared_segments),
            begin_log,
            partial(place.table_file, checkpoint_id),
            self._clock,
            len(self.chains),
            self._written,
            savepoint=None if told is None else told.format,
            ends_job=told is not None and told.ends_job,
        )

    def _take_snapshot(self, chain: Chain, checkpoint_id: int) -> None:
        checkpoint = self._checkpoints[checkpoint_id]
        form = checkpoint.savepoint
        checkpoint.take(
            [
                (spec.uid, partial(operator.snapshot, checkpoint_id, checkpoint, savepoint=form))
                for spec, operator in zip(chain.plan.operators, chain.operators, strict=True)
            ]
        )
        if checkpoint.ends_job and not checkpoint.is_given_up:
            chain.suspend(checkpoint_id)

    def _written(self, checkpoint: SlotCheckpoint) -> None:
        is_aside = checkpoint.savepoint is not None  # its place may be slow
        acknowledging = self._acknowledging_savepoints if is_aside else self._acknowledging
        acknowledging.submit(self._acknowledge, checkpoint)

    def _acknowledge(self, checkpoint: SlotCheckpoint) -> None:
        slot, number = self._number, checkpoint.checkpoint_id
        try:
            part = checkpoint.finish()
        except CancelledError:
            checkpoint.is_over = True
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver counts it
            checkpoint.is_over = True
            reason = "".join(traceback.format_exception_only(error)).strip()
            self._answer(Decline(checkpoint_id=number, slot=slot, reason=reason))
            return
        checkpoint.is_over = True
        self._answer(
            Acknowledge(
                checkpoint_id=number, slot=slot, parts=part.parts, statistics=part.statistics
            )
        )

    def _answer(self, answer: Acknowledge | Decline) -> None:
        """A checkpoint would wait for it until it expires: so a slot that cannot answer fails."""
        try:
            self._driver.call(answer)
        except HoldfastError as error:
            self.fail(error)

    def _obey(self) -> bool:
        """Do the next command, if there is one."""
        if self._lost is not None:
            raise self._lost
        if not self._commands:
            return False
        match self._commands.popleft():
            case CheckpointCompleted(checkpoint_id):
                self._complete(checkpoint_id)
            case CheckpointAborted(checkpoint_id):
                self._abort(checkpoint_id)
            case Finish():
                self._is_finishing = True
            case CancelAttempt() as cancel:
                raise _called_off(cancel)
        return True

    def _say_closing(self) -> None:
        """Send it at once: by the next heartbeat the slot may have ended."""
        with suppress(HoldfastError):  # it may be gone, and all is committed
            self._driver.call(Heartbeat(slot=self._number, metrics=self.metrics(), is_closing=True))

    def _abort(self, checkpoint_id: int) -> None:
        checkpoint = self._checkpoints.get(checkpoint_id)
        if checkpoint is None:
            self._given_up.add(checkpoint_id)
        else:
            checkpoint.give_up()
        for chain in self.chains:
            chain.resume(checkpoint_id)
            chain.aborted(checkpoint_id)

    def _complete(self, checkpoint_id: int) -> None:
        """A checkpoint is complete, and with it those before; of several, the last one counts.

        A command says so, and the barriers of later ones, whichever comes first. Operators are told
        once, and not of an older one any more.
        """
        if self._completed is not None and checkpoint_id <= self._completed:
            return
        self._completed = checkpoint_id
        self._forget(checkpoint_id)
        for chain in self.chains:
            chain.completed(checkpoint_id)

    def _forget(self, completed: int) -> None:
        """What came before a completed checkpoint is of no interest any more, but a savepoint."""
        self._given_up = {number for number in self._given_up if number > completed}
        for number, checkpoint in list(self._checkpoints.items()):
            if number <= completed and (checkpoint.savepoint is None or checkpoint.is_over):
                del self._checkpoints[number]


def _called_off(cancel: CancelAttempt) -> Fenced:
    return Fenced("the driver has called this attempt off", found=cancel.reason)


@dataclass(frozen=True)
class _Collector:
    driver: Driver

    def collect(self, uid: str, part: str, rows: bytes) -> None:
        self.driver.call(Collect(uid=uid, part=part, rows=rows))
