"""A job of played attempts, with an endpoint that listens: all of it but Spark and slots."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.runtime.checkpoint.commands import Abort, AbortReason, Begin, Trigger
from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder, SavepointPurpose
from holdfast.runtime.control.client import JobClient
from holdfast.runtime.control.endpoint import JobEndpoint, open_endpoint
from holdfast.runtime.control.registry import FoundRun, find_runs
from holdfast.runtime.driver.events import CancelWanted, CheckpointWanted, EventQueue
from holdfast.runtime.driver.handle import JobHandle
from holdfast.runtime.driver.outcomes import Cancelled, Outcome
from holdfast.runtime.protocol.checkpoints import (
    OperatorStatistics,
    SavepointFormat,
    SlotStatistics,
)
from holdfast.storage import SavepointFolder, SystemClock, SystemEntropy
from support.jobs.run_of_played_attempts import Stage, fails

HOST = socket.gethostname()
ANSWERED = {
    slot: SlotStatistics(
        sync_ms=20 + slot,
        start_delay_ms=1_000 - slot,
        size_bytes=1024,
        operators={"sum": OperatorStatistics(sync_ms=20 + slot, size_bytes=1024)},
    )
    for slot in (0, 1)
}
"""What the slots have measured of each checkpoint."""
_PATIENCE_S = 20.0


def runs_until_cancelled(stage: Stage, events: EventQueue) -> Outcome:
    """An attempt that completes each checkpoint that is asked for, and gives every third up."""
    history = stage.run.history
    number = 0
    while True:
        event = events.next(_PATIENCE_S)
        if isinstance(event, CancelWanted):
            return Cancelled()
        assert isinstance(event, CheckpointWanted), event
        number += 1
        now_ms = 1_700_000_000_000 + number
        history.begun(
            Begin(checkpoint_id=number, triggered_ms=now_ms, trigger=Trigger.REQUESTED, base=None)
        )
        if number % 3:
            history.answered(number, size_bytes=2048, written_bytes=1024, slots=ANSWERED)
            history.storing(number)
            stage.complete(number)
            history.completed(number, now_ms + 250)
        else:
            abort = Abort(checkpoint_id=number, reason=AbortReason.EXPIRED, detail="too slow")
            history.aborted(abort, now_ms + 250)


def saves(stage: Stage, number: int, folder: SavepointFolder) -> None:
    """Have the attempt complete a savepoint of this number."""
    history, now_ms = stage.run.history, 1_700_000_000_000 + number
    order = SavepointOrder(folder, SavepointFormat.CANONICAL, SavepointPurpose.KEEP_RUNNING)
    history.begun(
        Begin(
            checkpoint_id=number,
            triggered_ms=now_ms,
            trigger=Trigger.SAVEPOINT,
            base=None,
            savepoint=order.request,
        )
    )
    history.answered(number, size_bytes=4096, written_bytes=4096, slots={})
    history.storing(number)
    history.completed(number, now_ms + 250)


@dataclass
class Live:
    """A job that runs, as its driver sees it."""

    handle: JobHandle
    endpoint: JobEndpoint | None
    folder: Path
    stage: Stage

    @property
    def found(self) -> FoundRun:
        """As others find it."""
        (found,) = [
            each
            for each in find_runs([self.folder], host=HOST, clock=SystemClock()).found
            if self.endpoint is not None and each.registration.run == self.endpoint.registration.run
        ]
        return found

    @property
    def client(self) -> JobClient:
        """A client that calls it."""
        return JobClient(self.found)


@contextmanager
def live_job(folder: Path, *, name: str = "job") -> Iterator[Live]:
    """A job, which has failed once, until it is cancelled, at the latest here.

    Attempts must be played: see `play_attempts`.
    """
    stage = Stage([fails, runs_until_cancelled], job_name=name)
    handle = JobHandle(stage.run, stage.job, {}, ())
    endpoint = open_endpoint(
        handle,
        storage=stage.job.url,
        folders=(folder,),
        clock=SystemClock(),
        entropy=SystemEntropy(),
    )

    def see_through() -> None:
        try:
            stage.run.run()
        finally:
            if endpoint is not None:
                endpoint.close()

    thread = threading.Thread(target=see_through, daemon=True)
    thread.start()
    try:
        while not stage.numbers[1:]:  # its second attempt runs
            assert thread.is_alive()
            SystemClock().sleep_s(0.005)
        yield Live(handle, endpoint, folder, stage)
    finally:
        handle.cancel()
        thread.join(_PATIENCE_S)
        assert not thread.is_alive()
