"""Jobs of which some sources end while others go on, simulated: whatever fails, each row counts.

Chains that have ended stay in their slots, take part in all checkpoints, and commit by them. What
is restored has ended again, reads nothing, and repeats nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from holdfast.runtime.driver.run_parts import SourceOpening
from holdfast.runtime.driver.source_feed import Source
from holdfast.runtime.task.chain import Chain
from holdfast.runtime.task.slot import Slot
from support.simulations.mixed import MixedSimulation
from support.simulations.sources import SimulatedSourcePlan
from support.simulations.world import Broken
from support.states.tried_backends import TRIED


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The runtime warns of each failure; there are thousands here."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def run(seed: int, **settings: Any) -> MixedSimulation:
    simulation = MixedSimulation(seed, **settings)
    try:
        return simulation.run()
    except Broken as error:
        error.add_note(f"seed {seed}: {', '.join(simulation.world.happened)}")
        raise


def test_checkpoints_go_on_when_a_source_has_ended() -> None:
    simulation = run(1, faults=0, backend=TRIED[0])
    assert simulation.half_ended


@pytest.mark.slow
@pytest.mark.dealt("mode")
@pytest.mark.parametrize("mode", ["exactly-once", "at-least-once"])
def test_what_has_ended_stays_so_after_a_restore(mode: str) -> None:
    restores = 0
    for seed in range(60):
        restores += run(seed, mode=mode, backend=TRIED[0]).restores_of_half
        if restores > 1:
            return
    pytest.fail("no attempt went on from the middle: the runs say nothing")


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 3_000, 100))
def test_mixed_jobs_count_each_row_in_thousands_of_runs(first: int) -> None:
    for seed in range(first, first + 100):
        run(seed)


def nothing_left_by_what_has_ended() -> AbstractContextManager[Any]:
    take = Slot._take_snapshot

    def forgetful(slot: Slot, chain: Chain, checkpoint_id: int, overtaken: Any) -> None:
        if not chain.has_ended:
            take(slot, chain, checkpoint_id, overtaken)
            return
        with patch.object(chain, "operators", []):
            slot._checkpoints[checkpoint_id].take([])

    return patch.object(Slot, "_take_snapshot", forgetful)


def begun_anew_after_the_end() -> AbstractContextManager[Any]:
    opened = SimulatedSourcePlan.open

    def open(plan: SimulatedSourcePlan, opening: SourceOpening) -> Source:  # noqa: A001
        restored = opening.restored
        has_ended = restored is not None and restored.attributes["has_ended"]
        return opened(plan, replace(opening, restored=None) if has_ended else opening)

    return patch.object(SimulatedSourcePlan, "open", open)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [nothing_left_by_what_has_ended, begun_anew_after_the_end])
def test_every_planted_bug_is_detected(broken: Any) -> None:
    with broken():
        for seed in range(12):
            try:
                MixedSimulation(seed, backend=TRIED[0]).run()
            except Broken:
                return
    pytest.fail("nothing was noticed")
