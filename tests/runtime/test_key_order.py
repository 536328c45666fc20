"""The rows of a key stay in order, from its source to what readers see, at any parallelism.

Each key numbers its rows. Two keyed operators in a row refuse a row that is not the next one of its
key: so none is lost, none comes twice and none overtakes another, in any attempt.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pytest

from holdfast.backends import ValueStateDescriptor
from holdfast.runtime.api.functions import KeyedContext, KeyedProcessFunction, RuntimeContext
from holdfast.runtime.driver.run import JobRun
from holdfast.runtime.planning.job_plan import JobPlan, plan_job
from holdfast.runtime.planning.partitioning import Partitioner
from holdfast.storage import CheckpointMetadata, JobOwner
from holdfast.storage.restore_points import RestorePoint
from support.simulations.jobs import (
    MAX_PARALLELISM,
    ORDERS,
    SOURCES,
    Batch,
    Builder,
    Order,
    Row,
    ShelfSink,
)
from support.simulations.overtaking import OvertakingSimulation
from support.simulations.world import Broken
from support.states.tried_backends import TRIED

_NUMBERED = pa.schema([("user", pa.string()), ("number", pa.int64())])
_USERS = 6
SEEDS = 6
"""One for each backend."""


class Numbered(NamedTuple):
    """A row that says the how-manieth of its key it is."""

    user: str
    number: int


class InOrder(KeyedProcessFunction):
    """Passes the rows on, if each is the next one of its key."""

    def open(self, ctx: RuntimeContext) -> None:
        self.last = ctx.get_state(ValueStateDescriptor("last", int))

    def process_element(self, value: Any, ctx: KeyedContext) -> Iterable[Any] | None:
        number = value[1]
        last = self.last.value() or 0
        if number != last + 1:
            raise Broken(f"row {number} of {value[0]} follows {last}")
        self.last.update(number)
        return [(value[0], number)]


class OrderedSimulation(OvertakingSimulation):
    """Users of one source each, whose orders are numbered. Barriers overtake some of them.

    Up to two drivers die after a checkpoint, and each driver has a parallelism of its own.
    """

    keyed = ("first", "second")
    sinks = ("out",)

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self._deaths_left = self._chance.choice((0, 1, 2))
        self.rescaled = 0

    def _calamity(self) -> None:
        super()._calamity()
        driver = self.world.process
        may_die = driver in self.runs and self._deaths_left and self.completed
        if may_die and self._chance.random() < 0.05:
            self._deaths_left -= 1
            self.world.kill(driver)

    def _job_run(self, owner: JobOwner, point: RestorePoint | None) -> JobRun:
        run = super()._job_run(owner, point)
        if point is not None:
            self.rescaled += point.metadata.operators["out"].parallelism != self.parallelism
        return run

    def _check_checkpoint(self, metadata: CheckpointMetadata, files: set[str]) -> None:
        # Drivers that are taken for dead go on, each with its own parallelism.
        now, self.parallelism = self.parallelism, metadata.operators["out"].parallelism
        super()._check_checkpoint(metadata, files)
        self.parallelism = now

    def drawn(self, chance: random.Random) -> dict[str, list[Batch]]:
        return {uid: _batches(chance, uid) for uid in SOURCES}

    def answer(self, batches: dict[str, list[Batch]]) -> dict[str, Counter[Row]]:
        rows = [
            (order.user, order.amount)
            for source in batches.values()
            for batch in source
            for split in batch
            for order in split
        ]
        return {"out": Counter(rows)}

    def planned(self) -> JobPlan:
        builder = Builder()
        web, shop = (builder.source(uid, ORDERS, has_event_time=True) for uid in SOURCES)
        stream = web.union(shop).key_by("user").process(InOrder(), _NUMBERED, uid="first")
        stream = stream.key_by("user").process(InOrder(), _NUMBERED, uid="second")
        stream.sink_to(ShelfSink(self.shelf), uid="out")
        return plan_job(
            builder.graph,
            job_id="job",
            parallelism=self.parallelism,
            max_parallelism=MAX_PARALLELISM,
        )

    def check_order(self) -> None:
        """What was committed has the rows of each key in order, checkpoint after checkpoint.

        A restore deals out what is to be committed, as Flink does: slots commit parts of several
        checkpoints side by side, so a later part may be seen first.
        """
        seen: dict[Any, list[int]] = defaultdict(list)
        for part in sorted(self.shelf.committed, key=_attempt_and_checkpoint):
            for user, number in self.shelf.committed[part]:
                seen[user].append(number)
        for user, numbers in seen.items():
            if numbers != [*range(1, len(numbers) + 1)]:
                raise Broken(f"readers see rows of {user} in the order {numbers}")


def _attempt_and_checkpoint(part: str) -> tuple[str, int]:
    _, attempt, checkpoint_id, _ = part.split("/")
    return attempt, int(checkpoint_id)


def _batches(chance: random.Random, uid: str) -> list[Batch]:
    at, batches = 1_000, []
    numbers: Counter[str] = Counter()
    for _ in range(chance.randint(4, 10)):
        splits: Batch = []
        for _ in range(chance.randint(1, 3)):
            split = []
            for _ in range(chance.randint(0, 6)):
                at += chance.randint(0, 40)
                user = f"{uid} {chance.randrange(_USERS)}"
                numbers[user] += 1
                split.append(Order(user, numbers[user], at))
            splits.append(split)
        batches.append(splits)
    return batches


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def test_rows_of_a_key_stay_in_order() -> None:
    simulation = OrderedSimulation(3, faults=0).run()
    simulation.check_order()


@pytest.mark.slow
def test_rows_of_a_key_stay_in_order_whatever_fails() -> None:
    attempts = rescaled = in_flight = 0
    for seed in range(SEEDS):
        simulation = OrderedSimulation(seed)
        try:
            simulation.run().check_order()
        except Broken as error:
            error.add_note(f"seed {seed}: {', '.join(simulation.world.happened)}")
            raise
        attempts += len(simulation.cluster.deployments)
        rescaled += simulation.rescaled
        in_flight += simulation.restored_in_flight
    assert attempts > 2 * SEEDS
    assert rescaled > SEEDS / 3
    assert in_flight, "rows in flight are restored"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1_000, 3_000, 200))
def test_rows_of_a_key_stay_in_order_in_thousands_of_runs(first: int) -> None:
    for seed in range(first, first + 200):
        OrderedSimulation(seed).run().check_order()


def test_a_cut_that_turns_rows_round_is_found() -> None:
    with _turned_round(), pytest.raises(Broken, match="follows"):
        OrderedSimulation(3, faults=0, backend=TRIED[0]).run()


def _turned_round() -> AbstractContextManager[Any]:
    split = Partitioner.split

    def turned(partitioner: Partitioner, batch: pa.RecordBatch) -> list[Any]:
        return [
            part and part.take(pa.array(range(part.num_rows)[::-1], pa.int64()))
            for part in split(partitioner, batch)
        ]

    return patch.object(Partitioner, "split", turned)
