"""`_metadata`: all facts about one completed checkpoint, in one document.

The shape is general on purpose: an operator, a source or any higher room adds parts of a `kind` of
its own (`StateSnapshot`), without a change of format. The version counts changes of the shape, and
parts that a reader must not pass over: version 2 has rows in flight, which a restore by version 1
would lose without a word. A checkpoint without them is of version 1 still, so that older versions
of Holdfast go on reading it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.storage.jobs.envelope import DocumentType
from holdfast.storage.segments.handles import FileHandle, Handle, StateSnapshot

__all__ = [
    "CLAIMED_CHECKPOINTS",
    "CLAIMED_SAVEPOINTS",
    "IN_FLIGHT_KIND",
    "METADATA",
    "PROPERTIES_OF_THE_JOB",
    "SAVED_AT",
    "CheckpointMetadata",
    "OperatorState",
    "least_sizes",
]

SAVED_AT = "savepoint"
"""Property of a checkpoint that stands for the savepoint with which its job was to end: the URL of
that. The checkpoint itself has no state."""
CLAIMED_CHECKPOINTS = "claimed"
CLAIMED_SAVEPOINTS = "claimed_savepoints"
"""Properties that list what the job has claimed from elsewhere, and will delete."""
IN_FLIGHT_KIND = "holdfast.in-flight-rows/1"
"""The kind of a part that holds rows which were on the way between operators: not processed when
the checkpoint cut, and behind the position of their source."""
PROPERTIES_OF_THE_JOB = (SAVED_AT, CLAIMED_CHECKPOINTS, CLAIMED_SAVEPOINTS)
"""Properties that only the job's own folder needs: a savepoint made of a checkpoint has none."""


class OperatorState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of one operator in a checkpoint, over all its slots."""

    parallelism: int
    max_parallelism: int
    parts: tuple[StateSnapshot, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The number of bytes that the operator's state takes in storage."""
        return sum(part.size_bytes for part in self.parts)


class CheckpointMetadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One completed checkpoint.

    `kind` is `checkpoint`, or another word by a later room (`savepoint`). `epoch` and `owner` name
    the owner that committed it. `operators` and `sources` are by uid. `parts` holds what belongs to
    the job as a whole, `properties` plain facts about it.
    """

    job_id: str
    checkpoint_id: int
    kind: str = "checkpoint"
    epoch: int = 0
    owner: str = ""
    triggered_ms: int
    completed_ms: int
    operators: dict[str, OperatorState] = {}
    sources: dict[str, StateSnapshot] = {}
    parts: dict[str, StateSnapshot] = {}
    properties: dict[str, Any] = {}

    @property
    def size_bytes(self) -> int:
        """The number of bytes that the checkpoint takes in storage, without `_metadata`."""
        return sum(handle.size_bytes for handle in self.handles())

    @property
    def begun_from(self) -> int | None:
        """The lowest number of a file that a writer of it has begun, and may refer to later.

        None if no writer begins files before the checkpoint that refers to them.
        `holdfast.storage.jobs.decisions` says what follows for deleting files.
        """
        said = (part.begun_from for part in self.all_parts())
        return min((number for number in said if number is not None), default=None)

    @property
    def in_flight(self) -> tuple[StateSnapshot, ...]:
        """Rows that were on the way; a restore has operators process them before all others."""
        return tuple(part for part in self.parts.values() if part.kind == IN_FLIGHT_KIND)

    def all_parts(self) -> Iterator[StateSnapshot]:
        for operator in self.operators.values():
            yield from operator.parts
        yield from self.sources.values()
        yield from self.parts.values()

    def handles(self) -> Iterator[Handle]:
        for part in self.all_parts():
            yield from part.handles.values()

    def files(self) -> frozenset[str]:
        """Every file that the checkpoint needs, named within the job's folder."""
        return frozenset().union(*(part.files() for part in self.all_parts()))


def least_sizes(metadata: CheckpointMetadata) -> dict[str, int]:
    """The files that a checkpoint needs, with the least length that each must have."""
    sizes: dict[str, int] = {}
    for handle in metadata.handles():
        if isinstance(handle, FileHandle):
            sizes[handle.file] = max(sizes.get(handle.file, 0), handle.offset + handle.length)
    return sizes


def _least_version(metadata: CheckpointMetadata) -> int:
    return 2 if metadata.in_flight else 1


METADATA = DocumentType("checkpoint", 2, CheckpointMetadata, _least_version)
