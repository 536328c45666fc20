"""Which checkpoints are whole, judged by names and lengths, and what to restore instead of others.

No state is read: `holdfast savepoint validate` does that.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from holdfast.storage import names
from holdfast.storage.errors import Corrupt, HoldfastError, NotFound
from holdfast.storage.jobs.folder import JobFolder
from holdfast.storage.jobs.metadata import CheckpointMetadata, least_sizes
from holdfast.storage.segments.reader import StateFolder

__all__ = ["checkpoint_url", "file_sizes", "missing_files", "newest_whole_before", "restore_advice"]

_SHOWN = 3


def file_sizes(folder: StateFolder) -> dict[str, int]:
    """The files that are in a folder, with their lengths.

    Raises:
        Unavailable: the storage did not answer.
    """
    prefix = folder.name_of("")
    return {info.name[len(prefix) :]: info.size_bytes for info in folder.storage.list(prefix)}


def missing_files(metadata: CheckpointMetadata, sizes: Mapping[str, int]) -> str:
    """The files that are missing or too short, as text; empty if none is."""
    wanted = least_sizes(metadata)
    missing = sorted(file for file in wanted if file not in sizes)
    short = [
        f"{file} ({sizes[file]} of {end} bytes)"
        for file, end in sorted(wanted.items())
        if sizes.get(file, end) < end
    ]
    told = []
    for found, what in ((missing, "missing"), (short, "too short")):
        if found:
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            told.append(f"{', '.join(found[:_SHOWN])}{more} {what}")
    return "; ".join(told)


def checkpoint_url(job: JobFolder, checkpoint_id: int) -> str:
    """The path or URL that restores a checkpoint."""
    return f"{job.url}/{names.checkpoint_folder(checkpoint_id)}"


def newest_whole_before(job: JobFolder, checkpoint_id: int) -> int | None:
    """The newest whole checkpoint below this number; None if there is none.

    Raises:
        HoldfastError: the records of the job cannot be read, or the storage does not answer.
    """
    sizes = file_sizes(job)
    for number in reversed(job.completed()):
        if number < checkpoint_id:
            try:
                if not missing_files(job.read_metadata(number), sizes):
                    return number
            except (Corrupt, NotFound):
                continue
    return None


def restore_advice(job: JobFolder, checkpoint_id: int) -> str:
    """Advice, as a sentence: what to restore instead of a damaged checkpoint."""
    try:
        older = newest_whole_before(job, checkpoint_id)
    except HoldfastError:
        return f"holdfast checkpoints {shlex.quote(job.url)} shows which others there are"
    if older is None:
        return "There is no older checkpoint that is whole: bring the files back from a copy"
    url = checkpoint_url(job, older)
    return (
        f'Restore checkpoint {older}, the newest older one that is whole: restore="{url}", or '
        f"holdfast run -s {shlex.quote(url)}"
    )
