"""What is said of a job when it starts: notes and warnings, or that it would lose rows.

Notes go to the log `holdfast` and to the job's handle.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.operators.sink_operator import SinkSpec
from holdfast.runtime.planning.job_plan import JobPlan
from holdfast.storage import Capabilities, Invalid

__all__ = [
    "StartNotes",
    "check_commits",
    "checkpointing_note",
    "mode_warnings",
    "storage_warnings",
]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartNotes:
    """Notes about a start. Each is logged, with or without a terminal."""

    overridden: str = ""
    """Arguments of the program that an option overrides; empty if there are none."""
    facts: tuple[str, ...] = ()
    """What the job was restored from, and what was claimed."""
    missing: tuple[str, ...] = ()
    """Guarantees that the job lacks."""

    @property
    def all(self) -> tuple[str, ...]:
        """All notes, in the order in which they are logged."""
        return (*filter(None, (self.overridden,)), *self.facts, *self.missing)

    def log(self, job_id: str, start: str) -> None:
        """Log all notes, after the line `start` about the start itself."""
        _logger.info("job %r starts: %s", job_id, start)
        for note in self.all:
            level = logging.INFO if note in self.facts else logging.WARNING
            _logger.log(level, "job %r: %s", job_id, note)


def checkpointing_note(url: str, config: CheckpointConfig) -> str:
    """Where checkpoints are kept, and how often they are taken."""
    if config.interval_ms is not None:
        return f"a checkpoint every {config.interval_ms / 1000:g} s at {url}"
    if config.final_checkpoint:
        return f"no checkpoints while it runs (no interval is set), a final one at {url}"
    return f"no checkpoints but those that are asked for, at {url}"


def mode_warnings(config: CheckpointConfig) -> tuple[str, ...]:
    """Warnings about guarantees that the mode of checkpoints lacks, a sentence each."""
    if config.mode == "exactly-once":
        return ()
    lacks = "after a restore rows may count again, in state and in what sinks commit"
    return (f"checkpoints are at-least-once: {lacks}",)


def storage_warnings(url: str, capabilities: Capabilities) -> tuple[str, ...]:
    """Warnings about guarantees that the checkpoint storage lacks, a sentence each."""
    missing = []
    if not capabilities.shared_between_processes:
        missing.append(
            f"checkpoints are in the driver's memory ({url}), and end with it: the job cannot go "
            'on after that. Pass storage="/a/folder", or another place'
        )
    elif not capabilities.durable:
        missing.append(f"checkpoints at {url} may not survive the loss of power")
    if not capabilities.atomic_create:
        missing.append(
            f"of two drivers of this job both could commit at {url}, which cannot decide between "
            "them: let there never be two"
        )
    return tuple(missing)


def check_commits(plan: JobPlan, endless: Sequence[str], config: CheckpointConfig) -> None:
    """Refuse a job whose sinks would not commit all rows; `endless` are its sources without end.

    Raises:
        Invalid: there is a sink, and no checkpoint after which it would commit the rows.
    """
    operators = [spec for chain in plan.chains for spec in chain.operators]
    sinks = [spec.uid for spec in operators if isinstance(spec, SinkSpec)]
    if not sinks:
        return
    if endless and config.interval is None:
        raise Invalid(
            f"sink {sinks[0]!r} would never commit a row",
            where=f"source {endless[0]!r} does not end, and no checkpoints are taken",
            expected="checkpoints: sinks commit when one is complete",
            fix='Pass checkpointing="5s", or another interval, to the environment',
        )
    if not endless and not config.final_checkpoint:
        raise Invalid(
            f"sink {sinks[0]!r} would lose the last rows",
            where="all sources end, and no checkpoint is taken after that",
            expected="a final checkpoint: sinks commit when one is complete",
            found="final_checkpoint=False",
            fix="Leave final_checkpoint out (on a command line, "
            "execution.checkpointing.checkpoints-after-tasks-finish)",
        )
