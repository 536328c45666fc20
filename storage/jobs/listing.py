"""What is in a job's folder, as far as names tell: every object, and every unfinished write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.storage import names
from holdfast.storage.jobs.decisions import Stored

if TYPE_CHECKING:
    from holdfast.storage.jobs.job import JobStorage

__all__ = ["everything_in"]


def everything_in(job: JobStorage) -> Iterator[Stored]:
    """All of it, the unfinished writes last. What comes or goes meanwhile may be missed or shown.

    Raises:
        Unavailable: the storage did not answer.
    """
    prefix = f"{job.folder}/"
    for info in job.storage.list(prefix):
        name = info.name[len(prefix) :]
        yield _describe(name, name, info.size_bytes)
    for write in job.storage.unfinished(prefix):
        yield _describe(write.name[len(prefix) :], write.target[len(prefix) :], write.size_bytes)


def _describe(name: str, target: str, size_bytes: int) -> Stored:
    """What the name of an object says, or the target of an unfinished write."""
    finished = name == target
    owner = names.parse_owner(target)
    if owner is not None:
        is_claim = owner.kind == "claim"
        return Stored(
            name, finished, owner_epoch=owner.epoch, is_claim=is_claim, size_bytes=size_bytes
        )
    found = names.parse_checkpoint_object(target)
    if found is None:
        return Stored(name, finished, size_bytes=size_bytes)
    return Stored(
        name,
        finished,
        found.checkpoint_id,
        is_metadata=found.is_metadata,
        is_shared=found.shared,
        size_bytes=size_bytes,
    )
