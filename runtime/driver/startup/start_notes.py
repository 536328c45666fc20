"""What is said of a job when it starts: in the log `holdfast`, and in its handle."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.storage import Capabilities

__all__ = ["StartNotes", "checkpointing_note", "storage_warnings"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartNotes:
    """Sentences, each of which goes to the log in any case: also without a terminal."""

    overridden: str = ""
    """What the program says and does not count; empty if all counts."""
    facts: tuple[str, ...] = ()
    """From where the job goes on."""
    missing: tuple[str, ...] = ()
    """Which guarantees it does not have."""

    @property
    def all(self) -> tuple[str, ...]:
        """In the order in which they are said."""
        return (*filter(None, (self.overridden,)), *self.facts, *self.missing)

    def log(self, job_id: str, start: str) -> None:
        """Say them; `start` is what the job begins with, which is no note."""
        _logger.info("job %r starts: %s", job_id, start)
        if self.overridden:
            _logger.warning("job %r: %s", job_id, self.overridden)
        for fact in self.facts:
            _logger.info("job %r: %s", job_id, fact)
        for each in self.missing:
            _logger.warning("job %r: %s", job_id, each)


def checkpointing_note(url: str, config: CheckpointConfig) -> str:
    """Where checkpoints are, and how often."""
    if config.interval_ms is not None:
        return f"a checkpoint every {config.interval_ms / 1000:g} s at {url}"
    if config.final_checkpoint:
        return f"no checkpoints while it runs (no interval is set), a final one at {url}"
    return f"no checkpoints but those that are asked for, at {url}"


def storage_warnings(url: str, capabilities: Capabilities) -> tuple[str, ...]:
    """A sentence for each guarantee of a storage that is not proven; none where all are."""
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
