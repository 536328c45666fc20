"""The handle by which a user watches and controls a running job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from holdfast.runtime.api.display import html_table, moment
from holdfast.runtime.api.errors import NotEnded
from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder, SavepointPurpose
from holdfast.runtime.checkpoint.statistics import CheckpointOverview
from holdfast.runtime.driver.checkpoints.savepoint_requests import SavepointPlaces
from holdfast.runtime.driver.ended_run import EndedRun
from holdfast.runtime.driver.failure.failures import Failure
from holdfast.runtime.driver.run import JobRun, JobStatus
from holdfast.runtime.operators.sink_operator import SinkSpec
from holdfast.runtime.planning.job_plan import JobPlan
from holdfast.runtime.sinks import CollectSink, collected_table
from holdfast.storage import Invalid, JobStorage

__all__ = ["JobHandle", "collected_schemas"]

_IN_ONE_LINE = ("checkpoints", "trouble", "failures")


class JobHandle:
    """From `StreamEnvironment.execute_async`. Safe to use from any thread."""

    def __init__(
        self,
        run: JobRun | EndedRun,
        job: JobStorage,
        collecting: Mapping[str, pa.Schema],
        notes: tuple[str, ...],
        savepoints: SavepointPlaces | None = None,
    ) -> None:
        self._run = run
        self._job = job
        self._collecting = collecting
        self._savepoints = savepoints or SavepointPlaces()
        self.notes = notes
        """Notes about how the job was started."""

    def __repr__(self) -> str:
        told = [f"{what}: {said}" for what, said in self._facts() if what in _IN_ONE_LINE]
        line = "; ".join((f"job {self.job_id!r} {self.status.value}", *told))
        return f"<{' '.join(line.split())}>"

    def _repr_html_(self) -> str:
        facts = [("status", self.status.value), *self._facts()]
        return html_table(f"job {self.job_id!r}", (), facts) + self.checkpoints()._repr_html_()

    def _facts(self) -> list[tuple[str, str]]:
        """Facts about the job at this moment. All are known to the driver; no slot is asked."""
        overview, failures = self.checkpoints(), self._run.failures
        last = overview.last_completed
        found = {
            "checkpoints": str(overview.counts).removeprefix("checkpoints: "),
            "last completed": ""
            if last is None
            else f"{last.checkpoint_id}, begun {moment(last.triggered_ms)} UTC",
            "trouble": self.trouble,
            "failures": f"{len(failures)}, the last one: {failures[-1].summary}"
            if failures
            else "",
            "storage": self._job.url,
            "notes": "\n".join(self.notes),
        }
        return [(what, said) for what, said in found.items() if said]

    @property
    def job_id(self) -> str:
        """The job's name in its storage."""
        return self._job.job_id

    @property
    def status(self) -> JobStatus:
        """What the job is doing, or how it has ended."""
        return self._run.status

    @property
    def failures(self) -> tuple[str, ...]:
        """Why attempts have failed so far, a line each, the latest last; the last hundred."""
        return tuple(failure.summary for failure in self._run.failures)

    @property
    def failure_details(self) -> tuple[Failure, ...]:
        """The same with what is known of them: where, when, and the traceback."""
        return self._run.failures

    @property
    def trouble(self) -> str:
        """What keeps the job from going on as it should, while it runs on; mostly empty.

        Such as a storage that is full or does not answer: sinks commit nothing meanwhile. Or a
        cluster that has lost task slots: no row is read then, or the job does not start again.
        """
        return self._run.trouble

    def result(self, timeout_s: float | None = None) -> JobStatus:
        """Wait until the job has ended; how, if not by a failure.

        Raises:
            JobFailed: it has failed; says why.
            NotEnded: it has not ended within that time; this is a `TimeoutError`.
        """
        if not self._run.ended.wait(timeout_s):
            raise NotEnded(f"job {self.job_id!r} has not ended within {timeout_s} s")
        if self._run.error is not None:
            raise self._run.error
        return self._run.status

    def cancel(self) -> None:
        """Stop the job, and return when it has ended. Ended jobs stay as they are.

        What becomes of its checkpoints says `CheckpointConfig.on_cancel`: by default they are
        deleted, so the job cannot go on. See `interrupt`.
        """
        self._run.cancel()
        self._run.ended.wait()

    def interrupt(self) -> None:
        """Stop the job as if its driver died, and return when it has ended.

        Its checkpoints stay, whatever `on_cancel` says, and no end is recorded: `restore="latest"`
        goes on from the newest one. A job that comes to its end meanwhile has finished.
        """
        self._run.interrupt()
        self._run.ended.wait()

    def trigger_checkpoint(self) -> None:
        """Have a checkpoint taken as soon as those under way leave room."""
        self._run.request_checkpoint()

    def trigger_savepoint(
        self,
        directory: str | None = None,
        *,
        format: str = "canonical",  # noqa: A002 - Flink's word
    ) -> str:
        """Take a savepoint while the job runs on; returns when it is complete, with its URL.

        It is a folder of its own in the directory, by default `CheckpointConfig.savepoint_dir`, and
        has all that it needs: it may be moved, and nothing ever deletes it. It is not what the job
        goes back to after a failure, and sinks commit nothing because of it.

        Raises:
            Invalid: there is no directory, or nothing can be kept there.
            Unavailable: it could not be completed, and nothing is left of it: says why. The job
                runs on.
        """
        return self._take(self._order(directory, format, SavepointPurpose.KEEP_RUNNING))

    def stop_with_savepoint(
        self,
        directory: str | None = None,
        *,
        drain: bool = False,
        format: str = "canonical",  # noqa: A002 - Flink's word
    ) -> str:
        """End the job with a savepoint, to go on from that later; returns its URL at the end.

        Sources stop where they are, and sinks commit all that they wrote before. The job has then
        finished, and leaves no checkpoints. Timers that are not due are in the savepoint. With
        `drain` event time goes to its end before, so that all timers fire: use it when no job will
        be restored from the savepoint.

        Raises:
            Invalid: as `trigger_savepoint`.
            Unavailable: the savepoint could not be completed: the job runs on, or after a drain
                goes back to its last checkpoint. Or it is complete, and the job has failed while it
                was ending; says where it is.
        """
        purpose = SavepointPurpose.DRAIN if drain else SavepointPurpose.STOP
        order = self._order(directory, format, purpose)
        path = self._take(order)
        order.ended.result()
        self._run.ended.wait()
        return path

    def cancel_with_savepoint(
        self,
        directory: str | None = None,
        *,
        format: str = "canonical",  # noqa: A002 - Flink's word
    ) -> str:
        """Take a savepoint, and cancel the job when it is complete; returns its URL at the end.

        No checkpoint is completed in between. Sinks do not commit what they wrote since the last
        checkpoint; the job that restores the savepoint does. `stop_with_savepoint` commits at once.

        Raises:
            Invalid, Unavailable: as `trigger_savepoint`; then the job runs on.
        """
        path = self._take(self._order(directory, format, SavepointPurpose.CANCEL))
        self._run.ended.wait()
        return path

    def _order(self, directory: str | None, form: str, purpose: SavepointPurpose) -> SavepointOrder:
        return self._savepoints.order(self._job, directory, form, purpose)

    def _take(self, order: SavepointOrder) -> str:
        self._run.order_savepoint(order)
        order.outcome.result()
        return order.folder.url

    def checkpoints(self) -> CheckpointOverview:
        """What became of the checkpoints of this run."""
        return self._run.history.overview()

    def metrics(self) -> dict[str, Any]:
        """Plain facts: attempts, rows that sources have fed, rows that slots have read, state.

        Of slots they are one or two seconds old. docs/metrics.md says what there is.
        """
        return self._run.metrics()

    def slot_pids(self) -> dict[int, int]:
        """The number of each slot's process on its machine, as far as the slots have come."""
        return self._run.slot_pids()

    def collected(self, uid: str) -> pa.Table:
        """The rows that a `CollectSink` has committed so far.

        Raises:
            Invalid: no such sink collects.
            NotFound: the job had ended before, in another run, which had the rows.
        """
        if uid not in self._collecting:
            raise Invalid(
                f"no collecting sink has the uid {uid!r}",
                expected=", ".join(map(repr, self._collecting)) or "a CollectSink in the job",
            )
        return collected_table(self._run.collected(uid), self._collecting[uid])


def collected_schemas(plan: JobPlan) -> Mapping[str, pa.Schema]:
    """The schemas of the rows that collecting sinks of a job keep, by uid."""
    return {
        spec.uid: spec.input_schema
        for chain in plan.chains
        for spec in chain.operators
        if isinstance(spec, SinkSpec) and isinstance(spec.sink, CollectSink)
    }
