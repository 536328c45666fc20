"""Keeps the checkpoints of a run: commits them in the background, and says what nobody needs.

A savepoint that stops the job is the last checkpoint, and lies elsewhere. Sinks commit because of
it, so neither the next attempt nor a new driver with `restore="latest"` may go back behind it. The
keeper therefore commits a checkpoint of the same number in the job's folder, without state, which
says where the savepoint is; only then are slots notified. To record the end of the job instead was
refused: rows that a killed driver had not got to commit would wait until somebody restores the
savepoint by hand.

What an attempt wrote for checkpoints that were never complete is deleted when it has ended: nothing
of numbers that the next attempt may use. While it runs, that is done at most once a minute, and
only after a checkpoint was given up and two later ones were completed: each backend and each source
writes one snapshot after the other, so nobody writes the given-up one any more.
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

from holdfast.runtime.checkpoint import SavepointOrder, Store
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
    """The owner of the job's folder, behind one background thread that commits and decides.

    What it decides to delete another thread deletes, so that a storage which is slow at that does
    not keep a checkpoint waiting.

    `last` is the newest checkpoint that this run has completed, `decided` what became of the one
    that was the last to be stored, and `point` is where to go on from: `last`, or the savepoint
    that this stands for. Savepoints beside which the job goes on are in `decided_aside`.
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
        """What is not committed yet, for how long and why; empty if nothing is."""
        self._leftovers_to = 0
        """The highest number of files that may be there though nobody needs them; 0 if there can be
        none that the last search has not found."""
        self._cleaned_s = -math.inf
        self._has_too_many = False
        """Whether one was completed since older ones were deleted."""

    @property
    def epoch(self) -> int:
        """The number of this run among all runs of the job."""
        return self._owner.epoch

    @property
    def next_checkpoint_id(self) -> int:
        """A number that no checkpoint of this job has had, also none that was only begun."""
        return max(self._next_id, self._owner.next_checkpoint_id)

    @property
    def has_checkpoints(self) -> bool:
        """Whether any is the job's: its own, or one that was claimed and is not deleted yet."""
        return not all(each.is_gone for each in self._claimed) or bool(self._owner.completed)

    def what_became_of(self, checkpoint_id: int) -> CheckpointStored | StoreFailed | None:
        """How the last one that was to be stored was decided, or a savepoint since `clean`."""
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

    def store(self, command: Store, events: EventQueue) -> None:
        """Commit a checkpoint in the background; the queue learns how it went.

        And who has ordered it, if it is a savepoint.
        """
        order = command.savepoint
        if order is None or order.ends_job:
            self._thread.submit(self._store, command, events)
        else:
            self._savepoints.submit(partial(self._store_aside, order, command, events))

    def retain(self, since: int) -> None:
        """Have older checkpoints deleted in the background, but none from this number on.

        Not straight after a commit: whoever begins checkpoints may not know of it yet, and be about
        to begin one that builds on an older one.
        """
        self._thread.submit(self._retain, since)

    def discard(self, order: SavepointOrder, checkpoint_id: int) -> None:
        """Have deleted in the background what there is of a savepoint that has failed."""
        if not order.is_needed:
            self._savepoints.discard(order, checkpoint_id)

    def give_up(self) -> None:
        """Do not wait any longer for a storage that does not answer."""
        self._gives_up.set()

    def settle(self) -> None:
        """Return when it is decided what became of every checkpoint that was to be stored."""
        self._thread.submit(lambda: None).result()
        self._savepoints.settle()

    def finish_deleting(self) -> None:
        """Return when all is deleted that was to be.

        Raises:
            HoldfastError: something could not be deleted; it is tried again in the background.
        """
        self.settle()
        self._sweeper.finish()

    def clean(self) -> None:
        """Have deleted in the background what attempts that are over have left, and nobody needs.

        Call it while no attempt runs: then no file is under way, whatever the newest checkpoint
        says of those that were begun before theirs. What slots that are given up still write is
        void as well, and goes with the next call; so does what could not be deleted.
        """
        self._newest, self._leftovers_to = self.next_checkpoint_id - 1, 0
        self.decided_aside.clear()
        self._savepoints.ended()
        self._thread.submit(self._retain_at_last)
        self._thread.submit(self._clean, self.next_checkpoint_id)

    def end(self, result: JobResult) -> None:
        """Record how the job has ended, so that nobody begins it anew who wants it to go on.

        And what it had claimed of other jobs and has not deleted: this is the last that is
        written of it.

        Raises:
            HoldfastError: it may not be recorded, so the checkpoints must stay.
        """
        self.settle()
        properties = {**result.properties, **claims_as_properties(self._claimed)}
        told = msgspec.structs.replace(result, properties=properties)
        self._insist(lambda: self._owner.end(told), "the end of the job", _LAST_TRIES)

    def delete_all(self) -> None:
        """Delete every checkpoint of the job; it has no use for one any more.

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
        """Wait for what is being done; of what is to be deleted, only for a moment."""
        self._thread.shutdown(wait=True)
        self._savepoints.close()
        self._sweeper.close()

    def _store(self, command: Store, events: EventQueue) -> None:
        decided, order = self._decide(command), command.savepoint
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
            return  # its attempt is over, and nobody waits for it any more
        try:
            metadata = self._document(command)
            self._savepoints.commit(order, metadata)
            # Only then: a newer run removes what this one has prepared and not committed, which the
            # savepoint lists; and nobody may take it for the job's last word, and cancel by it.
            self._owner.check()
            decided = CheckpointStored(metadata, order)
            order.is_stored = True
        except Exception as error:  # noqa: BLE001 - who waits for it learns of it only here
            reason = str(error) or repr(error)
            is_fatal = isinstance(error, Fenced)
            if is_fatal:
                self._savepoints.discard(order, command.checkpoint_id)
            decided = StoreFailed(command.checkpoint_id, reason, is_fatal=is_fatal)
        self.decided_aside[command.checkpoint_id] = decided
        events.put(decided)

    def _decide(self, command: Store) -> CheckpointStored | StoreFailed:
        """Commit, again and again until it is decided: it may be complete for all who read.

        A savepoint that ends the job is committed as one first, then in the job's folder: by that
        nobody else can have taken over, and whoever comes later goes on from the savepoint.
        """
        order, what = command.savepoint, f"checkpoint {command.checkpoint_id}"
        try:
            metadata = own = self._document(command)
            if order is not None:
                self._owner.check()
                self._savepoints.commit(order, metadata)
                own = self._standing_for(metadata, order)
                order.is_needed = True  # also if it never gets to be known whether it is
            stored = self._insist(lambda: self._owner.commit(own), what)
        except Unavailable as error:  # nobody waits for it any longer, and it may be complete
            return StoreFailed(command.checkpoint_id, str(error), is_fatal=False)
        except Exception as error:  # noqa: BLE001 - who waits for the commit learns of it only here
            is_fatal = isinstance(error, Fenced)
            if (
                order is not None and not is_fatal
            ):  # who fences may have found it, and go on from it
                order.is_needed = False
            return StoreFailed(command.checkpoint_id, str(error) or repr(error), is_fatal=is_fatal)
        self.point = RestorePoint(stored, self._job)
        if order is not None:
            self.point = RestorePoint(metadata, order.folder)
        return CheckpointStored(stored, order)

    def _insist(self, act: Callable[[], _T], what: str, most: float = math.inf) -> _T:
        """Do it again while the storage does not answer.

        Raises:
            Unavailable: the run gives up, or this was tried often enough.
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
        """Now and then, delete what is left of checkpoints that were given up, and of logs.

        Only what is numbered below the last but one that was completed. Nobody writes such files
        for a snapshot any more: each backend of a slot, and each source, writes one after the
        other, and all have written that one. And nobody refers to them, not to shared files either:
        those under way build on completed ones, whose files are no orphans as long as `retain`
        keeps them; what they refer to besides was begun before its checkpoint, and is open as the
        newest one has it, which is spared too (`holdfast.storage.jobs.decisions` has the reason).
        Who begins files so may leave some of each number, and nobody hears of it.
        """
        number, begun_from = completed.checkpoint_id, completed.begun_from
        before, self._newest = self._newest, number
        first = min(before, open_from(number, begun_from))
        now_s = self._clock.monotonic_s()
        if self._leftovers_to and now_s - self._cleaned_s >= _CLEAN_PAUSE_S:
            self._cleaned_s = now_s
            self._clean(first)
            if self._leftovers_to < first:
                self._leftovers_to = 0
        if begun_from is not None:
            self._leftovers_to = number + 1
        elif number > before + 1:
            self._leftovers_to = max(self._leftovers_to, number - 1)

    def _clean(self, first: int) -> None:
        """Have deleted what is not needed, but nothing of the checkpoints from this number on."""
        self._decide_deletes(
            lambda: self._owner.release_orphans(in_flight=range(first, _ABOVE_ALL))
        )

    def _retain_at_last(self) -> None:
        """Nobody asks for it after a checkpoint that was stored when its attempt was over."""
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
            _logger.warning("what nobody needs is not deleted yet, and will be later: %s", error)
        self._sweeper.wake()

    def _document(self, command: Store) -> CheckpointMetadata:
        order = command.savepoint
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
        """What is in the job's folder in a checkpoint's place: it says where the savepoint is."""
        properties = {
            "trigger": savepoint.properties["trigger"],
            SAVED_AT: order.folder.url,
            **claims_as_properties(self._claimed),
        }
        return msgspec.structs.replace(
            savepoint, kind="checkpoint", operators={}, sources={}, properties=properties
        )
