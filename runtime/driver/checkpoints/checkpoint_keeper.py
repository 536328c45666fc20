"""Commits the checkpoints of a run in the background, and decides which ones are obsolete.

A savepoint that stops the job is the last checkpoint, and lies elsewhere. Sinks commit because of
it, so neither the next attempt nor a new driver with `restore="latest"` may go back behind it. The
keeper therefore commits a checkpoint of the same number in the job's folder, without state, which
says where the savepoint is; only then are slots notified. To record the end of the job instead was
refused: rows that a killed driver had not committed yet would wait until the savepoint is restored
by hand.

What an attempt wrote for checkpoints that were never complete is deleted when it has ended: nothing
of numbers that the next attempt may use. While it runs, that is done at most once a minute, and
only after a checkpoint was given up and two later ones were completed: each backend and each source
writes one snapshot after the other, so the abandoned one is not written any more.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import msgspec

from holdfast.backends.snapshots.in_flight import in_flight_parts
from holdfast.runtime.checkpoint.commands import Store
from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder
from holdfast.runtime.driver.checkpoints.background_deletion import BackgroundSweeper
from holdfast.runtime.driver.checkpoints.savepoint_keeper import SavepointKeeper
from holdfast.runtime.driver.claiming import Claimed, claims_as_properties
from holdfast.runtime.driver.events import CheckpointStored, EventQueue, StoreFailed
from holdfast.storage import (
    CheckpointMetadata,
    Clock,
    Fenced,
    HoldfastError,
    JobOwner,
    JobResult,
    JobStorage,
    OperatorState,
    Unavailable,
)
from holdfast.storage.jobs.decisions import open_from
from holdfast.storage.jobs.metadata import SAVED_AT
from holdfast.storage.jobs.savepoint import SAVEPOINT
from holdfast.storage.restore_points import RestorePoint
from holdfast.storage.retries import Backoff, repeat_while_unavailable

__all__ = ["CheckpointKeeper"]

_logger = logging.getLogger(__name__)
_PAUSES = Backoff(first_s=0.2, longest_s=5.0)
_LAST_TRIES = 6
_CLEAN_PAUSE_S = 60.0
_ABOVE_ALL = 10**20  # no checkpoint has a number as high as this
_T = TypeVar("_T")


class CheckpointKeeper:
    """Calls the owner of the job's folder from one background thread, which commits and decides.

    Another thread deletes what is obsolete, so that slow deletions delay no checkpoint.

    `last` is the newest checkpoint that this run has completed, `decided` the result of the latest
    store. `point` is where to restore from: `last`, or the savepoint that it stands for. Results of
    savepoints beside which the job goes on are in `decided_aside`.
    """

    def __init__(
        self,
        job: JobStorage,
        owner: JobOwner,
        *,
        retained: int,
        parallelism: int,
        max_parallelism: int,
        clock: Clock,
        deletes_per_s: float | None = None,
        claimed: tuple[Claimed, ...] = (),
    ) -> None:
        self._job = job
        self._owner = owner
        self._retained = retained
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._clock = clock
        self._claimed = claimed
        self._thread = ThreadPoolExecutor(1, "holdfast-checkpoints")
        self._sweeper = BackgroundSweeper(
            owner.sweeper, *claimed, most_per_s=deletes_per_s, clock=clock
        )
        self._gives_up = threading.Event()
        self._savepoints = SavepointKeeper(self._gives_up)
        self._next_id = owner.next_checkpoint_id
        self.last: CheckpointMetadata | None = None
        self.point: RestorePoint | None = None
        self.decided: CheckpointStored | StoreFailed | None = None
        self.decided_aside: dict[int, CheckpointStored | StoreFailed] = {}
        self._newest = self._next_id - 1
        """The number of the last one that was completed, or where this attempt began."""
        self.trouble = ""
        """The commit that is being retried, for how long, and why; empty if there is none."""
        self._leftovers_to = 0
        """The highest checkpoint number of which unneeded files may exist; 0 if none can exist that
        the last search has not found."""
        self._cleaned_s = -math.inf
        self._has_too_many = False
        """Whether a checkpoint was completed since older ones were released."""

    @property
    def epoch(self) -> int:
        """The number of this run among all runs of the job."""
        return self._owner.epoch

    @property
    def next_checkpoint_id(self) -> int:
        """A number that no checkpoint of this job has had, completed or only begun."""
        return max(self._next_id, self._owner.next_checkpoint_id)

    @property
    def has_checkpoints(self) -> bool:
        """Whether the job has a checkpoint: its own, or a claimed one that is not deleted yet."""
        return not all(each.is_gone for each in self._claimed) or bool(self._owner.completed)

    def what_became_of(self, checkpoint_id: int) -> CheckpointStored | StoreFailed | None:
        """The result of the latest store, or of a savepoint since `clean`; None if unknown."""
        for decided in (self.decided, *self.decided_aside.values()):
            if decided is not None and decided.checkpoint_id == checkpoint_id:
                return decided
        return None

    def skip_to(self, checkpoint_id: int) -> None:
        """Do not use numbers below this one."""
        self._next_id = max(self._next_id, checkpoint_id)

    def check(self) -> None:
        """Make sure that this run still has the right to commit.

        Raises:
            Fenced: a newer run has taken over.
            Unavailable: the storage did not answer.
        """
        self._owner.check()

    def store(
        self, command: Store, events: EventQueue, order: SavepointOrder | None = None
    ) -> None:
        """Commit a checkpoint in the background; the result goes to the queue.

        That of a savepoint goes to its order, too.
        """
        if order is None or order.ends_job:
            self._thread.submit(self._store, command, events, order)
        else:
            self._savepoints.submit(partial(self._store_aside, order, command, events))

    def retain(self, since: int) -> None:
        """Delete obsolete checkpoints below this number in the background.

        It is not done straight after a commit: the coordinator may not know of the commit yet, and
        begin a checkpoint that builds on an older one.
        """
        self._thread.submit(self._retain, since)

    def discard(self, order: SavepointOrder, checkpoint_id: int) -> None:
        """Delete the files of a failed savepoint in the background."""
        if not order.is_needed:
            self._savepoints.discard(order, checkpoint_id)

    def give_up(self) -> None:
        """Stop retrying calls to a storage that does not answer."""
        self._gives_up.set()

    def settle(self) -> None:
        """Return when the result of every store that was submitted is known."""
        self._thread.submit(lambda: None).result()  # one thread, so after all before it
        self._savepoints.settle()

    def finish_deleting(self) -> None:
        """Return when everything obsolete is deleted.

        Raises:
            HoldfastError: something could not be deleted; it is tried again in the background.
        """
        self.settle()
        self._sweeper.finish()

    def clean(self) -> None:
        """Delete, in the background, files of ended attempts that no checkpoint needs.

        Call it while no attempt runs: then no file is being written, whatever the newest checkpoint
        says of files that were begun early. Files that abandoned slots still write are void, too,
        and are deleted by the next call, as is whatever could not be deleted this time.
        """
        self._newest, self._leftovers_to = self.next_checkpoint_id - 1, 0
        self.decided_aside.clear()
        self._savepoints.ended()
        self._thread.submit(self._retain_at_last)
        self._thread.submit(self._clean, self.next_checkpoint_id)

    def end(self, result: JobResult) -> None:
        """Record how the job has ended, so that `restore="latest"` does not begin it anew.

        The record also lists claimed checkpoints that are not deleted yet: no later document of
        the job can.

        Raises:
            HoldfastError: it may not be recorded, so the checkpoints must stay.
        """
        self.settle()
        properties = {**result.properties, **claims_as_properties(self._claimed)}
        told = msgspec.structs.replace(result, properties=properties)
        self._insist(lambda: self._owner.end(told), "the end of the job", _LAST_TRIES)

    def delete_all(self) -> None:
        """Delete every checkpoint of the job.

        Raises:
            HoldfastError: not all could be deleted.
        """
        self.settle()
        self._owner.check()
        self._owner.release_all()
        for each in self._claimed:
            each.release()
        self._sweeper.finish()

    def close(self) -> None:
        """Wait for running commits, and for a moment for deletions."""
        self._thread.shutdown(wait=True)
        self._savepoints.close()
        self._sweeper.close()

    def _store(self, command: Store, events: EventQueue, order: SavepointOrder | None) -> None:
        decided = self._decide(command, order)
        if isinstance(decided, CheckpointStored):
            self.last, self._has_too_many = decided.metadata, True
            if order is not None:
                order.is_stored = True
        self.decided = decided
        events.put(decided)
        if isinstance(decided, CheckpointStored):
            self._clean_between(decided.metadata)
            self._savepoints.passed(decided.metadata.checkpoint_id)

    def _store_aside(self, order: SavepointOrder, command: Store, events: EventQueue) -> None:
        decided: CheckpointStored | StoreFailed
        if order.is_decided:
            return  # its attempt is over, and its order is answered
        try:
            metadata = self._document(command, order)
            self._savepoints.commit(order, metadata)
            # After the commit: a newer run removes prepared output that this savepoint lists, and
            # then the job must not be cancelled on the strength of it.
            self._owner.check()
            decided = CheckpointStored(metadata, order)
            order.is_stored = True
        except Exception as error:  # noqa: BLE001 - the order is answered only here
            reason = str(error) or repr(error)
            is_fatal = isinstance(error, Fenced)
            if is_fatal:
                self._savepoints.discard(order, command.checkpoint_id)
            decided = StoreFailed(command.checkpoint_id, reason, is_fatal=is_fatal)
        self.decided_aside[command.checkpoint_id] = decided
        events.put(decided)

    def _decide(
        self, command: Store, order: SavepointOrder | None
    ) -> CheckpointStored | StoreFailed:
        """Commit, and retry until the result is known: an unanswered commit may be visible.

        A savepoint that ends the job is committed in its own folder first, then in the job's: the
        second commit proves that no newer run has taken over, and later runs restore the savepoint.
        """
        what = f"checkpoint {command.checkpoint_id}"
        try:
            metadata = own = self._document(command, order)
            if order is not None:
                self._owner.check()
                self._savepoints.commit(order, metadata)
                own = self._standing_for(metadata, order)
                order.is_needed = True  # also if the result of the commit stays unknown
            stored = self._insist(lambda: self._owner.commit(own), what)
        except Unavailable as error:  # given up; the commit may have taken effect
            return StoreFailed(command.checkpoint_id, str(error), is_fatal=False)
        except Exception as error:  # noqa: BLE001 - the result is reported only here
            is_fatal = isinstance(error, Fenced)
            if order is not None and not is_fatal:  # a newer run may have restored it
                order.is_needed = False
            return StoreFailed(command.checkpoint_id, str(error) or repr(error), is_fatal=is_fatal)
        self.point = RestorePoint(stored, self._job)
        if order is not None:
            self.point = RestorePoint(metadata, order.folder)
        return CheckpointStored(stored, order)

    def _insist(self, act: Callable[[], _T], what: str, most: float = math.inf) -> _T:
        """Call `act` again while the storage does not answer.

        Raises:
            Unavailable: the run was given up, or `most` tries have failed.
        """
        began_s = self._clock.monotonic_s()

        def failed(error: Unavailable, tries: int) -> None:
            took_s = self._clock.monotonic_s() - began_s
            self.trouble = (
                f"{what} of job {self._job.job_id!r} is not committed after {tries} tries "
                f"in {took_s:.0f} s, and is tried again: {error}"
            )
            if tries & (tries - 1) == 0:  # ever more rarely: it may take a night
                _logger.warning("%s", self.trouble)

        try:
            return repeat_while_unavailable(
                act, _PAUSES, pause=self._gives_up.wait, most=most, failed=failed
            )
        finally:
            self.trouble = ""

    def _clean_between(self, completed: CheckpointMetadata) -> None:
        """From time to time, delete files of abandoned checkpoints and of logs."""
        number, begun_from = completed.checkpoint_id, completed.begun_from
        before, self._newest = self._newest, number
        # No snapshot writes files numbered below the last completed checkpoint but one any more:
        # each backend of a slot, and each source, writes one snapshot after the other, and all have
        # written that one. No checkpoint refers to them, also not to shared ones: those in progress
        # build on completed ones, whose files are no orphans as long as `retain` keeps them. Files
        # that were begun before their checkpoint are open as the newest checkpoint lists them, and
        # are spared (`holdfast.storage.jobs.decisions` has the reason).
        first = min(before, open_from(number, begun_from))
        now_s = self._clock.monotonic_s()
        if self._leftovers_to and now_s - self._cleaned_s >= _CLEAN_PAUSE_S:
            self._cleaned_s = now_s
            self._clean(first)
            if self._leftovers_to < first:
                self._leftovers_to = 0
        if begun_from is not None:  # slots may leave files of each number, without a report
            self._leftovers_to = number + 1
        elif number > before + 1:
            self._leftovers_to = max(self._leftovers_to, number - 1)

    def _clean(self, first: int) -> None:
        """Delete orphans, except files of checkpoints from this number on."""
        self._decide_deletes(
            lambda: self._owner.release_orphans(in_flight=range(first, _ABOVE_ALL))
        )

    def _retain_at_last(self) -> None:
        """Retain once more: no coordinator asks for it after its attempt has ended."""
        if self._has_too_many:
            self._retain(None)

    def _retain(self, since: int | None) -> None:
        def release() -> None:
            self._owner.release(self._retained, since=since)
            self._has_too_many = False
            if len(self._owner.completed) >= self._retained:
                for each in self._claimed:
                    each.release()  # it is older than all of these

        self._decide_deletes(release)

    def _decide_deletes(self, decide: Callable[[], None]) -> None:
        try:
            decide()
        except HoldfastError as error:
            _logger.warning("obsolete files are not deleted yet, and will be later: %s", error)
        self._sweeper.wake()

    def _document(self, command: Store, order: SavepointOrder | None) -> CheckpointMetadata:
        return CheckpointMetadata(
            job_id=self._job.job_id,
            checkpoint_id=command.checkpoint_id,
            kind="checkpoint" if order is None else SAVEPOINT,
            triggered_ms=command.triggered_ms,
            completed_ms=self._clock.now_ms(),
            operators={
                uid: OperatorState(
                    parallelism=self._parallelism,
                    max_parallelism=self._max_parallelism,
                    parts=tuple(parts),
                )
                for uid, parts in command.operators.items()
            },
            sources=dict(command.sources),
            parts={each.name: each.part for each in in_flight_parts(command.in_flight)},
            properties={
                "trigger": command.trigger.value,
                **(
                    claims_as_properties(self._claimed)
                    if order is None
                    else {"format": order.format.value, "purpose": order.purpose.value}
                ),
            },
        )

    def _standing_for(
        self, savepoint: CheckpointMetadata, order: SavepointOrder
    ) -> CheckpointMetadata:
        """The checkpoint without state that says, in the job's folder, where the savepoint is."""
        properties = {
            "trigger": savepoint.properties["trigger"],
            SAVED_AT: order.folder.url,
            **claims_as_properties(self._claimed),
        }
        return msgspec.structs.replace(
            savepoint, kind="checkpoint", operators={}, sources={}, properties=properties
        )
