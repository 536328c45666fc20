"""A changelog's options as text, under the names that Flink has for them.

Whoever gets settings as text, from a session or a file, has them read here. Nothing is passed over:
a name that there is not, a value that says nothing, and what has no meaning here are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import Any

from holdfast.changelog.options import ChangelogOptions
from holdfast.storage import Invalid
from holdfast.storage.segments.handles import LZ4

__all__ = ["changelog_options", "is_of_changelog", "size_in_bytes"]

_PREFIX = "state.changelog."
_LOG = "dstl.dfs."
_ENABLED = f"{_PREFIX}enabled"
_PERIODIC = f"{_PREFIX}periodic-materialize.enabled"

_UNITS_S = {
    unit: seconds
    for units, seconds in (
        ("ns nano nanos nanosecond nanoseconds", Fraction(1, 10**9)),
        ("µs micro micros microsecond microseconds", Fraction(1, 10**6)),
        ("ms milli millis millisecond milliseconds", Fraction(1, 1000)),
        ("s sec secs second seconds", Fraction(1)),
        ("m min minute minutes", Fraction(60)),
        ("h hour hours", Fraction(3600)),
        ("d day days", Fraction(86_400)),
    )
    for unit in units.split()
} | {"": Fraction(1, 1000)}
_UNITS_BYTES = {
    unit: 1 << bits
    for units, bits in (
        ("b bytes", 0),
        ("k kb kibibytes", 10),
        ("m mb mebibytes", 20),
        ("g gb gibibytes", 30),
        ("t tb tebibytes", 40),
    )
    for unit in units.split()
} | {"": 1}
_WIDE = {"persist_threshold_bytes": 1, "max_in_flight_bytes": 1 << 60}
"""Of what is compared with others, values with which any other goes."""
_TERM = re.compile(r"([0-9]{1,15})\s*([a-zµ]*)")


def size_in_bytes(text: str) -> int | None:
    """A size as Flink writes it, such as `5mb`; None if the text is none."""
    match = _TERM.fullmatch(text.lower())
    if match is None or match[2] not in _UNITS_BYTES:
        return None
    return int(match[1]) * _UNITS_BYTES[match[2]]


def is_of_changelog(name: str) -> bool:
    """Whether a setting of this name would be one of a changelog."""
    return name.startswith((_PREFIX, _LOG))


def changelog_options(
    settings: Mapping[str, str], *, enabled: bool | None = None
) -> ChangelogOptions | None:
    """The options that settings name; None if no changelog is to be written.

    `enabled` says whether one is, whatever they say of it. Settings that are not of a changelog
    are not looked at. The log's may be written as `dstl.dfs.…` too, as in older versions of Flink.

    Raises:
        Invalid: a setting does not exist, has no meaning here, is there twice, or has a value that
            it cannot have; or there are some, and none says whether a changelog is written.
    """
    switches: dict[str, bool] = {}
    given: dict[str, tuple[str, Any]] = {}
    for name, text in settings.items():
        if not is_of_changelog(name):
            continue
        full_name = f"{_PREFIX}{name}" if name.startswith(_LOG) else name
        if full_name != name and full_name in settings:
            raise Invalid(
                f"the setting {full_name!r} is there twice",
                expected="one of its names",
                found=f"{name!r} too",
            )
        if full_name in (_ENABLED, _PERIODIC):
            switches[full_name] = _switch(name, text)
        else:
            option = _option(name, full_name)
            given[option.field] = name, _checked(name, option.field, option.read(name, text))
    if enabled is None:
        if _ENABLED not in switches and (switches or given):
            raise Invalid(
                "there are settings of a changelog, and none that says whether it is written",
                expected=f"{_ENABLED}",
                found=", ".join([*switches, *(name for name, _ in given.values())]),
                fix=f"Set {_ENABLED} to true or to false",
            )
        enabled = switches.get(_ENABLED, False)
    if not enabled:
        return None
    values = {field: value for field, (_, value) in given.items()}
    if not switches.get(_PERIODIC, True):
        values["materialization_interval_s"] = None
    return ChangelogOptions(**values)


@dataclass(frozen=True, slots=True)
class _Option:
    field: str
    read: Callable[[str, str], Any]


def _option(name: str, full_name: str) -> _Option:
    if full_name in _MEANINGLESS:
        raise Invalid(f"the setting {name!r} has no meaning here", fix=_MEANINGLESS[full_name])
    option = _OPTIONS.get(full_name)
    if option is None:
        known = [_ENABLED, _PERIODIC, *_OPTIONS]
        near = get_close_matches(full_name, known, cutoff=0.75)
        raise Invalid(
            f"there is no setting {name!r} of a changelog",
            expected=f"one of {', '.join(near or known)}",
        )
    return option


def _checked(name: str, field: str, value: Any) -> Any:
    try:
        ChangelogOptions(**_WIDE | {field: value})
    except Invalid as error:
        raise Invalid(
            f"the setting {name!r} is out of range",
            expected=f"for {field} {error.expected}",
            found=error.found,
        ) from error
    return value


def _wrong(name: str, text: object, expected: str) -> Invalid:
    return Invalid(f"the setting {name!r} cannot be read", expected=expected, found=repr(text))


def _switch(name: str, text: str) -> bool:
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise _wrong(name, text, "true or false")
    return value


def _compression(name: str, text: str) -> str:
    return LZ4 if _switch(name, text) else ""


def _count(name: str, text: str) -> int:
    stripped = text.strip()
    if not re.fullmatch(r"[0-9]{1,15}", stripped):
        raise _wrong(name, text, "a whole number")
    return int(stripped)


def _number(name: str, text: str) -> float:
    stripped = text.strip()
    if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,15})?", stripped):
        raise _wrong(name, text, 'a number such as "1.5"')
    return float(stripped)


def _seconds(name: str, text: str) -> float:
    match = _TERM.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS_S:
        units = "d, h, min, s, ms, µs or ns; without a unit it is milliseconds"
        raise _wrong(name, text, f'a duration as Flink writes it, such as "10 min": {units}')
    return float(int(match[1]) * _UNITS_S[match[2]])


def _seconds_or_never(name: str, text: str) -> float | None:
    return None if text.strip().lower() == "never" else _seconds(name, text)


def _bytes(name: str, text: str) -> int:
    size = size_in_bytes(text.strip())
    if size is None:
        units = "b, kb, mb, gb or tb, of 1024 each; without a unit it is bytes"
        raise _wrong(name, text, f'a size as Flink writes it, such as "5mb": {units}')
    return size


def _text(name: str, text: str) -> str:
    del name
    return text.strip()


def _storage(name: str, text: str) -> str:
    """Flink's `filesystem` is what is called `checkpoints` here."""
    word = text.strip()
    if word == "memory":
        raise Invalid(
            f"the setting {name!r} would keep the log in memory only",
            expected="filesystem, or the registered name of a changelog storage",
            found=repr(text),
            fix="Leave it out: the log is where checkpoints are",
        )
    return "checkpoints" if word == "filesystem" else word


_OPTIONS: Mapping[str, _Option] = {
    f"{_PREFIX}{name}": _Option(field, read)
    for name, field, read in (
        ("periodic-materialize.interval", "materialization_interval_s", _seconds),
        ("max-failures-allowed", "max_materialization_failures", _count),
        ("dstl.dfs.preemptive-persist-threshold", "persist_threshold_bytes", _bytes),
        ("dstl.dfs.batch.persist-delay", "batch_delay_s", _seconds),
        ("dstl.dfs.batch.persist-size-threshold", "batch_bytes", _bytes),
        ("dstl.dfs.upload.max-in-flight", "max_in_flight_bytes", _bytes),
        ("dstl.dfs.upload.num-threads", "upload_threads", _count),
        ("dstl.dfs.upload.retry-policy", "retry_policy", _text),
        ("dstl.dfs.upload.timeout", "upload_timeout_s", _seconds),
        ("dstl.dfs.upload.max-attempts", "upload_attempts", _count),
        ("dstl.dfs.upload.next-attempt-delay", "next_attempt_delay_s", _seconds),
        ("dstl.dfs.compression.enabled", "compression", _compression),
        ("storage", "storage", _storage),
        # Flink has none of these.
        ("materialize.log-ratio", "log_ratio", _number),
        ("materialize.least-log-size", "least_log_bytes", _bytes),
        ("materialize.most-log-pieces", "most_log_pieces", _count),
        ("dstl.dfs.preemptive-persist-interval", "persist_interval_s", _seconds_or_never),
        ("local-copies", "local_copies", _text),
    )
}

_LEAVE_OUT = "Leave it out: "
_MEANINGLESS: Mapping[str, str] = {
    f"{_PREFIX}{name}": f"{_LEAVE_OUT}{why}"
    for name, why in {
        "dstl.dfs.base-path": "the log lies in the job's folder, where its checkpoints are",
        "dstl.dfs.upload.buffer-size": "how files are written, the storage of checkpoints decides, "
        "that of S3 by its option part_size_bytes",
        "dstl.dfs.discard.num-threads": "files of the log are deleted as all others of "
        "checkpoints are, CheckpointConfig(deletes_per_s=...) says how fast",
        "dstl.dfs.download.local-cache.idle-timeout-ms": "a restore reads of the log just what it "
        "needs; state.changelog.local-copies keeps copies on the slot's machine",
    }.items()
}
