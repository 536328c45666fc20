"""The settings of a changelog."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.storage import Invalid
from holdfast.storage.options.checks import check_choice, check_count, check_number
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
        _check_text("storage", self.storage, expected="a registered name")
        if self.local_copies is not None:
            _check_text(
                "local_copies", self.local_copies, expected="the path of a directory, or None"
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


def _check_text(name: str, value: object, *, expected: str) -> None:
    if not isinstance(value, str) or not value:
        raise Invalid(
            f"changelog option {name} is out of range",
            expected=expected,
            found=repr(value),
            fix=text_fix(value),
        )
