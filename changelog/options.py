"""What users choose about a changelog: how often, how much, how patient."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from holdfast.storage import Invalid
from holdfast.storage.registry import text_fix
from holdfast.storage.segments.handles import LZ4

__all__ = ["ChangelogOptions"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogOptions:
    """How changes are logged and state is materialized; the defaults are Flink's where it has them.

    Raises:
        Invalid: an option is not of its type, or out of its range; names it.
    """

    materialization_interval_s: float | None = 600.0
    """How often state is materialized; None: only when the log is long. Flink's
    `periodic-materialize.interval`."""
    max_materialization_failures: int = 3
    """So many in a row are tolerated. Flink's `max-failures-allowed`."""
    log_ratio: float = 0.5
    """State is materialized as well when the log is longer than so many times its last
    materialization, ..."""
    least_log_bytes: int = 16 * _MIB
    """... and longer than this, ..."""
    most_log_pieces: int = 1000
    """... or has more pieces than this, of which every checkpoint's metadata has a line."""
    persist_threshold_bytes: int = 5 * _MIB
    """Changes of about this size are written before the next checkpoint. Flink's
    `preemptive-persist-threshold`."""
    persist_interval_s: float | None = 10.0
    """So are those that are older than this; None: however old they are."""
    batch_delay_s: float = 0.01
    """How long a slot waits for more of its operators' changes before it writes a file of them.
    Flink's `batch.persist-delay`."""
    batch_bytes: int = 10 * _MIB
    """From this size on it does not wait. Flink's `batch.persist-size-threshold`."""
    max_in_flight_bytes: int = 100 * _MIB
    """When more than this waits to be written the slot processes no rows. Flink's
    `upload.max-in-flight`."""
    upload_threads: int = 5
    """How many files a slot writes at once. Flink's `upload.num-threads`."""
    retry_policy: str = "fixed"
    """`fixed`: a write that takes too long, or fails, is tried again; `none`: it is not. Flink's
    `upload.retry-policy`."""
    upload_timeout_s: float = 1.0
    """After so long another attempt at the same file begins beside the first; the one that is
    done first counts. Flink's `upload.timeout`."""
    upload_attempts: int = 3
    """So many attempts in all. Flink's `upload.max-attempts`."""
    next_attempt_delay_s: float = 0.5
    """How long after a failed attempt the next begins. Flink's `upload.next-attempt-delay`."""
    storage: str = "checkpoints"
    """The registered name of what writes logs between checkpoints; `checkpoints` writes them into
    the job's folder."""
    compression: str = ""
    """`lz4`, or nothing. Flink's `compression.enabled`."""
    local_copies: str | None = None
    """A directory of each machine in which slots keep copies of what they log; a slot that starts
    again on the same machine reads those."""

    def __post_init__(self) -> None:
        for each in fields(self):
            expected = _EXPECTED[each.name]
            value = getattr(self, each.name)
            if not expected.admits(value):
                raise Invalid(
                    f"changelog option {each.name} is out of range",
                    expected=expected.text,
                    found=repr(value),
                    fix=text_fix(value),
                )
        if self.persist_threshold_bytes > self.max_in_flight_bytes:
            raise Invalid(
                "changelog option persist_threshold_bytes is out of range",
                expected=f"at most {self.max_in_flight_bytes}, which is max_in_flight_bytes",
                found=str(self.persist_threshold_bytes),
            )


@dataclass(frozen=True, slots=True)
class _Number:
    least: float
    whole: bool = False
    or_none: bool = False

    def admits(self, value: object) -> bool:
        if value is None:
            return self.or_none
        kinds = int if self.whole else int | float
        if isinstance(value, bool) or not isinstance(value, kinds):
            return False
        return math.isfinite(value) and value >= self.least

    @property
    def text(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {self.least:g}" + (", or None" if self.or_none else "")


@dataclass(frozen=True, slots=True)
class _Word:
    words: tuple[str, ...]

    def admits(self, value: object) -> bool:
        return value in self.words

    @property
    def text(self) -> str:
        return " or ".join(map(repr, self.words))


@dataclass(frozen=True, slots=True)
class _Name:
    text: str
    or_none: bool = False

    def admits(self, value: object) -> bool:
        return self.or_none if value is None else isinstance(value, str) and bool(value)


_COUNT = _Number(1, whole=True)
_SOME_S = _Number(0.001, or_none=True)
_EXPECTED: dict[str, _Number | _Word | _Name] = {
    "materialization_interval_s": _SOME_S,
    "max_materialization_failures": _Number(0, whole=True),
    "log_ratio": _Number(0),
    "least_log_bytes": _Number(0, whole=True),
    "most_log_pieces": _COUNT,
    "persist_threshold_bytes": _COUNT,
    "persist_interval_s": _SOME_S,
    "batch_delay_s": _Number(0),
    "batch_bytes": _COUNT,
    "max_in_flight_bytes": _COUNT,
    "upload_threads": _COUNT,
    "retry_policy": _Word(("fixed", "none")),
    "upload_timeout_s": _Number(0.001),
    "upload_attempts": _COUNT,
    "next_attempt_delay_s": _Number(0),
    "storage": _Name("a registered name"),
    "compression": _Word(("", LZ4)),
    "local_copies": _Name("the path of a directory, or None", or_none=True),
}
