"""A job, simulated, one of whose pipelines ends long before the other goes on to its end.

What both have in common, a sink behind their union, goes on with one of them.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from holdfast.runtime.planning.job_plan import JobPlan, plan_job
from holdfast.storage import CheckpointMetadata
from support.simulations.jobs import (
    MAX_PARALLELISM,
    ORDERS,
    SOURCES,
    TOTALS,
    Batch,
    Builder,
    Order,
    Row,
    ShelfSink,
    Spend,
    town_of,
    window_of,
)
from support.simulations.runs import Simulation

__all__ = ["MixedSimulation"]

_BATCHES = {"web": 2, "shop": 25}


class MixedSimulation(Simulation):
    """The source `web` ends after two batches, `shop` goes on for many more."""

    keyed = ("early", "late")
    sinks = ("soon", "out", "all")

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.half_ended: set[int] = set()
        """Checkpoints of a job of which one source had ended, and the other had not."""

    @property
    def restores_of_half(self) -> int:
        """How many attempts have gone on from such a checkpoint."""
        return sum(number in self.half_ended for number in self.cluster.restored.values())

    def drawn(self, chance: random.Random) -> dict[str, list[Batch]]:
        return {uid: [_batch(chance, at) for at in range(_BATCHES[uid])] for uid in SOURCES}

    def answer(self, batches: dict[str, list[Batch]]) -> dict[str, Counter[Row]]:
        soon, out = (_answer(batches[uid]) for uid in SOURCES)
        return {"soon": soon, "out": out, "all": soon + out}

    def planned(self) -> JobPlan:
        builder = Builder()
        early, late = (
            builder.source(uid, ORDERS, has_event_time=True)
            .key_by("user")
            .process(Spend(), TOTALS, uid=name)
            for uid, name in zip(SOURCES, self.keyed, strict=True)
        )
        early.sink_to(ShelfSink(self.shelf), uid="soon")
        late.sink_to(ShelfSink(self.shelf), uid="out")
        early.union(late).sink_to(ShelfSink(self.shelf), uid="all")
        return plan_job(
            builder.graph,
            job_id="job",
            parallelism=self.parallelism,
            max_parallelism=MAX_PARALLELISM,
        )

    def _check_checkpoint(self, metadata: CheckpointMetadata, files: set[str]) -> None:
        super()._check_checkpoint(metadata, files)
        ended = [metadata.sources[uid].attributes["has_ended"] for uid in SOURCES]
        if ended == [True, False]:
            self.half_ended.add(metadata.checkpoint_id)


def _batch(chance: random.Random, number: int) -> Batch:
    first = 1_000 + 40 * number
    return [
        [
            Order(str(chance.randrange(12)), chance.randint(1, 99), first + chance.randrange(40))
            for _ in range(chance.randint(0, 4))
        ]
        for _ in range(chance.randint(1, 2))
    ]


def _answer(batches: list[Batch]) -> Counter[Row]:
    sums: Counter[tuple[str, int]] = Counter()
    for order in (order for batch in batches for split in batch for order in split):
        sums[order.user, window_of(order.at)] += order.amount
    return Counter((town_of(user), end, total) for (user, end), total in sums.items())
