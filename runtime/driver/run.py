"""One run of a job: attempt after attempt, each from the last completed checkpoint."""

from __future__ import annotations

import logging
import math
import threading
import traceback
from collections import deque
from contextlib import closing
from enum import Enum
from typing import Any

import msgspec

from holdfast.runtime.api.errors import JobFailed
from holdfast.runtime.api.restart_strategies import RestartDecider
from holdfast.runtime.checkpoint.commands import Abort, AbortReason
from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder
from holdfast.runtime.checkpoint.statistics import CheckpointHistory, CheckpointStatus
from holdfast.runtime.driver.attempt import Attempt
from holdfast.runtime.driver.checkpoints.savepoint_requests import (
    SavepointOrders,
    ended_otherwise,
    not_completed,
)
from holdfast.runtime.driver.cluster_capacity import TaskSlotWatch
from holdfast.runtime.driver.events import (
    CancelWanted,
    CheckpointStored,
    CheckpointWanted,
    EventQueue,
    SavepointWanted,
)
from holdfast.runtime.driver.failure.failures import (
    Failure,
    Repeat,
    RepeatedFailures,
    positions_of,
)
from holdfast.runtime.driver.outcomes import (
    AttemptPhase,
    Cancelled,
    Outcome,
    Succeeded,
    Unsuccessful,
)
from holdfast.runtime.driver.run_parts import AttemptParts, RunParts
from holdfast.runtime.driver.startup.opened_sources import open_sources
from holdfast.runtime.network import Credentials, DriverServer, SlotClient
from holdfast.runtime.protocol.messages import Collect, ToDriver
from holdfast.runtime.slot_process import SlotLaunch
from holdfast.storage import Corrupt, Fenced, HoldfastError, JobResult, Unavailable
from holdfast.storage.distribution import holdfast_version
from holdfast.storage.jobs.job import with_restore_advice
from holdfast.storage.restore_points import RestorePoint

__all__ = ["JobRun", "JobStatus"]

_logger = logging.getLogger(__name__)
_KEPT_FAILURES = 100


class JobStatus(Enum):
    """What a job is doing, or how it has ended."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self in (JobStatus.FINISHED, JobStatus.CANCELLED, JobStatus.FAILED)


class JobRun:
    """Runs attempts until the job has ended. `run` is called once, by its own thread."""

    def __init__(self, parts: RunParts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._cancel = threading.Event()
        self._is_interrupted = False
        self._events: EventQueue | None = None
        self._orders = SavepointOrders()
        self._given: list[SavepointOrder] = []
        """Orders that the latest attempt was given."""
        self._stopped_at: str | None = None
        """The URL of the savepoint that stopped or cancelled the job."""
        self._attempt: Attempt | None = None
        self._token = parts.entropy.token() + parts.entropy.token()
        self._collected: dict[str, dict[str, bytes]] = {}
        self._room = TaskSlotWatch(parts.plan.job_id, parts.cluster.room, parts.clock)
        self.attempts = 0
        self._failed_s: float | None = None
        """When the latest attempt had failed; its slots were stopped after that."""
        self._running_since_s = math.inf
        """When the attempt began to run; infinity before that."""
        self._failures: deque[Failure] = deque(maxlen=_KEPT_FAILURES)
        self.history = CheckpointHistory()
        self.status = JobStatus.STARTING
        self.error: JobFailed | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        """Run the job to its end; `status` and `error` have the result."""
        try:
            parts = self._parts
            server = DriverServer(parts.cluster.driver, self._token, parts.protection)
            with closing(server):
                self._run(server)
        except Exception as error:  # noqa: BLE001 - reported as the error of the job
            self._end(JobStatus.FAILED, JobFailed(f"the job cannot be run: {error}"), error)
        finally:
            self._answer([*self._given, *self._orders.end()])
            self._parts.keeper.close()
            self._parts.cluster.close()
            self.ended.set()

    def cancel(self) -> None:
        """Stop the job without a last checkpoint."""
        self._cancel.set()
        self._parts.keeper.give_up()  # the end waits for what is being stored
        events = self._events
        if events is not None:
            events.put(CancelWanted())

    def interrupt(self) -> None:
        """Stop the job as if its driver died: all that a restore needs stays."""
        self._is_interrupted = True
        self.cancel()

    def request_checkpoint(self) -> None:
        """Request a checkpoint as soon as possible; ignored while the job restarts."""
        events = self._events
        if events is not None:
            events.put(CheckpointWanted())

    def order_savepoint(self, order: SavepointOrder) -> None:
        """Request a savepoint now; the order receives the result."""
        self._orders.add(order)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Failures of attempts, the latest last; at most the last hundred."""
        with self._lock:
            return tuple(self._failures)

    @property
    def trouble(self) -> str:
        """Conditions that hold the job up while it runs; empty if there are none."""
        attempt = None if self.status.is_final else self._attempt
        room = "" if self.status.is_final else self._room.trouble
        calls = "" if attempt is None else attempt.long_calls.trouble
        return "; ".join(filter(None, (room, calls, self._parts.keeper.trouble)))

    def collected(self, uid: str) -> dict[str, bytes]:
        """Parts that a collecting sink has committed so far, by name."""
        with self._lock:
            return dict(self._collected.get(uid, {}))

    def slot_pids(self) -> dict[int, int]:
        attempt = self._attempt
        return {} if attempt is None else dict(attempt.pids)

    def metrics(self) -> dict[str, Any]:
        """Counters of this attempt: rows fed by sources, rows read and state kept by slots."""
        attempt = self._attempt
        feeds = {} if attempt is None else attempt.feeds
        slots = {} if attempt is None else attempt.metrics
        room, now_s = self._room.room, self._parts.clock.monotonic_s()
        return {
            "attempts": self.attempts,
            "task_slots": {} if room is None else {"needed": room.needed, "there": room.there},
            "sources": {
                uid: {
                    "rows": feed.rows,
                    "batches": feed.batches,
                    "batch_age_s": feed.batch_age_s(now_s),
                    "ended": feed.has_ended,
                }
                for uid, feed in feeds.items()
            },
            "slots": {slot: msgspec.to_builtins(told) for slot, told in slots.items()},
        }

    def _run(self, server: DriverServer) -> None:
        restart = self._parts.restart
        decider = restart.start()
        repeats = RepeatedFailures(restart.max_same_failures, restart.ran_well_ms / 1000)
        self._parts.keeper.clean()  # what an earlier driver has left
        while True:
            self._running_since_s = math.inf
            outcome = self._try(server)
            now_s = self._parts.clock.monotonic_s()
            failed_s = now_s if self._failed_s is None else self._failed_s
            self._given = self._orders.end()
            failure, delay_ms = None, None
            if isinstance(outcome, Unsuccessful) and not self._cancel.is_set():
                point = self._parts.keeper.point or self._parts.restore
                reached = positions_of(None if point is None else point.metadata)
                repeat = repeats.failed(
                    outcome, reached, ran_s=failed_s - self._running_since_s, now_s=failed_s
                )
                stopped_for_ms = round((now_s - failed_s) * 1000)
                failed_ms = self._parts.clock.now_ms() - stopped_for_ms
                failure = self._failed(outcome, repeat, failed_ms)
                is_fatal = outcome.is_fatal or repeat.is_final
                delay_ms = self._delay_ms(decider, failure, failed_s, is_fatal=is_fatal)
            self._settle()  # only then it is known which orders are stored
            self._answer(self._given, outcome)
            self._cancel_if_ordered(outcome)
            if not isinstance(outcome, Succeeded):
                self._parts.keeper.clean()
            if self._cancel.is_set() and not isinstance(outcome, Succeeded):
                outcome = Cancelled()
            if not isinstance(outcome, Unsuccessful):
                self._end_well(outcome)
                for order in self._given:
                    order.end()
                return
            if delay_ms is None:
                assert failure is not None
                error = JobFailed(failure.summary, uid=failure.uid, traceback=failure.traceback)
                self._end(JobStatus.FAILED, error)
                return
            self._room.look(is_running=False)
            left_s = failed_s + delay_ms / 1000 - self._parts.clock.monotonic_s()
            if self._cancel.wait(max(0.0, left_s)):
                self._end_well(Cancelled())
                return

    def _failed(self, outcome: Unsuccessful, repeat: Repeat, failed_ms: int) -> Failure:
        failure = Failure(
            attempt=self.attempts,
            failed_ms=failed_ms,
            summary=f"{outcome.reason}{repeat.told}",
            count=repeat.count,
            uid=outcome.uid,
            traceback=outcome.details.rstrip(),
        )
        with self._lock:
            self._failures.append(failure)
        return failure

    def _delay_ms(
        self, decider: RestartDecider, failure: Failure, failed_s: float, *, is_fatal: bool
    ) -> int | None:
        """The delay between the failure and the next attempt; None: there is no other one.

        It is logged before waiting for storage.
        """
        delay_ms = None
        if not is_fatal:
            chance = self._parts.entropy.uniform(0.0, 1.0)
            delay_ms = decider.failed(round(failed_s * 1000), chance)
        job_id = self._parts.job.job_id
        if delay_ms is None:
            more = ""
            if failure.traceback and not _logger.isEnabledFor(logging.DEBUG):
                more = ' (the traceback is in job.failure_details, and logged by log_level="DEBUG")'
            _logger.error("job %r fails: %s%s", job_id, failure.summary, more)
            self._parts.keeper.give_up()
        else:
            self.status = JobStatus.RESTARTING
            again = f"{delay_ms / 1000:g} s"
            _logger.warning(
                "attempt %d of job %r failed, the next comes in %s: %s",
                failure.attempt,
                job_id,
                again,
                failure.summary,
            )
        if failure.traceback:
            _logger.debug("attempt %d of job %r: %s", failure.attempt, job_id, failure.traceback)
        return delay_ms

    def _settle(self) -> None:
        """Wait until the result of a checkpoint that was being stored is known.

        Once the job is given up this returns soon: the next restore finds the result out, and the
        end of the job does not wait for a storage that is down.
        """
        self._parts.keeper.settle()
        self._complete_history()

    def _try(self, server: DriverServer) -> Outcome:
        parts = self._parts
        self.attempts += 1
        self._failed_s = None
        events = EventQueue()
        try:
            attempt = Attempt(self._attempt_parts(server), events)
        except Unavailable as error:
            return Unsuccessful(f"the job could not be restored: {error}")
        except Fenced as error:
            return Unsuccessful(str(error), is_fatal=True)
        except HoldfastError as error:
            told, point = str(error), parts.keeper.point or parts.restore
            if isinstance(error, Corrupt) and point is not None:
                told = with_restore_advice(told, error, point.folder, point.metadata.checkpoint_id)
            return Unsuccessful(f"the job cannot be restored: {told}", is_fatal=True)
        except Exception as error:  # noqa: BLE001 - Spark raises many kinds, and may be back soon
            told = traceback.format_exc()
            return Unsuccessful(f"the job could not be restored: {error!r}", told)
        self._attempt, self._events = attempt, events

        def handle(message: ToDriver) -> bool:
            if isinstance(message, Collect):
                with self._lock:
                    self._collected.setdefault(message.uid, {}).setdefault(
                        message.part, message.rows
                    )
                return True
            return attempt.handle(message)

        server.serve(self.attempts, handle)
        self._orders.begin(lambda order: events.put(SavepointWanted(order)))
        if self._cancel.is_set():
            events.put(CancelWanted())
        try:
            return attempt.run()
        finally:
            # Slots may have begun files for the checkpoint after the last one that began.
            parts.keeper.skip_to(attempt.next_checkpoint_id + 1)
            self._events = None
            self._failed_s = attempt.decided_s
            server.pause()

    def _attempt_parts(self, server: DriverServer) -> AttemptParts:
        parts = self._parts
        # A run that another has replaced may fail before any commit tells it so: its restore
        # point may be deleted by now.
        parts.keeper.check()
        point: RestorePoint | None = parts.keeper.point or parts.restore
        credentials = Credentials(
            token=self._token, attempt=self.attempts, protection=parts.protection
        )
        first_checkpoint_id = parts.keeper.next_checkpoint_id
        launch = SlotLaunch(
            plan=parts.plan,
            epoch=parts.keeper.epoch,
            attempt=self.attempts,
            backend=parts.backend,
            job=parts.job,
            restored={} if point is None else point.operators(parts.plan.operator_uids),
            in_flight=() if point is None else point.in_flight,
            restored_from=None if point is None else point.folder,
            restored_number=0 if point is None else point.metadata.checkpoint_id,
            allow_pickle=parts.allow_pickle,
            # Output of checkpoints that this run has completed must not be missing.
            allow_missing_output=parts.allow_missing_output and point is parts.restore,
            open_storage=parts.open_storage,
            checkpoint_mode=parts.config.mode,
            sync_timeout_s=parts.config.sync_phase_timeout_ms / 1000,
            compression=parts.config.compression,
            source_alignment_ms=parts.config.source_alignment_ms,
            first_checkpoint_id=first_checkpoint_id,
            credentials=credentials,
            driver_address=server.address,
            network=parts.network,
        )
        return AttemptParts(
            slots=parts.plan.parallelism,
            version=holdfast_version(),
            config=parts.config,
            sources=open_sources(parts, point, credentials),
            next_checkpoint_id=first_checkpoint_id,
            restored=None if point is None else point.number_in(parts.job),
            history=self.history,
            deploy=lambda queue: parts.cluster.deploy(launch, queue),
            link=lambda address: SlotClient(address, credentials),
            store=parts.keeper.store,
            retain=parts.keeper.retain,
            discard=parts.keeper.discard,
            on_phase=self._entered,
            clock=parts.clock,
            room=self._room,
            room_timeout_s=parts.room_timeout_s,
        )

    def _answer(self, orders: list[SavepointOrder], outcome: Outcome | None = None) -> None:
        """Answer open orders: complete those that are stored, fail and discard the others."""
        why = outcome.reason if isinstance(outcome, Unsuccessful) else "it has ended"
        for order in orders:
            if order.is_stored:
                order.complete()
            if order.has_ended_job and isinstance(outcome, Succeeded):
                self._stopped_at = order.folder.url
            elif order.is_decided:
                order.end(ended_otherwise(order, why))
            elif order.fail(not_completed(order, why, attempt_is_over=True)):
                self._parts.keeper.discard(order, 0)

    def _cancel_if_ordered(self, outcome: Outcome) -> None:
        """Cancel the job if a savepoint that cancels it is complete, whatever happened since."""
        for order in self._given:
            if order.is_complete and order.cancels_job:
                self._cancel.set()
                if not isinstance(outcome, Succeeded):
                    self._stopped_at = order.folder.url

    def _complete_history(self) -> None:
        """Enter results of commits into the history that arrived after the attempt ended."""
        keeper, now_ms = self._parts.keeper, self._parts.clock.now_ms()
        for each in self.history.overview().recent:
            number, ended_ms = each.checkpoint_id, max(now_ms, each.triggered_ms)
            if each.status is not CheckpointStatus.STORING:
                continue
            decided = keeper.what_became_of(number)
            if isinstance(decided, CheckpointStored):
                self.history.completed(number, ended_ms)
            elif decided is not None or each.savepoint is not None:  # no more waiting for it
                detail = "its place did not answer in time" if decided is None else decided.reason
                abort = Abort(checkpoint_id=number, reason=AbortReason.FINALIZE, detail=detail)
                self.history.aborted(abort, ended_ms)

    def _entered(self, phase: AttemptPhase) -> None:
        if phase is AttemptPhase.RUNNING:
            self.status = JobStatus.RUNNING
            self._running_since_s = self._parts.clock.monotonic_s()

    def _end_well(self, outcome: Outcome) -> None:
        is_cancelled = isinstance(outcome, Cancelled)
        status = JobStatus.CANCELLED if is_cancelled else JobStatus.FINISHED
        stays = self._is_interrupted or self._parts.config.on_cancel == "retain"
        if not (is_cancelled and stays):
            self._delete_checkpoints(status)
        self._end(status)
        if not (is_cancelled and self._is_interrupted):  # the interrupt logs its own line
            _logger.info("job %r is %s", self._parts.job.job_id, status.value)

    def _delete_checkpoints(self, status: JobStatus) -> None:
        """Record the result, then delete all checkpoints."""
        keeper = self._parts.keeper
        result = JobResult(
            job_id=self._parts.job.job_id,
            status=status.value,
            ended_ms=self._parts.clock.now_ms(),
            holdfast_version=holdfast_version(),
            properties={
                "attempts": self.attempts,
                **({} if self._stopped_at is None else {"savepoint": self._stopped_at}),
                "last_checkpoint": None if keeper.last is None else keeper.last.checkpoint_id,
            },
        )
        try:
            # Without the record the job would look as if it never began. A cancelled job without a
            # checkpoint has had no visible effect. A claimed checkpoint counts as one: only the
            # record says that it is still to be deleted.
            if status is JobStatus.FINISHED or keeper.has_checkpoints:
                keeper.end(result)
        except (HoldfastError, OSError) as error:
            _logger.warning(
                "it could not be recorded that the job was %s, so its checkpoints stay: %s",
                status.value,
                error,
            )
            return
        try:
            keeper.delete_all()
        except (HoldfastError, OSError) as error:
            _logger.warning("the checkpoints of the job could not be deleted: %s", error)

    def _end(
        self,
        status: JobStatus,
        error: JobFailed | None = None,
        cause: BaseException | None = None,
    ) -> None:
        if error is not None:
            error.__cause__ = cause
        self.error = error
        self.status = status
