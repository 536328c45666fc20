"""Whole jobs, simulated: whatever fails, every row is seen once, and the seed replays the run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from holdfast.runtime.checkpoint.savepoint_orders import SavepointPurpose
from holdfast.runtime.driver.run import JobStatus
from holdfast.storage import JobManagerCheckpointStorage
from support.simulations.answers import ExactlyOnce
from support.simulations.overtaking import OvertakingSimulation
from support.simulations.runs import Simulation
from support.simulations.savepoints import SavedSimulation
from support.simulations.world import Broken, Killed
from support.states.tried_backends import TRIED

SEEDS = 120
"""Each is the story of one backend: they are dealt over all."""
_AT_ONCE = 10
AT_LEAST_ONCE = "at-least-once"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The runtime warns of each failure; there are thousands here."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def test_a_job_without_faults_answers_what_is_right() -> None:
    simulation = Simulation(1, faults=0).run()
    assert simulation.world.happened == []
    assert len(simulation.cluster.deployments) == 1
    assert simulation.checkpoints > 0
    kept = [info.name for info in JobManagerCheckpointStorage.list(simulation.storage, "job/")]
    assert all(name.startswith("job/owner-") for name in kept), "nothing is left behind"


@pytest.mark.slow
@pytest.mark.dealt("first")
@pytest.mark.parametrize("first", range(0, SEEDS, _AT_ONCE))
def test_every_row_is_seen_once_whatever_fails(first: int) -> None:
    for seed in range(first, first + _AT_ONCE):
        run(seed)


def test_a_job_may_be_stopped_and_gone_on_with_from_its_savepoint() -> None:
    ended = []
    for seed in range(8):
        ended += SavedSimulation(seed, faults=0, backend=TRIED[0]).run().ended
    assert {SavepointPurpose.STOP, SavepointPurpose.CANCEL} <= {*ended}


def test_no_row_is_lost_at_least_once() -> None:
    """And some are counted twice, after the restore of a checkpoint that has them already."""
    for seed in range(40_063, 40_100):
        simulation = run(seed, mode=AT_LEAST_ONCE, backend=TRIED[0])
        exactly = ExactlyOnce(simulation.answer(simulation.batches))
        if not exactly.is_complete(simulation.shelf.seen):
            return
    pytest.fail("each row was counted once: are channels read on behind a barrier?")


@pytest.mark.slow
@pytest.mark.dealt("first")
@pytest.mark.parametrize("first", range(40_000, 40_000 + SEEDS, _AT_ONCE))
@pytest.mark.parametrize("kind", [Simulation, SavedSimulation, OvertakingSimulation])
def test_no_row_is_lost_at_least_once_whatever_fails(first: int, kind: type[Simulation]) -> None:
    for seed in range(first, first + _AT_ONCE):
        run(seed, kind, mode=AT_LEAST_ONCE)


class StoppedSimulation(SavedSimulation):
    """Nothing is restored but savepoints that have stopped the job."""

    purposes = (SavepointPurpose.STOP,)


def test_what_is_stopped_counts_once_also_at_least_once() -> None:
    """Nothing follows the barrier of such a savepoint."""
    ended = []
    for seed in range(12):
        simulation = StoppedSimulation(seed, faults=0, mode=AT_LEAST_ONCE, backend=TRIED[0])
        simulation.rule = ExactlyOnce(simulation.answer(simulation.batches))
        ended += simulation.run().ended
    assert len(ended) > 5


@pytest.mark.slow
@pytest.mark.dealt("first")
@pytest.mark.parametrize("first", range(20_000, 20_000 + SEEDS, _AT_ONCE))
def test_every_row_is_seen_once_by_jobs_restored_from_savepoints(first: int) -> None:
    for seed in range(first, first + _AT_ONCE):
        run(seed, SavedSimulation)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [20_183, 20_360, 20_390])
def test_jobs_restored_from_savepoints_finish(seed: int) -> None:
    """A driver dies when only the record knows the savepoint; slots have few turns in a second."""
    run(seed, SavedSimulation)


@pytest.mark.slow
def test_the_runs_are_worth_something() -> None:
    """Faults of many kinds happen, and most runs take several attempts and checkpoints."""
    simulations = [run(seed) for seed in range(500, 520)]
    assert len({kind for each in simulations for kind in each.world.happened}) > 10
    assert sum(len(each.cluster.deployments) for each in simulations) > 40
    assert sum(each.checkpoints for each in simulations) > 40


@pytest.mark.slow
@pytest.mark.dealt("first")
@pytest.mark.parametrize("first", range(40_000, 40_000 + SEEDS, _AT_ONCE))
def test_every_row_is_seen_once_where_barriers_overtake_rows(first: int) -> None:
    """Rows in flight are stored, restored at other parallelisms, and stored again from there."""
    for seed in range(first, first + _AT_ONCE):
        run(seed, OvertakingSimulation)


@pytest.mark.soak
def test_rows_are_in_flight_in_those_runs() -> None:
    simulations = [OvertakingSimulation(seed, backend=TRIED[0]) for seed in range(41_000, 41_030)]
    for each in simulations:
        each.run()
    assert sum(each.in_flight for each in simulations) > 10
    assert sum(each.restored_in_flight for each in simulations) > 1
    assert sum(each.cut_anew for each in simulations) > 0


def test_a_seed_replays_a_run() -> None:
    first, second = Simulation(7).run(), Simulation(7).run()
    assert first.world.happened
    assert first.world.trace == second.world.trace
    assert first.shelf.committed == second.shelf.committed


_MANY = [
    (Simulation, "exactly-once", range(10_000, 14_000, 200)),
    (Simulation, AT_LEAST_ONCE, range(45_000, 46_400, 200)),
    (SavedSimulation, "exactly-once", range(21_000, 22_000, 200)),
    (SavedSimulation, AT_LEAST_ONCE, range(47_000, 47_600, 200)),
    (OvertakingSimulation, "exactly-once", range(42_000, 44_000, 200)),
    (OvertakingSimulation, AT_LEAST_ONCE, range(48_000, 48_400, 200)),
]
"""With the thousand of saturated jobs: ten thousand runs."""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "mode", "first"),
    [(kind, mode, first) for kind, mode, firsts in _MANY for first in firsts],
)
def test_every_row_is_seen_in_thousands_of_runs(
    kind: type[Simulation], mode: str, first: int
) -> None:
    for seed in range(first, first + 200):
        run(seed, kind, mode=mode)


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("verb", ["create", "delete"])
def test_a_driver_dies_around_its_last_words(verb: str, is_done: bool) -> None:  # noqa: FBT001
    """Before or after it has recorded the end, or deleted what it left: the job ends once."""
    simulation = Simulation(3, faults=0)
    world, storage = simulation.world, simulation.storage
    real = getattr(storage, verb)
    deaths: list[str] = []

    def die(subject: Any, *rest: Any) -> Any:
        names = [subject] if isinstance(subject, str) else [*subject]
        is_last = (
            simulation.job.result() is not None if verb == "delete" else ".result-" in names[0]
        )
        if deaths or not is_last:
            return real(subject if isinstance(subject, str) else names, *rest)
        deaths.append(world.process.name)
        if is_done:
            real(subject if isinstance(subject, str) else names, *rest)
        world.kill(world.process)
        raise Killed

    with patch.object(storage, verb, die):
        simulation.run()
    assert deaths == ["driver 0"]
    is_recorded = (verb, is_done) != ("create", False)
    assert len(simulation.cluster.deployments) == (1 if is_recorded else 2)
    assert simulation.statuses == [("driver 1", JobStatus.FINISHED)]
    result = simulation.job.result()
    assert result is not None
    assert (result.status, result.epoch) == ("finished", 1 if is_recorded else 2)
    assert simulation.job.completed() == ()


def run(seed: int, kind: type[Simulation] = Simulation, **settings: Any) -> Simulation:
    simulation = kind(seed, **settings)
    try:
        return simulation.run()
    except Broken as error:
        error.add_note(f"seed {seed}: {', '.join(simulation.world.happened)}")
        raise
