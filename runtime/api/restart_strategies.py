"""Restart strategies, with Flink's meaning: whether and when a failed job is restarted.

A strategy is settings. `start` makes the state that counts the failures of one job; it is pure:
the time and the chance that jitter needs are handed in with each failure.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.storage import Invalid
from holdfast.storage.options.checks import check_count, check_number
from holdfast.storage.options.codecs import (
    DURATION,
    NUMBER,
    WHOLE_NUMBER,
    Codec,
    either,
    one_of,
)
from holdfast.storage.options.durations import Duration, duration_ms
from holdfast.storage.options.table import Option, Owner, Settings

__all__ = [
    "RESTART_OPTIONS",
    "RESTART_PREFIX",
    "ExponentialDelayRestart",
    "FailureRateRestart",
    "FixedDelayRestart",
    "NoRestart",
    "RestartDecider",
    "RestartStrategy",
    "default_restart",
    "restart_strategy",
]

# Powers of the multiplier are no floats any more after some hundred failures.
_ENDLESS_MS = 2**62


class RestartDecider(Protocol):
    """Counts the failures of one run, and decides about restarts."""

    def failed(self, now_ms: int, chance: float) -> int | None:
        """The job has failed. Returns the delay of the restart in milliseconds; None to give up.

        `now_ms` is of a clock that does not go back, so not the time of day; `chance` is a number
        from 0 to 1.
        """


class RestartStrategy(ABC):
    """Settings that say whether and when a failed job is restarted."""

    max_same_failures: int | None = None
    """How often the same failure may come in a row before the job is given up, whatever else is
    set: a function that raises at the same row, a slot that dies at the same batch, a source that
    cannot start. Trying again is not likely to help. What may pass by itself, such as a network
    that is down, ends the job only when it has also gone on for an hour. None: without limit."""

    @property
    def ran_well_ms(self) -> int:
        """The time after which a failure of an attempt does not count with earlier ones."""
        return duration_ms(ExponentialDelayRestart.reset_backoff_threshold, name="ran_well")

    @abstractmethod
    def start(self) -> RestartDecider:
        """A new decider, for one run of a job."""


def default_restart(*, is_checkpointing: bool) -> RestartStrategy:
    """Flink's default: without checkpoints the first failure ends the job."""
    return ExponentialDelayRestart() if is_checkpointing else NoRestart()


@dataclass(frozen=True)
class NoRestart(RestartStrategy):
    """The first failure ends the job."""

    def start(self) -> RestartDecider:
        return FixedDelayRestart(attempts=0).start()


@dataclass(frozen=True, kw_only=True)
class FixedDelayRestart(RestartStrategy):
    """Start again `attempts` times, each after `delay`; the count never starts anew.

    Raises:
        Invalid: a setting is out of range.
    """

    attempts: int = 1
    """How many restarts in all."""
    delay: Duration = "1s"
    """Before each restart."""
    max_same_failures: int | None = None

    def __post_init__(self) -> None:
        _check_same_failures(self.max_same_failures)
        check_count(self.attempts, name="attempts", least=0)
        _ = self.delay_ms

    @property
    def delay_ms(self) -> int:
        return duration_ms(self.delay, name="delay")

    def start(self) -> RestartDecider:
        return _FixedDelay(self)


@dataclass(frozen=True, kw_only=True)
class FailureRateRestart(RestartStrategy):
    """Start again, each time after `delay`, unless failures come too fast.

    More than `max_failures_per_interval` within `failure_rate_interval` are the end.

    Raises:
        Invalid: a setting is out of range.
    """

    max_failures_per_interval: int = 1
    """More failures than these within the interval end the job."""
    failure_rate_interval: Duration = "1min"
    """The interval in which failures are counted."""
    delay: Duration = "1s"
    """Before each restart."""
    max_same_failures: int | None = None

    def __post_init__(self) -> None:
        _check_same_failures(self.max_same_failures)
        check_count(self.max_failures_per_interval, name="max_failures_per_interval", least=1)
        _ = (self.failure_rate_interval_ms, self.delay_ms)

    @property
    def failure_rate_interval_ms(self) -> int:
        return duration_ms(self.failure_rate_interval, name="failure_rate_interval", least_ms=1)

    @property
    def delay_ms(self) -> int:
        return duration_ms(self.delay, name="delay")

    def start(self) -> RestartDecider:
        return _FailureRate(self)


@dataclass(frozen=True, kw_only=True)
class ExponentialDelayRestart(RestartStrategy):
    """Start again after a delay that grows with each failure, until the job has run well.

    Raises:
        Invalid: a setting is out of range, or the first backoff is longer than the longest.
    """

    initial_backoff: Duration = "1s"
    """Before the first restart."""
    max_backoff: Duration = "1min"
    """The longest delay."""
    backoff_multiplier: float = 1.5
    """Each delay is so many times the one before."""
    reset_backoff_threshold: Duration = "1h"
    """After so long without a failure the delays begin anew, and a slot
    that dies is a new failure."""
    jitter_factor: float = 0.1
    """The part of a delay that is left to chance, so that jobs which failed together do not come
    back together."""
    attempts_before_reset_backoff: int | None = None
    """So many restarts at most before the delays begin anew."""
    max_same_failures: int | None = 8
    """The same failure at the same position ends the job after so many. Not Flink's."""

    def __post_init__(self) -> None:
        _check_same_failures(self.max_same_failures)
        if self.initial_backoff_ms > self.max_backoff_ms:
            raise Invalid(
                "initial_backoff is longer than max_backoff",
                expected=f"at most {self.max_backoff!r}",
                found=repr(self.initial_backoff),
            )
        _ = self.reset_backoff_threshold_ms
        least = math.nextafter(1.0, 2.0)
        check_number(self.backoff_multiplier, name="backoff_multiplier", least=least)
        check_number(self.jitter_factor, name="jitter_factor", least=0, most=1)
        if self.attempts_before_reset_backoff is not None:
            name = "attempts_before_reset_backoff"
            check_count(self.attempts_before_reset_backoff, name=name, least=1)

    @property
    def initial_backoff_ms(self) -> int:
        return duration_ms(self.initial_backoff, name="initial_backoff", least_ms=1)

    @property
    def max_backoff_ms(self) -> int:
        return duration_ms(self.max_backoff, name="max_backoff", least_ms=1)

    @property
    def reset_backoff_threshold_ms(self) -> int:
        return duration_ms(self.reset_backoff_threshold, name="reset_backoff_threshold", least_ms=1)

    @property
    def ran_well_ms(self) -> int:
        return self.reset_backoff_threshold_ms

    def start(self) -> RestartDecider:
        return _ExponentialDelay(self)


def _check_same_failures(count: int | None) -> None:
    if count is not None:
        check_count(count, name="max_same_failures", least=1)


class _FixedDelay:
    def __init__(self, strategy: FixedDelayRestart) -> None:
        self._remaining = strategy.attempts
        self._delay_ms = strategy.delay_ms

    def failed(self, now_ms: int, chance: float) -> int | None:
        if not self._remaining:
            return None
        self._remaining -= 1
        return self._delay_ms


class _FailureRate:
    def __init__(self, strategy: FailureRateRestart) -> None:
        self._failures_ms: deque[int] = deque(maxlen=strategy.max_failures_per_interval + 1)
        self._interval_ms = strategy.failure_rate_interval_ms
        self._delay_ms = strategy.delay_ms

    def failed(self, now_ms: int, chance: float) -> int | None:
        failures_ms = self._failures_ms
        failures_ms.append(now_ms)
        is_full = len(failures_ms) == failures_ms.maxlen
        is_too_fast = is_full and now_ms - failures_ms[0] <= self._interval_ms
        return None if is_too_fast else self._delay_ms


class _ExponentialDelay:
    def __init__(self, strategy: ExponentialDelayRestart) -> None:
        self._strategy = strategy
        self._initial_ms = strategy.initial_backoff_ms
        self._max_ms = strategy.max_backoff_ms
        self._reset_ms = strategy.reset_backoff_threshold_ms
        self._attempts = 0
        self._restart_ms: int | None = None
        """When the job is or was started again after the last failure."""

    def failed(self, now_ms: int, chance: float) -> int | None:
        restart_ms = self._restart_ms
        if restart_ms is None or now_ms > restart_ms:  # else it is part of the last failure
            if restart_ms is not None and now_ms - restart_ms >= self._reset_ms:
                self._attempts = 0
            restart_ms = self._restart_ms = now_ms + self._delay_ms(chance)
            self._attempts += 1
        limit = self._strategy.attempts_before_reset_backoff
        return None if limit is not None and self._attempts > limit else restart_ms - now_ms

    def _delay_ms(self, chance: float) -> int:
        grown = self._grown_ms()
        offset = int(grown * self._strategy.jitter_factor)
        jitter = min(int(chance * (2 * offset + 1)), 2 * offset) - offset
        return max(self._initial_ms, min(grown + jitter, self._max_ms))

    def _grown_ms(self) -> int:
        """The delay before jitter and limit, as long as a number can say it."""
        factor = self._strategy.backoff_multiplier
        if self._attempts * math.log2(factor) >= math.log2(_ENDLESS_MS / self._initial_ms):
            return _ENDLESS_MS
        return int(self._initial_ms * factor**self._attempts)


RESTART_PREFIX = "restart-strategy."
"""Begins the names of all options of restarts."""
_STRATEGIES: dict[str, type[RestartStrategy]] = {
    "none": NoRestart,
    "fixed-delay": FixedDelayRestart,
    "failure-rate": FailureRateRestart,
    "exponential-delay": ExponentialDelayRestart,
}
_OWNERS = {name: Owner(name, strategy) for name, strategy in _STRATEGIES.items()}
_RESTART = Owner(
    "restart",
    RestartStrategy,
    "What happens after a failure: the argument `restart` of `StreamEnvironment`. An option of one "
    "strategy needs `restart-strategy.type` to name that strategy. Without a type the strategy is "
    "`exponential-delay` for jobs with checkpoints, and `none` for others. `max-same-failures` is "
    "not Flink's.",
    make=lambda **_: None,
)
_COUNT_OR_INFINITE = either("infinite", None, WHOLE_NUMBER)
_KEYS: dict[str, dict[str, Codec]] = {
    "fixed-delay": {"attempts": WHOLE_NUMBER, "delay": DURATION},
    "failure-rate": {
        "max-failures-per-interval": WHOLE_NUMBER,
        "failure-rate-interval": DURATION,
        "delay": DURATION,
    },
    "exponential-delay": {
        "initial-backoff": DURATION,
        "max-backoff": DURATION,
        "backoff-multiplier": NUMBER,
        "reset-backoff-threshold": DURATION,
        "jitter-factor": NUMBER,
        "attempts-before-reset-backoff": _COUNT_OR_INFINITE,
    },
}

RESTART_OPTIONS = (
    Option(
        f"{RESTART_PREFIX}type",
        _RESTART,
        "type",
        one_of({name: name for name in _STRATEGIES}),
        doc="The strategy.",
    ),
    *(
        Option(f"{RESTART_PREFIX}{name}.{key}", _OWNERS[name], key.replace("-", "_"), codec)
        for name, codecs in _KEYS.items()
        for key, codec in {**codecs, "max-same-failures": _COUNT_OR_INFINITE}.items()
    ),
)


def restart_strategy(*sources: Settings) -> RestartStrategy | None:
    """The strategy that options name; None if none is named.

    Sources come in the order of precedence. Those behind the one that names the strategy may have
    options of others, which are passed over.

    Raises:
        Invalid: there are options of a strategy that is not named, or its fields do not fit.
    """
    naming = next((each for each in sources if "type" in each.of(_RESTART)), None)
    kind = None if naming is None else naming.of(_RESTART)["type"]
    for settings in sources:
        for name, owner in _OWNERS.items():
            if settings.of(owner) and name != kind:
                raise Invalid(
                    f"an option of another restart strategy is set: {name}",
                    where=settings.where(settings.keys[next(iter(settings.arguments(owner)))]),
                    expected=f"{RESTART_PREFIX}type={name}",
                    found=f"{RESTART_PREFIX}type={kind}" if kind else f"no {RESTART_PREFIX}type",
                )
        if settings is naming:
            break
    if kind is None:
        return None
    fields: dict[str, Any] = {}
    for settings in reversed(sources):
        fields |= settings.of(_OWNERS[kind])
    return _STRATEGIES[kind](**fields)
