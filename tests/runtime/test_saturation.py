"""Jobs whose sources always have more, simulated: no barrier starves, whatever other chains do."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from support.simulations.saturation import SaturatedSimulation
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
