"""Whole jobs, simulated: whatever fails, every row is seen once, and the seed replays the run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest

from holdfast.runtime.checkpoint.pending_checkpoint import PendingCheckpoint
from holdfast.runtime.checkpoint.savepoint_orders import SavepointPurpose
from holdfast.runtime.driver.checkpoints.checkpoint_keeper import CheckpointKeeper
from holdfast.runtime.driver.run import JobStatus
from holdfast.runtime.operators.sink_operator import SinkOperator
from holdfast.runtime.protocol.elements import Barrier
from holdfast.runtime.task.chain import Chain
from holdfast.runtime.task.channel import Channel
from holdfast.runtime.task.gate import Gate
from holdfast.runtime.task.inlet import Inlet
from holdfast.runtime.task.slot import Slot
from holdfast.storage import JobManagerCheckpointStorage, JobOwner
from support.simulations.answers import ExactlyOnce
from support.simulations.overtaking import OvertakingSimulation
from support.simulations.runs import Simulation
from support.simulations.savepoints import SavedSimulation
from support.simulations.shared_files import SharedFiles
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
    twice = 0
    for seed in range(40_050, 40_060):
        simulation = run(seed, mode=AT_LEAST_ONCE, backend=TRIED[0])
        exactly = ExactlyOnce(simulation.answer(simulation.batches))
        twice += not exactly.is_complete(simulation.shelf.seen)
    assert twice


@pytest.mark.slow
@pytest.mark.dealt("first")
@pytest.mark.parametrize("first", range(40_000, 40_000 + SEEDS, _AT_ONCE))
@pytest.mark.parametrize("kind", [Simulation, SavedSimulation])
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


@pytest.mark.slow
def test_rows_are_in_flight_in_those_runs() -> None:
    simulations = [OvertakingSimulation(seed, backend=TRIED[0]) for seed in range(41_000, 41_030)]
    for each in simulations:
        each.run()
    assert sum(each.in_flight for each in simulations) > 10
    assert sum(each.restored_in_flight for each in simulations) > 1
    assert sum(each.cut_anew for each in simulations) > 0


@pytest.mark.soak
@pytest.mark.parametrize("first", range(42_000, 44_000, 200))
def test_every_row_is_seen_once_in_thousands_of_runs_where_barriers_overtake(first: int) -> None:
    for seed in range(first, first + 200):
        run(seed, OvertakingSimulation)


def test_a_seed_replays_a_run() -> None:
    first, second = Simulation(7).run(), Simulation(7).run()
    assert first.world.happened
    assert first.world.trace == second.world.trace
    assert first.shelf.committed == second.shelf.committed


@pytest.mark.soak
@pytest.mark.parametrize("first", range(10_000, 14_000, 200))
def test_every_row_is_seen_once_in_thousands_of_runs(first: int) -> None:
    for seed in range(first, first + 200):
        run(seed)


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


def without_alignment() -> AbstractContextManager[Any]:
    return patch.object(Gate, "may_read", lambda _gate, _channel: True)


def committed_when_prepared() -> AbstractContextManager[Any]:
    prepare = SinkOperator.prepare

    def too_early(operator: SinkOperator, checkpoint_id: int) -> None:
        prepare(operator, checkpoint_id)
        operator.completed(checkpoint_id)

    return patch.object(SinkOperator, "prepare", too_early)


def only_the_last_committed() -> AbstractContextManager[Any]:
    """What was prepared for a checkpoint that was aborted then is forgotten."""

    def forgetful(operator: SinkOperator, checkpoint_id: int) -> None:
        due = [each for each in operator._pending if each[0] == checkpoint_id]
        operator._commit(due, operator._context)
        operator._pending = [each for each in operator._pending if each[0] > checkpoint_id]

    return patch.object(SinkOperator, "completed", forgetful)


def not_committed_again() -> AbstractContextManager[Any]:
    """What a restored checkpoint lists is taken to be committed."""
    commit = SinkOperator._commit

    def only_later(operator: SinkOperator, due: Any, context: Any) -> None:
        if operator._writer is not None:
            commit(operator, due, context)

    return patch.object(SinkOperator, "_commit", only_later)


def stored_when_half_has_come() -> AbstractContextManager[Any]:
    def is_ready(pending: PendingCheckpoint) -> bool:
        return not pending._missing_slots or not pending._missing_sources

    return patch.object(PendingCheckpoint, "is_ready", property(is_ready))


def told_by_commands_only() -> AbstractContextManager[Any]:
    """A slot that has not heard the news yet builds on a checkpoint that is gone."""

    def see(slot: Slot, barrier: Barrier) -> None:
        slot._checkpoint(barrier)

    return patch.object(Slot, "_barrier_arrived", see)


def built_on_what_is_not_complete() -> AbstractContextManager[Any]:
    write = SharedFiles.write

    def rash(files: SharedFiles, number: int, *rest: Any) -> None:
        write(files, number, *rest)
        files._base = files._written[number]

    return patch.object(SharedFiles, "write", rash)


def retained_whatever_is_under_way() -> AbstractContextManager[Any]:
    def retain(keeper: CheckpointKeeper, _since: int) -> None:
        keeper._thread.submit(keeper._retain, None)

    return patch.object(CheckpointKeeper, "retain", retain)


def cleaned_while_it_is_written() -> AbstractContextManager[Any]:
    release = JobOwner.release_orphans

    def all_of_them(owner: JobOwner, **_in_flight: object) -> None:
        release(owner)

    return patch.object(JobOwner, "release_orphans", all_of_them)


def time_that_does_not_wait_for_its_timers() -> AbstractContextManager[Any]:
    """A watermark goes on after the first slice of the timers that it makes due."""
    advance = Chain._advance

    def hasty(chain: Chain, place: int, watermark: int) -> Iterator[None]:
        operator, first = chain.operators[place], chain.operators[place].advance
        with patch.object(operator, "advance", lambda at: first(at) and False):
            yield from advance(chain, place, watermark)

    return patch.object(Chain, "_advance", hasty)


def rows_in_flight_lost() -> AbstractContextManager[Any]:
    return patch.object(Slot, "_restore_in_flight", lambda _slot: None)


def rows_overtaken_and_taken_out() -> AbstractContextManager[Any]:
    """What is in the checkpoint is not processed in this attempt any more."""
    overtake = Channel.overtake

    def emptying(channel: Channel) -> Any:
        found = overtake(channel)
        channel._elements.clear()
        return found

    return patch.object(Channel, "overtake", emptying)


def barriers_that_overtake_only_in_the_channel() -> AbstractContextManager[Any]:
    """Rows that wait for room in it are behind the position, and in no checkpoint."""
    overtake = Inlet.overtake

    def forgetful(inlet: Inlet, barrier: Barrier) -> Any:
        overtake(inlet, barrier)
        return []

    return patch.object(Inlet, "overtake", forgetful)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "found_by"),
    [
        (rows_in_flight_lost, 41_000),
        (rows_overtaken_and_taken_out, 41_000),
        (barriers_that_overtake_only_in_the_channel, 41_000),
    ],
)
def test_every_planted_bug_of_rows_in_flight_is_detected(broken: Any, found_by: int) -> None:
    with broken():
        for seed in range(found_by, found_by + SEEDS):
            try:
                OvertakingSimulation(seed, backend=TRIED[0]).run()
            except Broken:
                return
    pytest.fail("nothing was noticed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "found_by"),
    [
        (without_alignment, 0),
        (time_that_does_not_wait_for_its_timers, 0),
        (committed_when_prepared, 0),
        (only_the_last_committed, 12),
        (not_committed_again, 10),
        (stored_when_half_has_come, 0),
        (told_by_commands_only, 34),
        (built_on_what_is_not_complete, 35),
        (retained_whatever_is_under_way, 0),
        (cleaned_while_it_is_written, 53),
    ],
)
def test_every_planted_bug_is_detected(broken: Any, found_by: int) -> None:
    """Where the house has changed, another seed may be the first that finds it: name that one."""
    with broken():
        for seed in range(found_by, found_by + SEEDS):
            try:
                Simulation(seed, backend=TRIED[0]).run()
            except Broken:
                return
    pytest.fail("nothing was noticed")
