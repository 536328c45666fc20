"""The records that an owner leaves: its claim, its start, the checkpoint restored, the job's end.

How the first three are used is said in `holdfast.storage.jobs.decisions`.

The start document has the owner's token in its name. If the folder was emptied and the epoch
claimed anew, the older owner finds that its own document is gone, and stops.

A job with a result must not be started again to finish the same work: a run from the beginning
would do it a second time. `JobOwner.end` creates the result in the steps of a commit (check,
create, check); only then may checkpoints be deleted. The result that counts is that of the owner
with the newest start document, read by its exact name, so no listing can miss it. A take-over of a
job that has ended writes the result anew under its own name before its start document: there is no
moment at which the job has not ended, and results of older owners, also late ones, are void without
a further rule. A take-over with `reopen` leaves that out, and so begins the job again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.storage.jobs.envelope import DocumentType
from holdfast.storage.names import check_file

__all__ = ["CLAIM", "HELD", "RESULT", "START", "Claim", "Held", "JobResult", "Start"]


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document by which an owner claims a job. That it exists is what counts."""

    epoch: int
    owner: str
    claimed_ms: int


class Start(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The checkpoints that an owner found when it took over; the newest one decides for readers."""

    epoch: int
    owner: str
    accepted: tuple[int, ...] = ()
    """The checkpoints of earlier owners that count."""


class Held(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which checkpoint an owner has restored, and its files: they stay, whatever becomes of it."""

    epoch: int
    owner: str
    checkpoint_id: int
    files: tuple[str, ...]

    def __post_init__(self) -> None:
        """They are deleted one day: none may lead out of the folder."""
        for file in self.files:
            check_file(file)


class JobResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The end of a job.

    `status` is a word of the runtime (`finished`, `cancelled`). `epoch` and `owner` name the owner
    that ended it, also where a later owner keeps the record. `properties` has plain facts about the
    run.
    """

    job_id: str
    status: str
    ended_ms: int
    epoch: int = 0
    owner: str = ""
    holdfast_version: str = ""
    properties: dict[str, Any] = {}


CLAIM = DocumentType("owner claim", 1, Claim)
START = DocumentType("owner start", 1, Start)
HELD = DocumentType("owner hold", 1, Held)
RESULT = DocumentType("job result", 1, JobResult)
