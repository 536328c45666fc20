"""Simulated jobs whose barriers overtake rows, and whose drivers give them other numbers of slots.

So rows in flight are stored, restored, cut anew, and stored again while they are being processed.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from holdfast.runtime.driver.run import JobRun
from holdfast.storage import CheckpointMetadata, JobOwner
from holdfast.storage.restore_points import RestorePoint
from support.simulations.runs import Simulation

__all__ = ["OvertakingSimulation"]


class OvertakingSimulation(Simulation):
    """One job as in `Simulation`, with sources that bring more than slots process in time."""

    eagerness = 5.0

    def __init__(self, seed: int, **settings: Any) -> None:
        super().__init__(seed, **settings)
        self._chance = random.Random(f"overtaking of {seed}")
        self.config = replace(
            self.config, source_alignment_timeout=self._chance.choice(("0ms", "2ms", "20ms"))
        )
        self.in_flight = self.restored_in_flight = self.cut_anew = 0
        """Checkpoints with rows in flight, restores of such, and those at another parallelism."""

    def _job_run(self, owner: JobOwner, point: RestorePoint | None) -> JobRun:
        self.parallelism = self._chance.choice((1, 2, 3))
        self.plan = self.planned()
        if point is not None and point.in_flight:
            self.restored_in_flight += 1
            before = point.metadata.operators[self.keyed[0]].parallelism
            self.cut_anew += before != self.parallelism
        return super()._job_run(owner, point)

    def _check_checkpoint(self, metadata: CheckpointMetadata, files: set[str]) -> None:
        super()._check_checkpoint(metadata, files)
        self.in_flight += bool(metadata.in_flight)
