"""Each planted bug is found by the simulation, by a seed that is named."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from support.simulations import planted_bugs as bugs
from support.simulations.overtaking import OvertakingSimulation
from support.simulations.planted_bugs import Planted
from support.simulations.runs import Simulation
from support.simulations.saturation import SaturatedSimulation
from support.simulations.world import Broken
from support.states.tried_backends import TRIED

AT_LEAST_ONCE = "at-least-once"
_MOST = 120
"""More seeds than any of them takes, from the named one on, or from zero."""


@dataclass(frozen=True)
class Hunt:
    """A bug, and the first seed that finds it.

    Where the house has changed, another seed may be the first: name that one.
    """

    bug: Callable[[], Planted]
    found_by: int
    mode: str = "exactly-once"
    kind: type[Simulation] = Simulation

    def finds(self, first: int) -> bool:
        """Whether one of so many seeds notices it, from this one on."""
        with self.bug():
            for seed in range(first, first + _MOST):
                try:
                    self.kind(seed, backend=TRIED[0], mode=self.mode).run()
                except Broken:
                    return True
        return False


HUNTS = [
    Hunt(bugs.without_alignment, 7),
    Hunt(bugs.snapshot_behind_its_barrier, 5),
    Hunt(bugs.watermark_that_overtakes_rows, 0),
    Hunt(bugs.time_that_does_not_wait_for_its_timers, 0),
    Hunt(bugs.position_in_front_of_a_batch_that_counts, 11),
    Hunt(bugs.position_of_the_time_when_it_is_stored, 35),
    Hunt(bugs.committed_when_prepared, 0),
    Hunt(bugs.only_the_last_committed, 3),
    Hunt(bugs.not_committed_again, 5),
    Hunt(bugs.commits_that_add_up, 5),
    Hunt(bugs.stored_when_half_has_come, 0),
    Hunt(bugs.acknowledged_before_it_is_written, 9),
    Hunt(bugs.declines_taken_for_answers, 3),
    Hunt(bugs.told_by_commands_only, 2),
    Hunt(bugs.built_on_what_is_not_complete, 3),
    Hunt(bugs.retained_whatever_is_under_way, 0),
    Hunt(bugs.cleaned_while_it_is_written, 0),
    Hunt(bugs.fenced_drivers_go_on, 0),
    Hunt(bugs.void_numbers_not_recorded, 96),
    Hunt(bugs.cut_at_the_first_barrier, 0, AT_LEAST_ONCE),
    Hunt(bugs.barriers_counted_whatever_their_number, 0, AT_LEAST_ONCE),
    Hunt(bugs.rows_in_flight_lost, 41_000, kind=OvertakingSimulation),
    Hunt(bugs.rows_overtaken_and_taken_out, 41_000, kind=OvertakingSimulation),
    Hunt(bugs.rows_left_out_that_were_not_processed, 41_020, AT_LEAST_ONCE, OvertakingSimulation),
    Hunt(bugs.barriers_that_overtake_only_in_the_channel, 41_035, kind=OvertakingSimulation),
]
NAMED = pytest.mark.parametrize("hunt", HUNTS, ids=lambda hunt: hunt.bug.__name__)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The runtime warns of each failure; there are thousands here."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@NAMED
def test_a_planted_bug_is_found(hunt: Hunt) -> None:
    assert hunt.finds(hunt.found_by)


@pytest.mark.soak
@NAMED
def test_a_planted_bug_is_found_again_among_other_seeds(hunt: Hunt) -> None:
    assert hunt.finds(0)
    assert hunt.finds(hunt.found_by + 1)


@pytest.mark.parametrize(
    ("bug", "found_by", "told"),
    [
        (bugs.furthest_downstream_first, 3, "starves in front of light/0"),
        (bugs.turns_of_one_element_each, 9, "starves in front of light/0"),
        (bugs.chains_that_are_not_woken, 0, "no turn"),
    ],
)
def test_a_loop_that_is_not_fair_is_found(
    bug: Callable[[], Planted], found_by: int, told: str
) -> None:
    with bug(), pytest.raises(Broken, match=told):
        SaturatedSimulation(found_by, faults=0, backend=TRIED[0]).run()
