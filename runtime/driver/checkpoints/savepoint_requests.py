"""Requested savepoints of a run: where they go, and the answer that each request gets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder, SavepointPurpose
from holdfast.runtime.protocol.checkpoints import SavepointFormat
from holdfast.runtime.protocol.messages import BeginSavepoint
from holdfast.storage import (
    Invalid,
    JobStorage,
    SavepointFolder,
    Unavailable,
    load_storage,
)
from holdfast.storage.options.checks import check_choice
from holdfast.storage.registry import OpenStorage, named_for_all, storage_at

__all__ = [
    "SavepointOrders",
    "SavepointPlaces",
    "announcement",
    "ended_otherwise",
    "no_savepoint",
    "not_completed",
]


@dataclass(frozen=True)
class SavepointPlaces:
    """Where savepoints of a job go.

    `default` is the directory for those that name none; `open_storage` is as for `storage_at`.
    """

    default: str | None = None
    open_storage: OpenStorage = load_storage

    def order(
        self, job: JobStorage, directory: str | None, form: str, purpose: SavepointPurpose
    ) -> SavepointOrder:
        """An order for a savepoint in a directory, which can be written to.

        Raises:
            Invalid: no directory is named and there is no default, or nothing can be kept there;
                or there is no such format.
            Unavailable: the storage did not answer.
        """
        check_choice(form, [each.value for each in SavepointFormat], name="format")
        place = directory or self.default
        if place is None:
            raise Invalid(
                "no directory is given for the savepoint",
                expected="a directory, such as s3://bucket/savepoints",
                found="none, and no default",
                fix="Name one, or set CheckpointConfig(savepoint_dir=…) or "
                "spark.holdfast.execution.checkpointing.savepoint-dir",
            )
        place = named_for_all(place)  # slots are elsewhere
        storage = storage_at(place, job.storage, self.open_storage)
        folder = SavepointFolder.begin(storage, job.job_id)
        return SavepointOrder(folder, SavepointFormat(form), purpose, directory=place)


@dataclass
class SavepointOrders:
    """Orders that were given to the running attempt. Safe to use from any thread."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: list[SavepointOrder] = field(default_factory=list)
    _take: Callable[[SavepointOrder], None] | None = None

    def begin(self, take: Callable[[SavepointOrder], None]) -> None:
        """An attempt begins. `take` hands orders to it."""
        with self._lock:
            self._take = take

    def add(self, order: SavepointOrder) -> None:
        """Hand an order to the running attempt; without one the order fails at once."""
        with self._lock:
            if self._take is not None:
                self._open = [each for each in self._open if _may_matter(each)]
                self._open.append(order)
                self._take(order)
                return
        order.fail(no_savepoint(order, "none: it is starting, restarting or has ended"))

    def end(self) -> list[SavepointOrder]:
        """The attempt is over and takes no more orders. Returns those that are still open."""
        with self._lock:
            self._take = None
            ended, self._open = self._open, []
            return ended


def announcement(order: SavepointOrder, checkpoint_id: int) -> BeginSavepoint:
    """The message that announces a savepoint to slots, before any of its barriers."""
    return BeginSavepoint(
        checkpoint_id=checkpoint_id,
        directory=order.directory,
        folder=order.folder.folder,
        format=order.format.value,
        ends_job=order.ends_job,
    )


def _may_matter(order: SavepointOrder) -> bool:
    """Whether the end of its attempt still affects an order."""
    return not order.is_decided or (order.is_complete and (order.ends_job or order.cancels_job))


def no_savepoint(order: SavepointOrder, found: str) -> Unavailable:
    """The error for an order that came when none could be carried out."""
    return Unavailable(
        "no savepoint can be taken now",
        where=order.folder.url,
        expected="an attempt of the job that runs",
        found=found,
        fix="Try again when the job runs",
    )


def not_completed(order: SavepointOrder, why: str, *, attempt_is_over: bool) -> Unavailable:
    """The error for an order that failed while its attempt ran, or because that is over."""
    if order.is_needed:
        return Unavailable(
            "the savepoint is complete, and it is not known whether the job counts it as its last",
            where=order.folder.url,
            found=why,
            fix='Leave it there, and start the job with restore="latest": it goes on from what '
            "counts",
        )
    what = "the savepoint was not completed, and nothing is left of it"
    if attempt_is_over:
        return Unavailable(
            what,
            where=order.folder.url,
            expected="an attempt of the job that runs until it is",
            found=f"one that was over before: {why}",
            fix="Ask for another one when the job runs",
        )
    return Unavailable(
        what, where=order.folder.url, found=why, fix="Remove the cause, and ask for another one"
    )


def ended_otherwise(order: SavepointOrder, why: str) -> Unavailable:
    """The error for one that was to end the job, and is complete, but the job has not ended so."""
    return Unavailable(
        "the savepoint is complete, but the job failed while it was ending",
        where=order.folder.url,
        expected="a job that has finished",
        found=why,
        fix="If the job restarts it goes on from the savepoint; else restore it: then sinks commit "
        "what they had not committed yet",
    )
