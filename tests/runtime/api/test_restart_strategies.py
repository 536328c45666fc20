"""Restart strategies decide as Flink's do, given time and chance."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.api.restart_strategies import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
    default_restart,
)
from holdfast.storage import Invalid

HOUR_MS = 3_600_000
NO_JITTER = 0.5

delays_ms = st.integers(1, 10**6)
chances = st.floats(0, 1)


def answers(
    strategy: RestartStrategy, *, runs_for_ms: int = 1, failures: int = 5
) -> list[int | None]:
    """What a job hears that fails so long after each start."""
    decider = strategy.start()
    now_ms = 1_000_000
    heard: list[int | None] = []
    for _ in range(failures):
        delay_ms = decider.failed(now_ms, NO_JITTER)
        heard.append(delay_ms)
        now_ms += (delay_ms or 0) + runs_for_ms
    return heard


def test_the_default_depends_on_checkpoints() -> None:
    assert default_restart(is_checkpointing=True) == ExponentialDelayRestart()
    assert default_restart(is_checkpointing=False) == NoRestart()


def test_the_defaults_are_those_of_flink() -> None:
    fixed, rate, exponential = FixedDelayRestart(), FailureRateRestart(), ExponentialDelayRestart()
    assert (fixed.attempts, fixed.delay_ms) == (1, 1_000)
    assert (rate.max_failures_per_interval, rate.delay_ms) == (1, 1_000)
    assert rate.failure_rate_interval_ms == 60_000
    assert (exponential.initial_backoff_ms, exponential.max_backoff_ms) == (1_000, 60_000)
    assert (exponential.backoff_multiplier, exponential.jitter_factor) == (1.5, 0.1)
    assert exponential.reset_backoff_threshold_ms == HOUR_MS
    assert exponential.attempts_before_reset_backoff is None


def test_no_restart_never_restarts() -> None:
    assert answers(NoRestart(), failures=2) == [None, None]


@given(st.integers(0, 20), delays_ms)
def test_a_fixed_delay_comes_so_many_times(attempts: int, delay_ms: int) -> None:
    strategy = FixedDelayRestart(attempts=attempts, delay=f"{delay_ms}ms")
    heard = answers(strategy, failures=attempts + 3)
    assert heard == [delay_ms] * attempts + [None] * 3


def test_each_run_of_a_job_counts_for_itself() -> None:
    strategy = FixedDelayRestart(attempts=1, delay="2s")
    assert answers(strategy, failures=2) == [2_000, None]
    assert answers(strategy, failures=2) == [2_000, None]


def test_failures_may_come_at_the_rate_and_not_faster() -> None:
    strategy = FailureRateRestart(max_failures_per_interval=3, failure_rate_interval="10s", delay=0)
    assert answers(strategy, runs_for_ms=1, failures=4) == [0, 0, 0, None]
    assert answers(strategy, runs_for_ms=3_333, failures=4) == [0, 0, 0, None]
    assert answers(strategy, runs_for_ms=3_334, failures=40) == [0] * 40


@given(st.integers(1, 5), st.integers(1, 100), st.lists(st.integers(0, 60), max_size=30))
def test_the_rate_is_that_of_any_window(most: int, interval_ms: int, pauses: list[int]) -> None:
    strategy = FailureRateRestart(
        max_failures_per_interval=most, failure_rate_interval=f"{interval_ms}ms", delay="7s"
    )
    decider, now_ms = strategy.start(), 0
    failures_ms: list[int] = []
    for pause in pauses:
        now_ms += pause
        failures_ms.append(now_ms)
        recent = [each for each in failures_ms if now_ms - each <= interval_ms]
        expected = None if len(recent) > most else 7_000
        assert decider.failed(now_ms, NO_JITTER) == expected


def test_the_delay_grows_up_to_the_longest() -> None:
    strategy = ExponentialDelayRestart(
        initial_backoff="1s", max_backoff="10s", backoff_multiplier=2, jitter_factor=0
    )
    assert answers(strategy, failures=6) == [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]


def test_the_delay_begins_anew_after_a_good_run() -> None:
    strategy = ExponentialDelayRestart(
        initial_backoff="1s", backoff_multiplier=2, reset_backoff_threshold="1min", jitter_factor=0
    )
    assert answers(strategy, runs_for_ms=59_999, failures=3) == [1_000, 2_000, 4_000]
    assert answers(strategy, runs_for_ms=60_000, failures=3) == [1_000, 1_000, 1_000]


def test_attempts_are_counted_until_a_good_run() -> None:
    strategy = ExponentialDelayRestart(
        attempts_before_reset_backoff=2, reset_backoff_threshold="1min", jitter_factor=0
    )
    assert answers(strategy, failures=4) == [1_000, 1_500, None, None]
    assert None not in answers(strategy, runs_for_ms=60_000, failures=9)


def test_failures_before_the_job_is_back_are_part_of_the_last_one() -> None:
    decider = ExponentialDelayRestart(
        initial_backoff="1s", jitter_factor=0, attempts_before_reset_backoff=1
    ).start()
    assert decider.failed(5_000, NO_JITTER) == 1_000
    assert decider.failed(5_400, NO_JITTER) == 600
    assert decider.failed(6_000, NO_JITTER) == 0
    assert decider.failed(6_001, NO_JITTER) is None


@pytest.mark.parametrize(("chance", "delay_ms"), [(0.0, 6_000), (0.5, 8_000), (1.0, 10_000)])
def test_jitter_is_a_part_of_the_delay_to_either_side(chance: float, delay_ms: int) -> None:
    decider = ExponentialDelayRestart(
        initial_backoff="1s", backoff_multiplier=8, jitter_factor=0.25
    ).start()
    assert decider.failed(0, chance) in range(1_000, 1_251)
    assert decider.failed(10_000, chance) == delay_ms


@given(
    initial_ms=delays_ms,
    extra_ms=st.integers(0, 10**7),
    multiplier=st.floats(1.0, 1e6, exclude_min=True),
    jitter=st.floats(0, 1),
    drawn=st.lists(chances, min_size=1, max_size=80),
)
def test_any_delay_is_within_its_limits(
    initial_ms: int, extra_ms: int, multiplier: float, jitter: float, drawn: list[float]
) -> None:
    strategy = ExponentialDelayRestart(
        initial_backoff=f"{initial_ms}ms",
        max_backoff=f"{initial_ms + extra_ms}ms",
        backoff_multiplier=multiplier,
        reset_backoff_threshold="1000000 d",
        jitter_factor=jitter,
    )
    decider, now_ms = strategy.start(), 0
    for number, chance in enumerate(drawn):
        delay_ms = decider.failed(now_ms, chance)
        assert delay_ms is not None
        assert initial_ms <= delay_ms <= initial_ms + extra_ms
        if number * multiplier < 100:  # beyond that the power alone is too big for an integer
            grown = int(initial_ms * multiplier**number)
            assert delay_ms <= max(initial_ms, grown + int(grown * jitter))
        now_ms += delay_ms + 1


def test_the_delay_stays_the_longest_however_often_the_job_fails() -> None:
    assert answers(ExponentialDelayRestart(), failures=5_000)[-1] == 60_000


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (FixedDelayRestart, {"attempts": -1}),
        (FixedDelayRestart, {"attempts": 1.5}),
        (FixedDelayRestart, {"delay": "later"}),
        (FailureRateRestart, {"max_failures_per_interval": 0}),
        (FailureRateRestart, {"failure_rate_interval": 0}),
        (FailureRateRestart, {"delay": -1}),
        (ExponentialDelayRestart, {"initial_backoff": 0}),
        (ExponentialDelayRestart, {"initial_backoff": "2min"}),
        (ExponentialDelayRestart, {"max_backoff": "soon"}),
        (ExponentialDelayRestart, {"backoff_multiplier": 1}),
        (ExponentialDelayRestart, {"backoff_multiplier": float("inf")}),
        (ExponentialDelayRestart, {"backoff_multiplier": "2"}),
        (ExponentialDelayRestart, {"reset_backoff_threshold": 0}),
        (ExponentialDelayRestart, {"jitter_factor": 1.1}),
        (ExponentialDelayRestart, {"jitter_factor": float("nan")}),
        (ExponentialDelayRestart, {"attempts_before_reset_backoff": 0}),
    ],
)
def test_an_invalid_setting_is_refused_by_name(kind: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=next(iter(wrong))) as caught:
        kind(**wrong)
    assert caught.value.found == repr(next(iter(wrong.values())))
