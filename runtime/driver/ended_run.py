"""The run of a job that had ended before: it does nothing."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

from holdfast.runtime.api.errors import JobFailed
from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder
from holdfast.runtime.checkpoint.statistics import CheckpointHistory
from holdfast.runtime.driver.failure.failures import Failure
from holdfast.runtime.driver.run import JobStatus
from holdfast.storage import Invalid, JobResult, NotFound, Unavailable

__all__ = ["EndedRun"]


class EndedRun:
    """Stands in for a `JobRun` when the storage records that the job has ended.

    Raises:
        Invalid: the job has ended in a way that this version of Holdfast does not know.
    """

    def __init__(self, result: JobResult) -> None:
        known = {each.value: each for each in JobStatus if each.is_final}
        if result.status not in known:
            raise Invalid(
                f"job {result.job_id!r} has ended in a way that is not known here",
                expected=" or ".join(known),
                found=f"{result.status}, written by Holdfast {result.holdfast_version}",
                fix="Use that version of Holdfast or a later one",
            )
        self.status = known[result.status]
        self._result = result
        self.error: JobFailed | None = None
        self.failures: tuple[Failure, ...] = ()
        self.trouble = ""
        self.history = CheckpointHistory()
        self.ended = threading.Event()
        self.ended.set()

    @property
    def note(self) -> str:
        """Why the job is not run, and how to run it."""
        savepoint = self._result.properties.get("savepoint")
        if savepoint is not None:
            return (
                f"{self._how}, with a savepoint, and nothing was run. To go on from that, pass "
                f"restore={str(savepoint)!r}"
            )
        return (
            f"{self._how}, and nothing was run. To run it afresh, leave out restore, or take "
            "another name"
        )

    @property
    def _how(self) -> str:
        at = datetime.fromtimestamp(self._result.ended_ms / 1000, UTC)
        has_finished = self.status is JobStatus.FINISHED
        how = (
            "has finished" if has_finished else f"was {self.status.value}, to leave no checkpoint,"
        )
        return f"job {self._result.job_id!r} {how} at {at:%Y-%m-%d %H:%M:%S} UTC"

    def cancel(self) -> None:
        """Does nothing: the job has ended."""

    interrupt = request_checkpoint = cancel

    def order_savepoint(self, order: SavepointOrder) -> None:
        """Fail the order: the job has ended."""
        order.fail(
            Unavailable(
                "no savepoint can be taken of a job that has ended",
                where=order.folder.url,
                found=self._how,
            )
        )

    def collected(self, uid: str) -> dict[str, bytes]:
        """The rows ended with the driver that had collected them.

        Raises:
            NotFound: always; an empty answer would look like the job's.
        """
        raise NotFound(
            f"the rows of the collecting sink {uid!r} are not here: {self._how}",
            expected="the driver that ran it, which had them as long as it lived",
            fix="Use a FileSink for rows that are to outlive the driver",
        )

    def slot_pids(self) -> dict[int, int]:
        return {}

    def metrics(self) -> dict[str, Any]:
        return {"attempts": 0, "task_slots": {}, "sources": {}, "slots": {}}
