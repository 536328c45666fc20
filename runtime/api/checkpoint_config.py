"""How checkpoints of a job are taken: the settings, with Flink's names, meaning and defaults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from holdfast.storage import Invalid, load_storage
from holdfast.storage.options.checks import (
    check_choice,
    check_count,
    check_number,
    check_switch,
    text_fix,
)
from holdfast.storage.options.codecs import (
    DURATION,
    NUMBER,
    SWITCH,
    WHOLE_NUMBER,
    Codec,
    either,
    one_of,
)
from holdfast.storage.options.durations import Duration, duration_ms
from holdfast.storage.options.table import Option, Owner, refused
from holdfast.storage.registry import registered_storages, storage_factory

__all__ = ["CHECKPOINTING", "CHECKPOINT_OPTIONS", "PLACE", "CheckpointConfig"]

_SHORTEST_MS = 10  # Flink's limit too: what is shorter is a mistake in the unit


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """How checkpoints are taken. All is checked when it is made.

    Durations are a `timedelta`, or text such as "500ms" and "1h 30min".

    Raises:
        Invalid: a setting is out of range, does not fit another, or cannot be honoured.
    """

    interval: Duration | None = None
    """From the trigger of one checkpoint to that of the next. None: only those that are asked
    for, and the final one."""
    interval_during_backlog: Duration | None = None
    """The interval while any source reads a backlog: one of a fixed size (`from_batch`,
    `available_now`) until it ends; an endless stream never does. Not shorter than `interval`; 0:
    only those that are asked for. None: as at other times."""
    mode: str = "exactly-once"
    """The guarantee of the job: "exactly-once", or "at-least-once", where no channel waits for a
    barrier, and rows that came behind one may count again after a restore."""
    timeout: Duration = "10min"
    """A checkpoint that is not ready to be stored so long after its trigger is given up."""
    sync_phase_timeout: Duration = "0s"
    """A slot that processes nothing for so long because an operator takes its snapshot fails, and
    the job starts again. 0: without limit."""
    min_pause: Duration = "0s"
    """At least so long from the end of one checkpoint to the trigger of the next."""
    max_concurrent: int = 1
    """So many may be under way at once."""
    source_alignment_timeout: Duration = "200ms"
    """So long a barrier waits behind rows that a source has brought and that are not processed yet;
    then it overtakes them, and those that are left are stored in the checkpoint. Barriers of
    savepoints wait for all, and so do those of a storage that keeps no files (`memory`)."""
    tolerable_failures: int = 0
    """The job fails when more checkpoints than these have failed in a row."""
    retained: int = 1
    """So many completed checkpoints are kept, the newest; more while those under way need them."""
    deletes_per_s: float | None = 1000
    """So many objects are deleted in a second at most, in the background, when checkpoints are not
    retained any more: a store has to serve others too. None: as fast as it can."""
    on_cancel: str = "delete"
    """Whether a job that is cancelled leaves its checkpoints, to go on from: "delete" or "retain".
    One that fails, or is interrupted (Ctrl-C), leaves them in any case."""
    final_checkpoint: bool = True
    """Take a checkpoint when all sources have ended, so that sinks commit the last rows. Without it
    a job that has sinks is refused if all its sources end. While others go on, checkpoints do."""
    savepoint_dir: str | None = None
    """Where savepoints go that name no directory: a path or a URL. None: what the session says."""
    compression: str = ""
    """How state is packed: "lz4", or "" for not at all."""

    def __post_init__(self) -> None:
        check_choice(self.mode, ("exactly-once", "at-least-once"), name="mode")
        check_choice(self.on_cancel, ("delete", "retain"), name="on_cancel")
        check_choice(self.compression, ("", "lz4"), name="compression")
        check_count(self.max_concurrent, name="max_concurrent", least=1)
        check_count(self.tolerable_failures, name="tolerable_failures", least=0)
        check_count(self.retained, name="retained", least=1)
        if self.deletes_per_s is not None:
            check_number(self.deletes_per_s, name="deletes_per_s", least=1)
        if self.savepoint_dir is not None and not _is_text(self.savepoint_dir):
            raise Invalid(
                "savepoint_dir is not a directory",
                expected="a path or a URL, or None",
                found=repr(self.savepoint_dir),
                fix=text_fix(self.savepoint_dir),
            )
        check_switch(self.final_checkpoint, name="final_checkpoint")
        self._check_backlog()
        _ = self.source_alignment_ms
        if self.sync_phase_timeout_ms > self.timeout_ms:
            raise Invalid(
                "a part of a checkpoint may take longer than all of it",
                expected="sync_phase_timeout that is at most timeout",
                found=f"sync_phase_timeout {self.sync_phase_timeout!r} and timeout "
                f"{self.timeout!r}",
                fix="Leave one of them out",
            )
        if self.min_pause_ms > self.timeout_ms:
            raise Invalid(
                "the pause between checkpoints is longer than a checkpoint may take",
                expected="min_pause that is at most timeout",
                found=f"min_pause {self.min_pause!r} and timeout {self.timeout!r}",
                fix="Set a longer interval, which says how often checkpoints are taken",
            )
        if self.min_pause_ms and self.max_concurrent > 1:
            raise Invalid(
                "a pause between checkpoints leaves no room for concurrent ones",
                expected="min_pause 0 or max_concurrent 1",
                found=f"min_pause {self.min_pause!r} and max_concurrent {self.max_concurrent}",
                fix="Leave one of them out",
            )

    @property
    def interval_ms(self) -> int | None:
        if self.interval is None:
            return None
        return duration_ms(self.interval, name="interval", least_ms=_SHORTEST_MS)

    @property
    def interval_during_backlog_ms(self) -> int | None:
        if self.interval_during_backlog is None:
            return self.interval_ms
        name = "interval_during_backlog"
        is_off = duration_ms(self.interval_during_backlog, name=name) == 0
        least_ms = 0 if is_off else _SHORTEST_MS
        return duration_ms(self.interval_during_backlog, name=name, least_ms=least_ms)

    @property
    def timeout_ms(self) -> int:
        return duration_ms(self.timeout, name="timeout", least_ms=_SHORTEST_MS)

    @property
    def sync_phase_timeout_ms(self) -> int:
        return duration_ms(self.sync_phase_timeout, name="sync_phase_timeout")

    @property
    def min_pause_ms(self) -> int:
        return duration_ms(self.min_pause, name="min_pause")

    @property
    def source_alignment_ms(self) -> int:
        return duration_ms(self.source_alignment_timeout, name="source_alignment_timeout")

    def _check_backlog(self) -> None:
        backlog_ms, interval_ms = self.interval_during_backlog_ms, self.interval_ms
        if not backlog_ms or (interval_ms is not None and backlog_ms >= interval_ms):
            return
        raise Invalid(
            "checkpoints would be more frequent during a backlog than at other times",
            expected="interval_during_backlog 0, or at least the interval",
            found=f"interval_during_backlog {self.interval_during_backlog!r} and interval "
            f"{self.interval!r}",
            fix="Set an interval, too" if interval_ms is None else "",
        )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


_OF_A_SESSION = frozenset({"hdfs", "viewfs", "s3", "s3a"})
"""Kinds of storage that need settings of the Spark session, so a URL alone cannot be tried."""


def _place(text: str) -> str:
    if not text:
        raise ValueError(text)
    scheme = text.partition(":")[0]
    if scheme in _OF_A_SESSION:
        return text
    if scheme in registered_storages():
        storage_factory(text)
    else:
        load_storage(text)  # connects to nothing before it is used
    return text


PLACE = Codec("a URL, a path, a registered name", _place)


def _check_fields(**fields: Any) -> None:
    # The defaults say nothing here: what a field has to fit may come from another source.
    fields.setdefault("timeout", "10000 d")
    if "interval_during_backlog" in fields:
        fields.setdefault("interval", f"{_SHORTEST_MS} ms")
    CheckpointConfig(**fields)


CHECKPOINTING = Owner(
    "checkpointing",
    CheckpointConfig,
    "Fields of `CheckpointConfig`, the argument `checkpointing` of `StreamEnvironment`. A field "
    "that has its default value counts as not set by the program.",
    make=_check_fields,
)
_MODES = one_of({"EXACTLY_ONCE": "exactly-once", "AT_LEAST_ONCE": "at-least-once"})
_RETENTIONS = one_of({"DELETE_ON_CANCELLATION": "delete", "RETAIN_ON_CANCELLATION": "retain"})


def _retention(text: str) -> str:
    if text.upper() == "NO_EXTERNALIZED_CHECKPOINTS":
        raise Invalid(
            "checkpoints are always stored with their metadata",
            expected=_RETENTIONS.expected,
            found=text,
            fix="Write DELETE_ON_CANCELLATION, by which only a job that has failed leaves them",
        )
    return str(_RETENTIONS.read(text))


_ROWS: tuple[tuple[str, str, Codec], ...] = (
    ("interval", "interval", DURATION),
    ("interval-during-backlog", "interval_during_backlog", DURATION),
    ("mode", "mode", _MODES),
    ("timeout", "timeout", DURATION),
    ("sync-phase-timeout", "sync_phase_timeout", DURATION),
    ("min-pause", "min_pause", DURATION),
    ("max-concurrent-checkpoints", "max_concurrent", WHOLE_NUMBER),
    ("tolerable-failed-checkpoints", "tolerable_failures", WHOLE_NUMBER),
    ("num-retained", "retained", WHOLE_NUMBER),
    ("externalized-checkpoint-retention", "on_cancel", replace(_RETENTIONS, read=_retention)),
    ("checkpoints-after-tasks-finish", "final_checkpoint", SWITCH),
    ("savepoint-dir", "savepoint_dir", Codec("a URL, a path", PLACE.read)),
    ("snapshot-compression", "compression", one_of({"true": "lz4", "false": ""})),
    # Flink has no such options.
    ("source-alignment-timeout", "source_alignment_timeout", DURATION),
    ("cleaner.deletes-per-second", "deletes_per_s", either("unlimited", None, NUMBER)),
)
_OLDER_NAMES = {
    "num-retained": ("state.checkpoints.num-retained",),
    "checkpoints-after-tasks-finish": (
        "execution.checkpointing.checkpoints-after-tasks-finish.enabled",
    ),
    "savepoint-dir": ("state.savepoints.dir", "savepoints.state.backend.fs.dir"),
}
_ONE_FILE = (
    "Leave it out: a slot always writes one file a checkpoint, which has the state of all its "
    "operators"
)
_REFUSED: dict[str, tuple[str, ...]] = {
    "Set execution.checkpointing.dir: its URL says which storage that is; `memory` is the driver's "
    "memory": ("storage",),
    "Leave it out: a job's checkpoints are always in a folder with its name": ("create-subdir",),
    "Leave it out, or pass load_storage(URL, inline_limit_bytes=...) as the storage": (
        "data-inline-threshold",
    ),
    "Leave it out: how files are written, the storage decides, that of S3 by its option "
    "part_size_bytes": ("write-buffer-size",),
    "Leave it out: checkpoints that are not retained are always deleted in the background; "
    "execution.checkpointing.cleaner.deletes-per-second says how fast": ("cleaner.parallel-mode",),
    "Leave it out: which copies of state are kept on a slot's machine, its backend decides, and "
    "state.changelog.local-copies for logs": ("local-backup.enabled", "local-backup.dirs"),
    _ONE_FILE: (
        "file-merging.enabled",
        "file-merging.across-checkpoint-boundary",
        "file-merging.max-file-size",
        "file-merging.max-space-amplification",
        "file-merging.max-subtasks-per-file",
        "file-merging.pool-blocking",
    ),
    "Leave it out: rows in flight of all channels of a chain in a slot are always in one file": (
        "unaligned.max-subtasks-per-channel-state-file",
    ),
    "Leave it out: timers that are due always fire a bounded number at a time, with barriers in "
    "between": (
        "unaligned.interruptible-timers.enabled",
        "unaligned.interruptible-timers.emit-intermediate-watermarks",
    ),
    "Leave it out: barriers overtake rows of sources, and "
    "execution.checkpointing.source-alignment-timeout says when; between operators they are always "
    "aligned": (
        "unaligned.enabled",
        "unaligned.forced",
        "unaligned.recover-output-on-downstream.enabled",
        "aligned-checkpoint-timeout",
    ),
    "Leave it out: checkpoints are also taken while rows in flight are restored": (
        "during-recovery.enabled",
    ),
}
_REFUSED_OLDER_NAMES = {
    "unaligned.enabled": ("execution.checkpointing.unaligned",),
    "aligned-checkpoint-timeout": ("execution.checkpointing.alignment-timeout",),
    "storage": ("state.checkpoint-storage",),
    "create-subdir": ("state.checkpoints.create-subdir",),
    "data-inline-threshold": (
        "state.storage.fs.memory-threshold",
        "state.backend.fs.memory-threshold",
    ),
    "write-buffer-size": (
        "state.storage.fs.write-buffer-size",
        "state.backend.fs.write-buffer-size",
    ),
    "cleaner.parallel-mode": ("state.checkpoint.cleaner.parallel-mode",),
    "local-backup.enabled": ("state.backend.local-recovery",),
    "local-backup.dirs": ("taskmanager.state.local.root-dirs",),
}

CHECKPOINT_OPTIONS = (
    *(
        Option(
            f"execution.checkpointing.{key}", CHECKPOINTING, field, codec, _OLDER_NAMES.get(key, ())
        )
        for key, field, codec in _ROWS
    ),
    *(
        refused(
            f"execution.checkpointing.{key}", CHECKPOINTING, fix, _REFUSED_OLDER_NAMES.get(key, ())
        )
        for fix, keys in _REFUSED.items()
        for key in keys
    ),
    refused(
        "pipeline.sources.pause-until-first-checkpoint",
        CHECKPOINTING,
        "Leave it out: sources begin when all slots have restored their state",
    ),
)
