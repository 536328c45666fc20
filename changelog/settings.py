"""Options of a changelog, under the names that Flink has for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.changelog.options import ChangelogOptions
from holdfast.storage import Invalid
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

__all__ = ["CHANGELOG", "CHANGELOG_OPTIONS", "changelog_options"]

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
