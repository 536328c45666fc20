"""Simulated jobs with savepoints, which also stop and cancel them.

A stopped job is restored from its savepoint. So each row is still seen once, though the job has
ended on the way; and what a savepoint refers to is in its folder.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder, SavepointPurpose
from holdfast.runtime.driver.ended_run import EndedRun
from holdfast.runtime.driver.run import JobRun, JobStatus
from holdfast.runtime.protocol.checkpoints import SavepointFormat
from holdfast.storage import CheckpointMetadata, HoldfastError, NotFound, SavepointFolder
from holdfast.storage.restore_points import RestorePoint
from support.simulations.runs import Simulation
from support.simulations.world import Broken


class SavedSimulation(Simulation):
    """One job as in `Simulation`, and users that request savepoints of it."""

    has_savepoints = True
    purposes: Sequence[SavepointPurpose] = (
        *[SavepointPurpose.KEEP_RUNNING] * 3,
        SavepointPurpose.STOP,
        SavepointPurpose.STOP,
        SavepointPurpose.CANCEL,
    )

    def __init__(self, seed: int, **settings: Any) -> None:
        super().__init__(seed, **settings)
        self._chance = random.Random(f"savepoints of {seed}")
        self._wishes_left = self._chance.choice((1, 2, 4, 6))
        self._rate = self._chance.choice((0.002, 0.01))
        self._goes_on_from: str | None = None
        self.orders: list[SavepointOrder] = []
        self._unanswered: set[str] = set()
        """The folders of orders whose driver was killed before it had said what became of them."""
        self.ended: list[SavepointPurpose] = []
        """How the job was ended, and gone on with."""

    def goes_on(self, run: JobRun | EndedRun) -> bool:
        """A job that was stopped or cancelled with a savepoint is gone on with, from that."""
        if run.status not in _ENDED:
            return False
        ended_by = run._result.epoch if isinstance(run, EndedRun) else self.epochs[run]
        if any(by > ended_by for by, _ in self.completed):
            return False  # others have gone on with it
        order = self._ended_with(run)
        if order is None:
            return False
        self._goes_on_from = order.folder.url
        self.ended.append(order.purpose)
        return True

    def _ended_with(self, run: JobRun | EndedRun) -> SavepointOrder | None:
        """The savepoint that has ended a job.

        If its driver was killed before it answered, the record of the end says which one.
        """
        if isinstance(run, EndedRun):
            url = run._result.properties.get("savepoint")
            return next((each for each in self.orders if each.folder.url == url), None)
        for order in run._given:
            has_stopped = order.ends_job and run._stopped_at is not None
            if order.is_complete and (has_stopped or order.cancels_job):
                return order
        return None

    def restored(self) -> str:
        """The savepoint, until the job restored from it has a checkpoint."""
        return self._goes_on_from or super().restored()

    def _hesitate(self, point: RestorePoint) -> None:
        """A run with a named savepoint restores just that: no other driver may start meanwhile."""
        if self._goes_on_from is None:
            super()._hesitate(point)

    def _calamity(self) -> None:
        super()._calamity()
        run = self.runs.get(self.world.process)
        if not self._wishes_left or run is None or self._chance.random() >= self._rate:
            return
        self._wishes_left -= 1
        folder = SavepointFolder.begin(self.storage, "job")
        order = SavepointOrder(
            folder, self._chance.choice([*SavepointFormat]), self._chance.choice(self.purposes)
        )
        self.orders.append(order)
        self.world.process.at_death.append(partial(self._lose_answer, order))
        self.world.note(f"a user requests {folder.folder} to {order.purpose.value}")
        run.order_savepoint(order)

    def _lose_answer(self, order: SavepointOrder) -> None:
        """A killed driver answers no order, whatever the unwinding of its stack says."""
        if not order.is_decided:
            self._unanswered.add(order.folder.folder)

    def _check_checkpoint(self, metadata: CheckpointMetadata, files: set[str]) -> None:
        super()._check_checkpoint(metadata, files)
        if metadata.kind == "checkpoint":
            self._goes_on_from = None

    def _check_end(self) -> None:
        """What is complete is whole, and what has failed is none."""
        super()._check_end()
        self.world.faults_left = 0
        for order in self.orders:
            try:
                order.folder.load()
                is_there = True
            except NotFound:
                is_there = False
            except HoldfastError as error:
                raise Broken(f"{order.folder.folder} is not whole: {error}") from error
            is_told = order.is_decided and order.folder.folder not in self._unanswered
            if is_told and not order.is_needed and is_there != order.is_complete:
                raise Broken(f"{order.folder.folder} is there, or is not, against what was said")


_ENDED = (JobStatus.FINISHED, JobStatus.CANCELLED)
