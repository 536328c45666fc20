"""How a job has ended: a document of its last owner, written once, before checkpoints are deleted.

A job with a result must not be started again to finish the same work: a run from the beginning
would do it a second time. Files of every released version are in `tests/golden/`, and stay
readable.

`JobOwner.end` creates the result in the steps of a commit (check, create, check); only then may
checkpoints be deleted. The result that counts is that of the owner with the newest start document,
read by its exact name, so no listing can miss it. A take-over of a job that has ended writes the
result anew under its own name before its start document: there is no moment at which the job has
not ended, and results of older owners, also late ones, are void without a further rule. A take-over
with `reopen` leaves that out, and so begins the job again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.storage.errors import Corrupt
from holdfast.storage.jobs.envelope import seal, unseal

__all__ = ["RESULT_VERSION", "JobResult", "decode_result", "encode_result"]

RESULT_VERSION = 1
_KIND = "job result"


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


def encode_result(result: JobResult) -> bytes:
    """The bytes of the record; the same result gives the same bytes."""
    return seal(_KIND, RESULT_VERSION, result)


def decode_result(data: bytes, *, job_id: str, where: str) -> JobResult:
    """Check and decode a record; `where` names the file in errors.

    Raises:
        Corrupt: damaged, truncated, no record of a result, or another job's.
        Invalid: written in a newer format; names both versions.
    """
    result = unseal(data, kind=_KIND, version=RESULT_VERSION, body=JobResult, where=where)
    if result.job_id != job_id:
        raise Corrupt(
            "the record of a job's result lies in a place that is not its own",
            where=where,
            expected=f"job {job_id!r}",
            found=f"job {result.job_id!r}",
            fix="Move the folder back to where it was written",
        )
    return result
