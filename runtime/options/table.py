"""A job's options as text, under the names that Flink has for them: one table of all.

Whoever gets options as text, from a session of Spark or from a command line, has them read here.
Nothing is passed over: a name that there is not, and a value that says nothing, are refused. The
options of a changelog are in `holdfast.changelog.settings`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from holdfast.changelog.settings import changelog_options, is_of_changelog
from holdfast.runtime.api.addresses import port_range
from holdfast.runtime.api.network_config import AUTO
from holdfast.runtime.api.restart_strategies import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
)
from holdfast.runtime.driver.job_log import LEVELS
from holdfast.runtime.options.value_checks import check_together, check_value
from holdfast.runtime.rocksdb_option_texts import NOT_HERE, ROCKSDB_OPTIONS
from holdfast.runtime.sinks.files.committables import MISSING_OUTPUT
from holdfast.storage import Invalid
from holdfast.storage.options.durations import duration_ms

__all__ = ["OPTIONS", "RESTORE_PATH", "Option", "Settings", "option_of", "read_settings"]

RESTORE_PATH = "execution.state-recovery.path"
_CHECKPOINTS = "execution.checkpointing."
_RECOVERY = "execution.state-recovery."
_RESTART = "restart-strategy."
_RESTART_TYPE = f"{_RESTART}type"


@dataclass(frozen=True, slots=True)
class Option:
    """One option that a text may set."""

    key: str
    argument: str
    """What it is in code: an argument of the environment, `checkpointing.` and a field of
    `CheckpointConfig`, `network.` and one of `NetworkConfig`, `rocksdb.` and one of
    `RocksDBStateBackend`, `restart.` and a field of the strategy, or `execute.` and an argument."""
    read: Callable[[str, str], Any]
    """From its name, for errors, and the text."""
    values: str
    """What it may be, for people."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Options that were read; each is there only if somebody has set it."""

    values: Mapping[str, Any]
    """By argument: see `Option.argument`; but for those of restarts."""
    restart: RestartStrategy | None
    changelog: Mapping[str, str]
    """As texts; they were tried."""


def read_settings(texts: Mapping[str, str], *, where: str) -> Settings:
    """What texts say, by key.

    Raises:
        Invalid: there is no such option, its value cannot be, or it has no meaning beside the
            others; `where` is what errors call the place of the texts.
    """
    changelog = {key: text for key, text in texts.items() if is_of_changelog(key)}
    values: dict[str, Any] = {}
    restart: dict[str, tuple[str, Any]] = {}
    try:
        changelog_options(changelog, enabled=True)
        for key, text in texts.items():
            if key in changelog:
                continue
            option = _OPTIONS.get(_newer_name(key, texts))
            if option is None:
                raise _unknown(key)
            value = option.read(key, text.strip())
            check_value(key, option.argument, value)
            kind, _, name = option.argument.partition(".")
            if kind == "restart":
                restart[key] = name, value
            else:
                values[option.argument] = value
        check_together(values)
        return Settings(values, _restart(restart), changelog)
    except Invalid as error:
        raise Invalid(
            error.what,
            where=_place(where, error),
            expected=error.expected,
            found=error.found,
            fix=error.fix,
        ) from error


def option_of(argument: str) -> Option:
    """The option for an argument that has one."""
    return next(option for option in OPTIONS if option.argument == argument)


def _newer_name(key: str, texts: Mapping[str, str]) -> str:
    newer = _OLDER_NAMES.get(key, key)
    if newer != key and newer in texts:
        raise Invalid(
            f"the option {newer!r} is there twice",
            expected="one of its names",
            found=f"{key!r} too",
        )
    return newer


def _place(where: str, error: Invalid) -> str:
    return f"{where}, {error.where}" if error.where else where


def _unknown(key: str) -> Invalid:
    if key in NOT_HERE:
        return Invalid(f"option {key!r} has no meaning here", fix=NOT_HERE[key])
    known = [*_OPTIONS, "state.changelog.enabled"]
    near = get_close_matches(key, known, cutoff=0.6)
    return Invalid(
        f"there is no option {key!r}",
        expected=f"such as {' or '.join(near)}" if near else "",
        fix="docs/command-line.md has those that there are, docs/changelog.md those of a changelog",
    )


def _wrong(key: str, text: str, expected: str) -> Invalid:
    return Invalid(f"option {key!r} cannot be this", expected=expected, found=repr(text))


def _text(key: str, text: str) -> str:
    if not text:
        raise _wrong(key, text, "some text")
    return text


def _switch(key: str, text: str) -> bool:
    value = {"true": True, "false": False}.get(text.lower())
    if value is None:
        raise _wrong(key, text, "true or false")
    return value


def _count(key: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise _wrong(key, text, "a whole number")
    return int(text)


def _number(key: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,15})?", text):
        raise _wrong(key, text, 'a number such as "1.5"')
    return float(text)


def _duration(key: str, text: str) -> str:
    """As text that `duration_ms` reads; as in Flink a bare number is of milliseconds."""
    duration = f"{text}ms" if text.isdecimal() else text
    duration_ms(duration, name=f"option {key!r}")
    return duration


def _ports(key: str, text: str) -> str:
    return str(port_range(text, name=f"option {key!r}"))


def _switch_or_auto(key: str, text: str) -> bool | str:
    return AUTO if text.lower() == AUTO else _switch(key, text)


def _count_or_infinite(key: str, text: str) -> int | None:
    return None if text.lower() == "infinite" else _count(key, text)


def _number_or_unlimited(key: str, text: str) -> float | None:
    return None if text.lower() == "unlimited" else _number(key, text)


def _one_of(words: Mapping[str, Any]) -> Callable[[str, str], Any]:
    def read(key: str, text: str) -> Any:
        known = {word.lower(): value for word, value in words.items()}
        if text.lower() not in known:
            raise _wrong(key, text, " or ".join(words))
        return known[text.lower()]

    return read


def _compression(key: str, text: str) -> str:
    return "lz4" if _switch(key, text) else ""


_LEVELS = {name: name for name in LEVELS}
_MODES = {"EXACTLY_ONCE": "exactly-once", "AT_LEAST_ONCE": "at-least-once"}
_RETENTIONS = {"DELETE_ON_CANCELLATION": "delete", "RETAIN_ON_CANCELLATION": "retain"}
_CLAIMS = {"NO_CLAIM": "no-claim", "CLAIM": "claim"}
_STRATEGIES: Mapping[str, Callable[..., RestartStrategy]] = {
    "none": NoRestart,
    "fixed-delay": FixedDelayRestart,
    "failure-rate": FailureRateRestart,
    "exponential-delay": ExponentialDelayRestart,
}
_STRATEGY_NAMES = {name: name for name in _STRATEGIES}

OPTIONS = (
    Option("parallelism.default", "parallelism", _count, "a whole number"),
    Option("pipeline.max-parallelism", "max_parallelism", _count, "a whole number"),
    Option("state.backend.type", "backend", _text, "a registered name"),
    Option("state.allow-pickle", "allow_pickle", _switch, "`true`, `false`"),
    Option("endpoint.enabled", "endpoint", _switch, "`true`, `false`"),
    Option("log.level", "log_level", _one_of(_LEVELS), ", ".join(f"`{name}`" for name in LEVELS)),
    Option("slot.request.timeout", "slot_request_timeout", _duration, "a duration"),
    Option(
        "security.ssl.internal.enabled", "network.ssl", _switch_or_auto, "`auto`, `true`, `false`"
    ),
    *(
        Option(f"{party}.{key}", f"network.{party}_{field}", read, values)
        for party in ("driver", "slot")  # the names are Spark's, after `spark.driver.`
        for key, field, read, values in (
            ("host", "host", _text, "a name or number"),
            ("bindAddress", "bind_address", _text, "a name or number"),
            ("port", "port", _ports, "a port, a range such as `45000-45100`"),
        )
    ),
    *(Option(key, f"rocksdb.{field}", read, said) for key, field, read, said in ROCKSDB_OPTIONS),
    Option(f"{_CHECKPOINTS}dir", "storage", _text, "a URL, a path, a registered name"),
    *(
        Option(f"{_CHECKPOINTS}{key}", f"checkpointing.{field}", read, values)
        for key, field, read, values in (
            ("interval", "interval", _duration, "a duration"),
            ("mode", "mode", _one_of(_MODES), "`EXACTLY_ONCE`"),
            ("timeout", "timeout", _duration, "a duration"),
            ("min-pause", "min_pause", _duration, "a duration"),
            ("max-concurrent-checkpoints", "max_concurrent", _count, "a whole number"),
            ("tolerable-failed-checkpoints", "tolerable_failures", _count, "a whole number"),
            ("num-retained", "retained", _count, "a whole number"),
            (
                "externalized-checkpoint-retention",
                "on_cancel",
                _one_of(_RETENTIONS),
                "`DELETE_ON_CANCELLATION`, `RETAIN_ON_CANCELLATION`",
            ),
            ("checkpoints-after-tasks-finish", "final_checkpoint", _switch, "`true`, `false`"),
            ("savepoint-dir", "savepoint_dir", _text, "a URL, a path"),
            ("snapshot-compression", "compression", _compression, "`true` (lz4), `false`"),
            (
                "cleaner.deletes-per-second",
                "deletes_per_s",
                _number_or_unlimited,
                "a number, `unlimited`",
            ),
        )
    ),
    Option(RESTORE_PATH, "execute.restore", _text, "a path or URL, `latest`"),
    Option(f"{_RECOVERY}claim-mode", "execute.claim_mode", _one_of(_CLAIMS), "`NO_CLAIM`, `CLAIM`"),
    Option(
        f"{_RECOVERY}ignore-unclaimed-state",
        "execute.allow_non_restored_state",
        _switch,
        "`true`, `false`",
    ),
    Option(MISSING_OUTPUT, "execute.allow_missing_output", _switch, "`true`, `false`"),
    Option(
        _RESTART_TYPE,
        "restart.type",
        _one_of(_STRATEGY_NAMES),
        ", ".join(f"`{name}`" for name in _STRATEGIES),
    ),
    *(
        Option(f"{_RESTART}{key}", f"restart.{field}", read, values)
        for key, field, read, values in (
            ("fixed-delay.attempts", "attempts", _count, "a whole number"),
            ("fixed-delay.delay", "delay", _duration, "a duration"),
            (
                "fixed-delay.max-same-failures",
                "max_same_failures",
                _count_or_infinite,
                "a whole number, `infinite`",
            ),
            (
                "failure-rate.max-failures-per-interval",
                "max_failures_per_interval",
                _count,
                "a whole number",
            ),
            (
                "failure-rate.failure-rate-interval",
                "failure_rate_interval",
                _duration,
                "a duration",
            ),
            ("failure-rate.delay", "delay", _duration, "a duration"),
            (
                "failure-rate.max-same-failures",
                "max_same_failures",
                _count_or_infinite,
                "a whole number, `infinite`",
            ),
            ("exponential-delay.initial-backoff", "initial_backoff", _duration, "a duration"),
            ("exponential-delay.max-backoff", "max_backoff", _duration, "a duration"),
            ("exponential-delay.backoff-multiplier", "backoff_multiplier", _number, "a number"),
            (
                "exponential-delay.reset-backoff-threshold",
                "reset_backoff_threshold",
                _duration,
                "a duration",
            ),
            ("exponential-delay.jitter-factor", "jitter_factor", _number, "a number"),
            (
                "exponential-delay.attempts-before-reset-backoff",
                "attempts_before_reset_backoff",
                _count_or_infinite,
                "a whole number, `infinite`",
            ),
            (
                "exponential-delay.max-same-failures",
                "max_same_failures",
                _count_or_infinite,
                "a whole number, `infinite`",
            ),
        )
    ),
)
"""All that there are, but for those of a changelog."""

_OPTIONS = {option.key: option for option in OPTIONS}
_OLDER_NAMES = {
    "state.savepoints.dir": f"{_CHECKPOINTS}savepoint-dir",
    "state.backend.incremental": f"{_CHECKPOINTS}incremental",
}


def _restart(given: Mapping[str, tuple[str, Any]]) -> RestartStrategy | None:
    """The strategy that options name; None if none do."""
    if not given:
        return None
    if _RESTART_TYPE not in given:
        raise Invalid(
            "there are options of a restart strategy, and none that says which one it is",
            expected=_RESTART_TYPE,
            found=", ".join(given),
        )
    strategy = given[_RESTART_TYPE][1]
    arguments = {}
    for key, (name, value) in given.items():
        if key == _RESTART_TYPE:
            continue
        if not key.startswith(f"{_RESTART}{strategy}."):
            raise Invalid(
                f"option {key!r} is of another restart strategy",
                expected=f"one that begins with {_RESTART}{strategy}.",
                found=f"{_RESTART_TYPE}={strategy}",
            )
        arguments[name] = value
    return _STRATEGIES[strategy](**arguments)
