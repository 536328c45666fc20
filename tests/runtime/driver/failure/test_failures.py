"""The same failure again and again: when it is the same, what is said, and when it is the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast.runtime import ExponentialDelayRestart, JobStatus
from holdfast.runtime.api.restart_strategies import (
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
)
from holdfast.runtime.driver.events import EventQueue, SourceFailed
from holdfast.runtime.driver.failure.failures import Positions, RepeatedFailures
from holdfast.runtime.driver.outcomes import (
    FailureKind,
    Outcome,
    Unsuccessful,
    classify_source_failure,
)
from holdfast.storage import Invalid
from support.jobs.run_of_played_attempts import Act, Stage, completes, play_attempts, succeeds

RAISED = Unsuccessful("row 5: KeyError", uid="sum", kind=FailureKind.USER_CODE)
KILLED = Unsuccessful("slot 1 was killed", kind=FailureKind.SLOT_KILLED)
BROKEN = Unsuccessful("the network is down")


def counts(limit: int | None, *failures: tuple[Unsuccessful, Positions]) -> Iterator[Any]:
    repeats = RepeatedFailures(limit)
    for outcome, positions in failures:
        repeat = repeats.failed(outcome, positions)
        yield f"{repeat.count}!" if repeat.is_final else repeat.count


def at(**batches: int | None) -> Positions:
    """Sources that have read so many batches; None is one that has ended."""
    return {
        uid: {"batch": batch or 0, "has_ended": batch is None} for uid, batch in batches.items()
    }


@pytest.mark.parametrize("outcome", [RAISED, KILLED])
def test_the_same_failure_at_the_same_position_is_final_at_last(outcome: Unsuccessful) -> None:
    assert list(counts(3, *[(outcome, at(a=7))] * 3)) == [1, 2, "3!"]
    assert list(counts(3, *[(outcome, {})] * 3)) == [1, 2, "3!"], "before any checkpoint"
    assert list(counts(None, *[(outcome, at(a=7))] * 20)) == list(range(1, 21))


def test_a_transient_failure_is_final_after_long_repetition() -> None:
    repeats = RepeatedFailures(3, ran_well_s=3600)
    told = [repeats.failed(BROKEN, at(a=7), now_s=at_s) for at_s in (100, 101, 102, 3699, 3700)]
    assert [repeat.count for repeat in told] == [1, 2, 3, 4, 5]
    assert [repeat.is_final for repeat in told] == [False, False, False, False, True]
    assert told[1].told == " (2 times in a row, and no checkpoint has got past it)"
    assert not repeats.failed(BROKEN, at(a=8), now_s=9000).is_final, "the job has got on"
    assert not repeats.failed(BROKEN, at(a=8), ran_s=3600, now_s=19000).told, "it ran well before"
    few = RepeatedFailures(3)
    assert not [few.failed(BROKEN, {}, now_s=at_s).is_final for at_s in (0, 9999)][-1]


def test_failures_that_differ_in_ports_and_ids_are_the_same() -> None:
    repeats = RepeatedFailures(3)
    for number, run in enumerate(("0f3a-11 at 10.0.0.1:99", "9c00-12 at 10.0.0.2:77"), start=1):
        broken = Unsuccessful(f"query {run} is refused")
        assert repeats.failed(broken, {}).count == number
    assert repeats.failed(Unsuccessful("query 1 is late"), {}).count == 1


def test_another_failure_begins_the_count_anew() -> None:
    other_row = replace(RAISED, reason="row 6: KeyError")
    for between in (BROKEN, KILLED, other_row, replace(RAISED, uid="other")):
        found = counts(3, (RAISED, {}), (RAISED, {}), (between, {}), (RAISED, {}), (RAISED, {}))
        assert list(found) == [1, 2, 1, 1, 2]


def test_a_slot_that_dies_is_the_same_failure_whichever_it_is() -> None:
    """A batch that is too large comes to any."""
    other = replace(KILLED, reason="slot 2 was killed")
    assert list(counts(3, (KILLED, {}), (other, {}), (KILLED, {}))) == [1, 2, "3!"]


@pytest.mark.parametrize("outcome", [RAISED, KILLED])
def test_a_job_that_gets_on_may_fail_as_often_as_it_likes(outcome: Unsuccessful) -> None:
    failures = [(outcome, at(a=number)) for number in range(9)]
    assert set(counts(3, *failures)) == {1}


def test_a_row_that_raises_is_met_again_though_other_sources_go_on() -> None:
    failures = [(RAISED, at(a=7, b=number)) for number in range(3)]
    assert list(counts(3, *failures)) == [1, 2, "3!"]
    ended = [(RAISED, at(a=number, b=None)) for number in range(3)]
    assert list(counts(3, *ended)) == [1, 1, 1], "what has ended stays where it is"


def test_a_fault_in_a_batch_is_the_same_whichever_row_comes_first() -> None:
    found = [
        classify_source_failure(SourceFailed("a", f"no {n}", "", fault="KeyError")) for n in "123"
    ]
    assert list(counts(3, *((each, at(a=7)) for each in found))) == [1, 2, "3!"]
    passes = [classify_source_failure(SourceFailed("a", "no", ""))] * 5
    assert list(counts(None, *((each, at(a=7)) for each in passes))) == [1, 2, 3, 4, 5]


def test_slots_that_die_while_any_source_goes_on_die_of_something_else() -> None:
    failures = [(KILLED, at(a=7, b=number)) for number in range(3)]
    assert list(counts(3, *failures)) == [1, 1, 1]


def test_a_repeated_failure_gives_its_count_and_advice() -> None:
    repeats = RepeatedFailures(3)
    told = [repeats.failed(KILLED, {}).told for _ in range(3)]
    assert told[0] == ""
    assert told[1].startswith(
        " (2 times in a row, and no checkpoint has got past it): probably a batch needs more memory"
    )
    assert "maxOffsetsPerTrigger" in told[1]
    assert told[2].endswith("Given up after 3 (max-same-failures of the restart strategy)")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    play_attempts(monkeypatch)


def raises(_stage: Stage, _events: EventQueue) -> Outcome:
    return RAISED


def ended(stage: Stage) -> Stage:
    stage.run.run()
    return stage


NOW = ExponentialDelayRestart(initial_backoff="1ms", max_backoff="1ms", jitter_factor=0)


@pytest.mark.usefixtures("played")
def test_a_row_that_fails_each_time_ends_the_job_by_default() -> None:
    stage = ended(Stage([raises] * 20, restart=NOW))
    assert stage.run.status is JobStatus.FAILED
    assert [failure.count for failure in stage.run.failures] == list(range(1, 9))
    assert str(stage.run.error) == (
        "row 5: KeyError (8 times in a row, and no checkpoint has got past it). Given up after 8 "
        "(max-same-failures of the restart strategy)"
    )


@pytest.mark.usefixtures("played")
def test_each_checkpoint_that_gets_on_gives_it_another_chance() -> None:
    acts = [completes(number, raises) for number in range(10, 30)]
    stage = ended(Stage([*acts, succeeds], restart=NOW))
    assert stage.run.status is JobStatus.FINISHED


def dies_after(milliseconds: int, how: Unsuccessful) -> Act:
    def act(stage: Stage, _events: EventQueue) -> Outcome:
        stage.clock.advance(milliseconds)
        return how

    return act


@pytest.mark.usefixtures("played")
@pytest.mark.parametrize(
    ("restart", "ran_well_ms"),
    [
        (replace(NOW, reset_backoff_threshold="10min"), 600_000),
        (FixedDelayRestart(attempts=99, delay="0s", max_same_failures=8), 3_600_000),
    ],
)
def test_slots_that_die_weeks_apart_while_sources_are_idle_do_not_end_the_job(
    restart: RestartStrategy, ran_well_ms: int
) -> None:
    """Nothing is read there, so no checkpoint can lead past anything."""
    long = [dies_after(ran_well_ms, KILLED)] * 20
    stage = ended(Stage([*long, succeeds], restart=restart))
    assert stage.run.status is JobStatus.FINISHED
    assert {failure.count for failure in stage.run.failures} == {1}
    for ran_ms, outcome in ((ran_well_ms - 1, KILLED), (ran_well_ms, RAISED)):
        stage = ended(Stage([dies_after(ran_ms, outcome)] * 20, restart=restart))
        assert len(stage.run.failures) == 8, "soon again, or at a row, which is the same one"


@pytest.mark.usefixtures("played")
def test_an_outage_without_end_ends_the_job_after_its_hour() -> None:
    long = [dies_after(10 * 60_000, BROKEN)] * 20
    stage = ended(Stage(long, restart=NOW))
    assert stage.run.status is JobStatus.FAILED
    assert len(stage.run.failures) == 8, "as often as it takes, and more than an hour"
    quick = [dies_after(60_000, BROKEN)] * 30
    stage = ended(Stage([*quick, succeeds], restart=NOW))
    assert stage.run.status is JobStatus.FINISHED, "half an hour of it is waited out"


@pytest.mark.usefixtures("played")
def test_a_strategy_that_says_how_often_has_its_say() -> None:
    stage = ended(Stage([raises] * 20, restart=FixedDelayRestart(attempts=12, delay="0s")))
    assert len(stage.run.failures) == 13
    limited = FixedDelayRestart(attempts=12, delay="0s", max_same_failures=2)
    assert len(ended(Stage([raises] * 20, restart=limited)).run.failures) == 2


@pytest.mark.parametrize(
    ("strategy", "limit"),
    [
        (NoRestart(), None),
        (FixedDelayRestart(), None),
        (FailureRateRestart(), None),
        (ExponentialDelayRestart(), 8),
        (ExponentialDelayRestart(max_same_failures=None), None),
    ],
)
def test_each_strategy_has_its_default_limit_of_same_failures(
    strategy: RestartStrategy, limit: int | None
) -> None:
    assert strategy.max_same_failures == limit


@pytest.mark.parametrize("kind", [FixedDelayRestart, FailureRateRestart, ExponentialDelayRestart])
def test_a_limit_is_at_least_one(kind: Any) -> None:
    with pytest.raises(Invalid, match="max_same_failures is out of range"):
        kind(max_same_failures=0)
