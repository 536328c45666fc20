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
from functools import partial

import msgspec

from holdfast.backends import SnapshotForm, key_groups_of_slots
from holdfast.runtime.api.errors import NotOpened, OperatorFailed
from holdfast.runtime.planning.job_plan import ChainPlan
from holdfast.runtime.protocol.checkpoints import SavepointFormat
from holdfast.runtime.protocol.elements import Barrier
from holdfast.runtime.protocol.messages import (
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
from holdfast.runtime.task.alignment import alignment_of
from holdfast.runtime.task.chain import Chain, chain_inputs
from holdfast.runtime.task.channel import Bell, Channel, Rings
from holdfast.runtime.task.committer import SlotCommitters
from holdfast.runtime.task.in_flight import (
    InFlightWriter,
    OvertakenRows,
    read_restored,
)
from holdfast.runtime.task.loop import SlotLoop
from holdfast.runtime.task.routing import MakeOutlet, Router, router_of
from holdfast.runtime.task.slot_assignment import SlotAssignment
from holdfast.runtime.task.slot_checkpoint import SlotCheckpoint, SlotSavepoint
from holdfast.runtime.task.slot_metrics import Gauges
from holdfast.runtime.task.spill import Spill
from holdfast.runtime.task.sync_deadline import SyncDeadline
from holdfast.runtime.task.watchdog import Watchdog
from holdfast.storage import (
    Clock,
    Fenced,
    HoldfastError,
    Invalid,
    SavepointFolder,
)
from holdfast.storage.names import is_savepoint_folder
from holdfast.storage.registry import storage_at

__all__ = ["Slot"]

_Command = CheckpointCompleted | CheckpointAborted | Finish | CancelAttempt
_logger = logging.getLogger(__name__)


class Slot:
    """Runs in the thread that calls `run`. `command` may be called from any thread.

    `channels` are by edge, and for each edge by sender; `outlet` returns the upstream end of an
    edge's channel in another slot. `call_driver` sends a message from any thread; the docstring of
    the message says what the answer means. `spill` takes restored rows that are more than their
    channels have room for; without it they stay in memory.
    """

    def __init__(
        self,
        assignment: SlotAssignment,
        number: int,
        channels: Mapping[str, Sequence[Channel]],
        outlet: MakeOutlet,
        call_driver: Callable[[ToDriver], bool],
        bell: Bell,
        clock: Clock,
        *,
        spill: Spill | None = None,
    ) -> None:
        self._assignment = assignment
        self._number = number
        self._channels = channels
        self._outlet = outlet
        self._call_driver = call_driver
        self._bell = bell
        self._clock = clock
        self._spill = spill
        self._commands: deque[_Command] = deque()
        self._checkpoints: dict[int, SlotCheckpoint] = {}
        self._given_up: set[int] = set()
        self._in_flight = InFlightWriter(assignment.plan, number)
        self._savepoints: dict[int, SlotSavepoint] = {}
        self._completed: int | None = None
        """The newest checkpoint that the slot knows to be complete."""
        self._acknowledging = ThreadPoolExecutor(1, f"acknowledgements of {number}")
        self._acknowledging_savepoints = ThreadPoolExecutor(1, f"savepoints of {number}")
        self._has_reported_end = False
        self._is_finishing = self._is_done = self._is_closing = False
        self._failure: HoldfastError | None = None
        self._on_failure: Callable[[Exception], None] = lambda _: None
        self._sync_deadline = SyncDeadline(assignment.sync_timeout_s, self._sync_is_late)
        self.chains: list[Chain] = []
        self.loop = SlotLoop(len(assignment.plan.chains), bell, clock)
        self._committers = SlotCommitters(clock)
        self._gauges = Gauges(assignment.backend, self.chains, self.loop)
        entries = (Slot.open, Slot.step, Slot.close)
        self._watchdog = Watchdog(clock, entries, self._operator_at_work)

    def command(self, command: _Command) -> None:
        """Queue a command for the slot's thread."""
        self._commands.append(command)
        self._bell.ring()

    def begin_savepoint(self, order: BeginSavepoint) -> bool:
        """Prepare for a savepoint, before its barriers; False if it cannot be written."""
        given = self._assignment
        # The name comes over the network: it must not lead into another folder.
        if not is_savepoint_folder(order.folder):
            _logger.warning("not the name of a savepoint's folder: %r", order.folder[:200])
            return False
        try:
            # What opens the storage came with the task, secrets included.
            storage = storage_at(order.directory, given.job.storage, given.open_storage)
        except HoldfastError as error:
            _logger.warning("the storage of a savepoint cannot be opened: %s", error)
            return False
        self._savepoints[order.checkpoint_id] = SlotSavepoint(
            SavepointFolder(storage, order.folder), SavepointFormat(order.format), order.ends_job
        )
        return True

    def fail(self, error: HoldfastError) -> None:
        """Stop the slot by an error of another thread, such as a broken stream."""
        self._failure = self._failure or error
        self._bell.ring()

    def rows(self) -> int:
        """Rows that its chains have read so far. Safe to call from any thread."""
        return sum(chain.rows for chain in self.chains)

    def metrics(self) -> SlotMetrics:
        """Metrics of the slot, those of state from the call before, or later. Any thread."""
        metrics = self._gauges.ask()
        self._bell.ring()
        return msgspec.structs.replace(metrics, rows=self.rows())

    def long_call(self) -> LongCall | None:
        """The call that the slot's thread, or a commit, has been in for some seconds.

        For one other thread.
        """
        return self._watchdog.look() or self._committers.long_call()

    def _operator_at_work(self) -> str:
        return next(filter(None, (chain.active_uid for chain in self.chains)), "")

    def run(self, on_failure: Callable[[Exception], None] = lambda _: None) -> None:
        """Open all operators, process until the driver ends the attempt, close the operators.

        `on_failure` is called with a failure before operators are closed: that may never return.

        Raises:
            OperatorFailed: an operator has failed.
            Fenced: the driver has cancelled the attempt, perhaps before anything was opened.
            HoldfastError: what `fail` was called with.
        """
        self._watchdog.begin()
        self._on_failure = on_failure
        try:
            self.open()
            while not self.is_done:
                if not self.step():
                    self._bell.wait(self.loop.wait_s())
        except BaseException as error:
            if isinstance(error, Exception):
                on_failure(error)
            with suppress(Exception):  # a failure to close would hide the first one
                self.close()
            raise
        else:
            # All is committed. As a failure this would have the job run again, and end so again.
            for failure in self.close():
                _logger.warning("the job is complete, but %s", failure, exc_info=failure)
        finally:
            self._watchdog.end()

    @property
    def is_done(self) -> bool:
        """Whether the driver has ended the attempt, and all is committed."""
        return self._is_done

    @property
    def has_committed(self) -> bool:
        """Whether everything that completed checkpoints list is committed."""
        return self._committers.are_idle

    def open(self) -> None:
        """Open all operators, and report that the slot is ready. The first part of `run`."""
        self._open()
        self._call_driver(Ready(self._number))

    def step(self) -> bool:
        """Run one command, or else one chain's turn; False if there is nothing to do now."""
        self._gauges.read_if_asked()
        self._committers.collect()
        has_done = self._run_command() or self.loop.turn()
        self._report_end()
        if self._is_finishing and self.has_committed:
            self._is_done = True
            self._report_closing()
        self._watchdog.left()
        return has_done

    def close(self) -> list[OperatorFailed]:
        """Close all operators, and give up unfinished checkpoints. The last part of `run`.

        Returns the failures of operators that cannot be closed; all others are closed.
        """
        self._is_closing = True
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
        self._check_not_cancelled()
        for chain_plan, bell in zip(plan.chains, self.loop.bells, strict=True):
            inputs = chain_inputs(plan, chain_plan, self._channels, self._source_alignment_ms)
            for each in inputs:
                each.channel.bell = bell
                each.channel.time_barriers(self.loop.monotonic_ms)
            chain = Chain(
                chain_plan,
                inputs,
                alignment_of(self._assignment.checkpoint_mode, len(inputs)),
                self._routers(chain_plan, bell),
                self._barrier_arrived,
                self._take_snapshot,
            )
            self.chains.append(chain)
            self.loop.begin(chain)
        self._restore_in_flight()
        # From the last to the first: an operator may emit rows while it opens.
        for chain, bell in reversed([*zip(self.chains, self.loop.bells, strict=True)]):
            for place in reversed(range(len(chain.operators))):
                self._check_not_cancelled()
                with chain.named(place, NotOpened):
                    chain.operators[place].open(self._context(chain, place, bell))

    @property
    def _source_alignment_ms(self) -> int | None:
        # Where state is kept in the acknowledgement there is no place for rows that wait.
        keeps_files = self._assignment.job.storage.capabilities.keeps_segment_files
        return self._assignment.source_alignment_ms if keeps_files else None

    def _restore_in_flight(self) -> None:
        """Put rows that were in flight at the head of their channels, before anything is read."""
        given = self._assignment
        if not given.in_flight or given.restored_from is None:
            return
        every = (channel for channels in self._channels.values() for channel in channels)
        restored = read_restored(
            given.in_flight,
            given.restored_from,
            given.plan,
            self._number,
            memory_bytes=min((channel.capacity_bytes for channel in every), default=0),
            spill=self._spill,
        )
        for (edge, sender), rows in restored.items():
            self._channels[edge][sender].restore(rows)
        # Only edges of sources ever have rows in flight, and one channel a slot, which keeps order.
        # But the edge may have another origin since, from which each slot has a channel.
        for edge in {edge for edge, _ in restored if len(self._channels[edge]) > 1}:
            for chain in self.chains:
                if edge in chain.plan.inputs:
                    chain.read_restored_first(edge)

    def _check_not_cancelled(self) -> None:
        """Stop before the next user's function is opened, if the attempt is over."""
        if self._failure is not None:
            raise self._failure
        for command in tuple(self._commands):
            if isinstance(command, CancelAttempt):
                raise _cancelled(command)

    def _routers(self, chain_plan: ChainPlan, bell: Rings) -> dict[str, Router]:
        plan = self._assignment.plan
        edges = [link.target for link in chain_plan.links if isinstance(link.target, str)]
        return {
            edge: router_of(
                plan.edge(edge), self._number, plan, self._channels[edge], self._outlet, bell
            )
            for edge in edges
        }

    def _context(self, chain: Chain, place: int, bell: Rings) -> OperatorContext:
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
            collect=self._collect,
            committer=self._committers.make(uid, bell.ring),
        )

    def _collect(self, uid: str, part: str, rows: bytes) -> None:
        self._call_driver(Collect(uid=uid, part=part, rows=rows))

    def _report_end(self) -> None:
        # After each turn, and not when idle: barriers may keep the slot busy for ever.
        if self.loop.have_ended and not self._has_reported_end:
            self._has_reported_end = True
            self._call_driver(Finished(self._number))

    def _barrier_arrived(self, barrier: Barrier) -> None:
        """A channel has brought a barrier. The time of alignment runs from the first one."""
        # The driver keeps only files of the checkpoint that the barrier names as complete, and of
        # newer ones: the snapshot must not refer to an older one, though the command
        # `CheckpointCompleted` may still be on its way.
        if barrier.completed is not None:
            self._checkpoint_completed(barrier.completed)
        self._checkpoint(barrier)

    def _checkpoint(self, barrier: Barrier) -> None:
        if barrier.checkpoint_id not in self._checkpoints:
            begun = self._begin(barrier)
            self._checkpoints[barrier.checkpoint_id] = begun
            if barrier.checkpoint_id in self._given_up:
                begun.give_up()

    def _begin(self, barrier: Barrier) -> SlotCheckpoint:
        checkpoint_id = barrier.checkpoint_id
        savepoint = self._savepoints.get(checkpoint_id)
        if barrier.is_savepoint != (savepoint is not None):
            # The state would be written where no restore looks for it.
            raise Invalid(
                "a barrier does not agree with the driver's order whether it is of a savepoint",
                found=f"barrier {checkpoint_id}, is_savepoint={barrier.is_savepoint}",
                fix="The job starts again from its last checkpoint",
            )
        return SlotCheckpoint(
            checkpoint_id,
            self._number,
            self._assignment.job,
            self._clock,
            chains=len(self.chains),
            on_written=self._checkpoint_written,
            compression=self._assignment.compression,
            savepoint=savepoint,
        )

    def _take_snapshot(
        self, chain: Chain, checkpoint_id: int, overtaken: Sequence[OvertakenRows]
    ) -> None:
        checkpoint = self._checkpoints[checkpoint_id]
        savepoint = checkpoint.savepoint
        form = SnapshotForm.OWN if savepoint is None else SnapshotForm(savepoint.format.value)
        check = checkpoint.check_wanted
        write = self._in_flight.begin(checkpoint_id, self._completed, overtaken)
        uids = [spec.uid for spec in chain.plan.operators]
        with self._sync_deadline.over(checkpoint_id, uids):
            checkpoint.take(
                [
                    (uid, partial(operator.snapshot, checkpoint_id, checkpoint, form=form))
                    for uid, operator in zip(uids, chain.operators, strict=True)
                ],
                write and partial(self._acknowledging.submit, write, checkpoint, check),
            )
        if savepoint is not None and savepoint.ends_job and not checkpoint.is_given_up:
            chain.suspend(checkpoint_id)

    def _sync_is_late(self, error: HoldfastError) -> None:
        self.fail(error)
        self._on_failure(error)

    def _checkpoint_written(self, checkpoint: SlotCheckpoint) -> None:
        # Savepoints have a thread of their own: their storage may be slow.
        is_savepoint = checkpoint.savepoint is not None
        acknowledging = self._acknowledging_savepoints if is_savepoint else self._acknowledging
        if not self._is_closing:
            acknowledging.submit(self._acknowledge, checkpoint)

    def _acknowledge(self, checkpoint: SlotCheckpoint) -> None:
        answer: ToDriver
        try:
            answer = checkpoint.finish()
        except CancelledError:
            return
        except Exception as error:  # noqa: BLE001 - the driver counts failures of any kind
            reason = "".join(traceback.format_exception_only(error)).strip()
            answer = Decline(
                checkpoint_id=checkpoint.checkpoint_id, slot=self._number, reason=reason
            )
        finally:
            checkpoint.is_over = True
        try:
            self._call_driver(answer)
        except HoldfastError as error:
            # The checkpoint would wait for the answer until it expires.
            self.fail(error)

    def _run_command(self) -> bool:
        """Run the next command; False if there is none."""
        if self._failure is not None:
            raise self._failure
        if not self._commands:
            return False
        self.loop.look_at_all()  # a command may resume a chain, or let an operator go on
        match self._commands.popleft():
            case CheckpointCompleted(checkpoint_id):
                self._checkpoint_completed(checkpoint_id)
            case CheckpointAborted(checkpoint_id):
                self._checkpoint_aborted(checkpoint_id)
            case Finish():
                self._is_finishing = True
            case CancelAttempt() as cancel:
                raise _cancelled(cancel)
        return True

    def _report_closing(self) -> None:
        # At once: by the next heartbeat the slot may have ended.
        with suppress(HoldfastError):  # the driver may be gone, and all is committed
            self._call_driver(Heartbeat(slot=self._number, metrics=self.metrics(), is_closing=True))

    def _checkpoint_aborted(self, checkpoint_id: int) -> None:
        checkpoint = self._checkpoints.get(checkpoint_id)
        if checkpoint is None:
            self._given_up.add(checkpoint_id)
        else:
            checkpoint.give_up()
        for chain in self.chains:
            chain.resume(checkpoint_id)
            chain.aborted(checkpoint_id)

    def _checkpoint_completed(self, checkpoint_id: int) -> None:
        """A checkpoint is complete, and with it all before.

        The command and barriers of later checkpoints report it, whichever comes first. Operators
        are notified once, and never of an older one afterwards.
        """
        if self._completed is not None and checkpoint_id <= self._completed:
            return
        self._completed = checkpoint_id
        self._forget(checkpoint_id)
        self.loop.look_at_all()
        for chain in self.chains:
            chain.completed(checkpoint_id)

    def _forget(self, completed: int) -> None:
        """Drop what is older than a completed checkpoint, except unfinished savepoints."""
        self._given_up = {number for number in self._given_up if number > completed}
        for number, checkpoint in list(self._checkpoints.items()):
            if number <= completed and (checkpoint.savepoint is None or checkpoint.is_over):
                del self._checkpoints[number]


def _cancelled(cancel: CancelAttempt) -> Fenced:
    return Fenced("the driver has cancelled this attempt", found=cancel.reason)
