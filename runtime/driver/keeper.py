"""Keeps the checkpoints of a run: commits them in the background, and deletes the old ones."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from holdfast.runtime.checkpoint import Store
from holdfast.runtime.driver.events import EventQueue, Stored, StoreFailed
from holdfast.storage import (
    CheckpointMetadata,
    Clock,
    Fenced,
    HoldfastError,
    JobOwner,
    JobStorage,
    OperatorState,
    Unavailable,
)

__all__ = ["CheckpointKeeper"]

_logger = logging.getLogger(__name__)
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0


class CheckpointKeeper:
    """The owner of the job's folder, behind one background thread.

    `last` is the newest checkpoint that this run has completed.
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
    ) -> None:
        self._job = job
        self._owner = owner
        self._retained = retained
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "holdfast-checkpoints")
        self._gives_up = threading.Event()
        self._next_id = owner.next_checkpoint_id
        self.last: CheckpointMetadata | None = None

    @property
    def epoch(self) -> int:
        """The number of this run among all runs of the job."""
        return self._owner.epoch

    @property
    def next_checkpoint_id(self) -> int:
        """A number that no checkpoint of this job has had, also none that was only begun."""
        return max(self._next_id, self._owner.next_checkpoint_id)

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
        """Commit a checkpoint in the background; the queue learns how it went."""
        self._thread.submit(self._store, command, events)

    def give_up(self) -> None:
        """Do not wait any longer for a storage that does not answer."""
        self._gives_up.set()

    def settle(self) -> None:
        """Return when it is decided what became of every checkpoint that was to be stored."""
        self._thread.submit(lambda: None).result()

    def delete_all(self) -> None:
        """Delete every checkpoint of the job; it has no use for one any more.

        Raises:
            HoldfastError: not all could be deleted.
        """
        self.settle()
        for checkpoint_id in self._owner.completed:
            self._owner.delete(checkpoint_id)
        self._owner.remove(self._owner.orphans(in_flight=()))

    def close(self) -> None:
        """Wait for what is being done."""
        self._thread.shutdown(wait=True)

    def _store(self, command: Store, events: EventQueue) -> None:
        try:
            metadata = self._commit(self._document(command))
        except Fenced as error:
            events.put(StoreFailed(command.checkpoint_id, str(error), is_fatal=True))
        except Exception as error:  # noqa: BLE001 - who waits for the commit learns of it only here
            reason = str(error) or repr(error)
            events.put(StoreFailed(command.checkpoint_id, reason, is_fatal=False))
        else:
            self.last = metadata
            events.put(Stored(metadata))
            self._retain()

    def _commit(self, metadata: CheckpointMetadata) -> CheckpointMetadata:
        """Commit, again and again until it is decided: it may be complete for all who read.

        Raises:
            Unavailable: the run gives up, and it is not decided.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return self._owner.commit(metadata)
            except Unavailable as error:
                _logger.warning("a checkpoint is not committed yet: %s", error)
                if self._gives_up.wait(pause_s):
                    raise
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _retain(self) -> None:
        try:
            self._owner.retain(self._retained)
        except (HoldfastError, OSError) as error:
            _logger.warning("old checkpoints could not be deleted, and will be later: %s", error)

    def _document(self, command: Store) -> CheckpointMetadata:
        return CheckpointMetadata(
            job_id=self._job.job_id,
            checkpoint_id=command.checkpoint_id,
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
            properties={"trigger": command.trigger.value},
        )
