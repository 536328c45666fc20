"""The settings of a changelog, and the options that set them, under the names that Flink has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.storage import Invalid
from holdfast.storage.options.checks import check_choice, check_count, check_number, check_text
from holdfast.storage.options.codecs import (
    NUMBER,
    SECONDS,
    SIZE,
    SWITCH,
    TEXT,
    WHOLE_NUMBER,
    Codec,
    either,
    one_of,
)
from holdfast.storage.options.table import Option, Owner, refused
from holdfast.storage.segments.handles import LZ4

__all__ = ["CHANGELOG", "CHANGELOG_OPTIONS", "ChangelogOptions", "changelog_options"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogOptions:
    """How changes are logged and state is materialized; the defaults are Flink's where it has them.

    Raises:
        Invalid: an option is not of its type, or out of its range; names it.
    """

    materialization_interval_s: float | None = 600.0
    """How often state is materialized; None: only when the log is long."""
    max_materialization_failures: int = 3
    """How many failures in a row are tolerated; one more, and the job fails."""
    log_ratio: float = 0.5
    """State is materialized as well when the log is longer than so many times its last
    materialization, ..."""
    least_log_bytes: int = 16 * _MIB
    """... and longer than this, ..."""
    most_log_pieces: int = 1000
    """... or has more pieces than this, of which every checkpoint's metadata has a line."""
    persist_threshold_bytes: int = 5 * _MIB
    """Changes of about this size are written before the next checkpoint."""
    persist_interval_s: float | None = 10.0
    """So are those that are older than this; None: however old they are."""
    batch_delay_s: float = 0.01
    """How long a slot waits for more of its operators' changes before it writes a file of them."""
    batch_bytes: int = 10 * _MIB
    """From this size on it does not wait."""
    max_in_flight_bytes: int = 100 * _MIB
    """When more than this waits to be written the slot processes no rows."""
    upload_threads: int = 5
    """How many files a slot writes at once."""
    retry_policy: str = "fixed"
    """`fixed`: a write that takes too long, or fails, is tried again; `none`: it is not."""
    upload_timeout_s: float = 1.0
    """After so long another attempt at the same file begins beside the first; the one that is
    done first counts."""
    upload_attempts: int = 3
    """So many attempts in all."""
    next_attempt_delay_s: float = 0.5
    """How long after a failed attempt the next begins."""
    storage: str = "checkpoints"
    """The registered name of what writes logs between checkpoints; `checkpoints` writes them into
    the job's folder."""
    compression: str = ""
    """`lz4`, or nothing."""
    local_copies: str | None = None
    """A directory of each machine in which slots keep copies of what they log; a slot that starts
    again on the same machine reads those."""

    def __post_init__(self) -> None:
        for name, least in _COUNTS.items():
            check_count(getattr(self, name), name=f"changelog option {name}", least=least)
        for name, lowest in _NUMBERS.items():
            value = getattr(self, name)
            if value is not None or name not in _MAY_BE_NONE:
                check_number(value, name=f"changelog option {name}", least=lowest)
        policies = ("fixed", "none")
        check_choice(self.retry_policy, policies, name="changelog option retry_policy")
        check_choice(self.compression, ("", LZ4), name="changelog option compression")
        check_text(self.storage, name="changelog option storage", expected="a registered name")
        if self.local_copies is not None:
            check_text(
                self.local_copies,
                name="changelog option local_copies",
                expected="the path of a directory, or None",
            )
        if self.persist_threshold_bytes > self.max_in_flight_bytes:
            raise Invalid(
                "changelog option persist_threshold_bytes is out of range",
                expected=f"at most {self.max_in_flight_bytes}, which is max_in_flight_bytes",
                found=str(self.persist_threshold_bytes),
            )


_COUNTS = {
    "max_materialization_failures": 0,
    "least_log_bytes": 0,
    "most_log_pieces": 1,
    "persist_threshold_bytes": 1,
    "batch_bytes": 1,
    "max_in_flight_bytes": 1,
    "upload_threads": 1,
    "upload_attempts": 1,
}
_NUMBERS = {
    "materialization_interval_s": 0.001,
    "log_ratio": 0,
    "persist_interval_s": 0.001,
    "batch_delay_s": 0,
    "upload_timeout_s": 0.001,
    "next_attempt_delay_s": 0,
}
_MAY_BE_NONE = ("materialization_interval_s", "persist_interval_s")

_PREFIX = "state.changelog."
_LOG = "dstl.dfs."
_ENABLED, _PERIODIC = "enabled", "periodic"
"""Fields that are switches and not fields of `ChangelogOptions`."""


def changelog_options(
    fields: Mapping[str, Any], *, enabled: bool | None = None
) -> ChangelogOptions | None:
    """The options with these fields; None if no changelog is to be written.

    `enabled` says whether one is, whatever the field of that name says.

    Raises:
        Invalid: fields do not fit each other; or there are some, and neither `enabled` nor the
            field says whether a changelog is written.
    """
    if enabled is None:
        enabled = fields.get(_ENABLED, False)
        if _ENABLED not in fields and fields:
            keys = [each.key for each in CHANGELOG_OPTIONS if each.field in fields]
            raise Invalid(
                f"changelog options are set, but {_PREFIX}enabled is not",
                expected=f"{_PREFIX}enabled=true or false beside them",
                found=", ".join(keys),
                fix=f"Set {_PREFIX}enabled to true or to false",
            )
    return _made(**fields) if enabled else None


def _made(*, enabled: bool = True, periodic: bool = True, **fields: Any) -> ChangelogOptions:
    del enabled
    options = ChangelogOptions(**fields)  # with an interval that is checked although it is off
    if periodic:
        return options
    return ChangelogOptions(**{**fields, "materialization_interval_s": None})


def _storage(text: str) -> str:
    if text == "memory":
        raise Invalid(
            "a log in memory only would be lost with its process",
            expected="filesystem, or the registered name of a changelog storage",
            found=repr(text),
            fix="Leave it out: the log is where checkpoints are",
        )
    # Flink's name for it, and ours.
    return "checkpoints" if text == "filesystem" else TEXT.read(text)


CHANGELOG = Owner(
    "changelog",
    ChangelogOptions,
    "Fields of `ChangelogOptions`, the argument `changelog` of `StreamEnvironment`. "
    "`state.changelog.enabled` must be set where any other is. "
    "[changelog.md](changelog.md) says more.",
    make=_made,
)
_ROWS: tuple[tuple[str, str, Codec], ...] = (
    ("periodic-materialize.interval", "materialization_interval_s", SECONDS),
    ("max-failures-allowed", "max_materialization_failures", WHOLE_NUMBER),
    ("dstl.dfs.preemptive-persist-threshold", "persist_threshold_bytes", SIZE),
    ("dstl.dfs.batch.persist-delay", "batch_delay_s", SECONDS),
    ("dstl.dfs.batch.persist-size-threshold", "batch_bytes", SIZE),
    ("dstl.dfs.upload.max-in-flight", "max_in_flight_bytes", SIZE),
    ("dstl.dfs.upload.num-threads", "upload_threads", WHOLE_NUMBER),
    ("dstl.dfs.upload.retry-policy", "retry_policy", one_of({"fixed": "fixed", "none": "none"})),
    ("dstl.dfs.upload.timeout", "upload_timeout_s", SECONDS),
    ("dstl.dfs.upload.max-attempts", "upload_attempts", WHOLE_NUMBER),
    ("dstl.dfs.upload.next-attempt-delay", "next_attempt_delay_s", SECONDS),
    ("dstl.dfs.compression.enabled", "compression", one_of({"true": LZ4, "false": ""})),
    ("storage", "storage", Codec("`filesystem` or a registered name", _storage)),
    # Flink has none of these.
    ("materialize.log-ratio", "log_ratio", NUMBER),
    ("materialize.least-log-size", "least_log_bytes", SIZE),
    ("materialize.most-log-pieces", "most_log_pieces", WHOLE_NUMBER),
    ("dstl.dfs.preemptive-persist-interval", "persist_interval_s", either("never", None, SECONDS)),
    ("local-copies", "local_copies", TEXT),
)
_REFUSED = {
    "dstl.dfs.base-path": "the log lies in the job's folder, where its checkpoints are",
    "dstl.dfs.upload.buffer-size": "how files are written, the storage of checkpoints decides, "
    "that of S3 by its option part_size_bytes",
    "dstl.dfs.discard.num-threads": "files of the log are deleted as all others of checkpoints "
    "are, CheckpointConfig(deletes_per_s=...) says how fast",
    "dstl.dfs.download.local-cache.idle-timeout-ms": "a restore reads of the log just what it "
    "needs; state.changelog.local-copies keeps copies on the slot's machine",
}


def _older_names(key: str) -> tuple[str, ...]:
    """In older versions of Flink the options of the log had no prefix."""
    return (key,) if key.startswith(_LOG) else ()


CHANGELOG_OPTIONS = (
    Option(f"{_PREFIX}enabled", CHANGELOG, _ENABLED, SWITCH, doc="Whether changes are logged."),
    Option(
        f"{_PREFIX}periodic-materialize.enabled",
        CHANGELOG,
        _PERIODIC,
        SWITCH,
        doc="With `false` state is materialized only when the log is long.",
    ),
    *(
        Option(f"{_PREFIX}{key}", CHANGELOG, field, codec, _older_names(key))
        for key, field, codec in _ROWS
    ),
    *(
        refused(f"{_PREFIX}{key}", CHANGELOG, f"Leave it out: {why}", _older_names(key))
        for key, why in _REFUSED.items()
    ),
)
