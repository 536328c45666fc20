"""Jobs whose sources always have more, simulated: no barrier starves, whatever other chains do."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest

from holdfast.runtime.task.fair_turns import Turns
from holdfast.runtime.task.loop import ChainBell
from support.simulations.saturation import SaturatedSimulation
from support.simulations.world import Broken
from support.states.tried_backends import TRIED


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The runtime warns of each failure."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def test_barriers_pass_two_saturated_pipelines() -> None:
    passed = 0
    for seed in range(6):
        passed += SaturatedSimulation(seed, faults=0, backend=TRIED[0]).run().passed
    assert passed > 100


@pytest.mark.slow
def test_saturated_jobs_make_progress_whatever_fails() -> None:
    for seed in range(6, 6 + len(TRIED)):  # each is the story of one backend
        SaturatedSimulation(seed).run()


@pytest.mark.soak
@pytest.mark.parametrize("first", range(30_000, 31_000, 100))
def test_saturated_jobs_make_progress_in_hundreds_of_runs(first: int) -> None:
    for seed in range(first, first + 100):
        SaturatedSimulation(seed).run()


def furthest_downstream_first() -> AbstractContextManager[Any]:
    def furthest(turns: Turns) -> int | None:
        for party in reversed(range(len(turns._is_waiting))):
            if turns._is_waiting[party]:
                turns._is_waiting[party] = False
                return party
        return None

    return patch.object(Turns, "next", furthest)


def turns_of_one_element_each() -> AbstractContextManager[Any]:
    charge = Turns.charge
    return patch.object(Turns, "charge", lambda turns, party, _cost: charge(turns, party, 1))


@pytest.mark.parametrize("unfair", [furthest_downstream_first, turns_of_one_element_each])
def test_a_loop_that_is_not_fair_is_found(unfair: Any) -> None:
    with unfair(), pytest.raises(Broken, match="starves in front of light/0"):
        SaturatedSimulation(3, faults=0, backend=TRIED[0]).run()


def test_a_chain_that_is_not_woken_is_found() -> None:
    with patch.object(ChainBell, "ring", lambda _: None), pytest.raises(Broken, match="no turn"):
        SaturatedSimulation(0, faults=0, backend=TRIED[0]).run()
