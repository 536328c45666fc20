"""The command `holdfast checkpoints clean`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.progress import Progress, TextColumn

from holdfast.runtime.api.display import bytes_for_people
from holdfast.runtime.cli.exit_codes import INTERRUPTED
from holdfast.runtime.cli.output import progress_bar, say, show, show_json, table
from holdfast.runtime.cli.storages import FoundJobs
from holdfast.storage import HoldfastError, JobStorage
from holdfast.storage.jobs.cleaning import (
    Found,
    delete_leftovers,
    delete_orphans,
    find_leftovers,
    find_orphans,
)
from holdfast.storage.jobs.decisions import StoredObject

__all__ = ["Cleaning"]

_OWN_FILES = "files of checkpoints"
_SHARED_FILES = "shared files"
_UNFINISHED = "unfinished writes"
_VOID = "void commit points"
_RECORDS = "records of older owners"
_KINDS = (_OWN_FILES, _SHARED_FILES, _UNFINISHED, _VOID, _RECORDS)


@dataclass
class _Cleaned:
    """Findings in the folder of one job, and how far it was cleaned."""

    job: JobStorage
    found: Found | None = None
    deleted: int = 0
    error: str = ""

    def by_kind(self) -> dict[str, tuple[int, int]]:
        """Count and bytes of unneeded objects of each kind."""
        counts = dict.fromkeys(_KINDS, (0, 0))
        for stored in self.found.unneeded if self.found is not None else ():
            objects, size_bytes = counts[_kind(stored)]
            counts[_kind(stored)] = (objects + 1, size_bytes + stored.size_bytes)
        return {kind: count for kind, count in counts.items() if count[0]}

    def as_document(self) -> dict[str, Any]:
        document: dict[str, Any] = {"job": self.job.job_id, "url": self.job.url}
        if self.found is not None:
            document |= {
                "completed": self.found.completed,
                "has_ended": self.found.has_ended,
                "objects": self.found.objects,
                "size_bytes": self.found.size_bytes,
                "unneeded": {
                    kind: {"objects": objects, "size_bytes": size_bytes}
                    for kind, (objects, size_bytes) in self.by_kind().items()
                },
                "deleted": self.deleted,
            }
        return document | ({"error": self.error} if self.error else {})


@dataclass
class Cleaning:
    """One call of the command."""

    found: FoundJobs
    dry_run: bool
    take_over: bool
    as_json: bool
    _jobs: list[_Cleaned] = field(default_factory=list)

    def run(self) -> int:
        """Clean one job after the other, and show the results; returns the exit code."""
        code = 0
        try:
            for job in self.found.jobs:
                self._jobs.append(_Cleaned(job))
                try:
                    self._clean(self._jobs[-1])
                except HoldfastError as error:
                    self._jobs[-1].error = str(error)
                    code = 1
        except KeyboardInterrupt:
            code = INTERRUPTED
        self._show()
        if code == INTERRUPTED:
            say("stopped; nothing is half done, and the same command continues")
        return code

    def _clean(self, cleaned: _Cleaned) -> None:
        job = cleaned.job
        batches: Iterator[int] = iter(())
        if self.take_over and not self.dry_run:
            owner = job.take_over()
            cleaned.found = find_orphans(job, owner)
            batches = delete_orphans(owner, cleaned.found)
        elif self.take_over:
            cleaned.found = find_orphans(job)
        else:
            cleaned.found = find_leftovers(job)
            batches = delete_leftovers(job, cleaned.found)
        if not self.dry_run:
            self._delete(cleaned, batches, len(cleaned.found.unneeded))

    def _delete(self, cleaned: _Cleaned, batches: Iterator[int], wanted: int) -> None:
        name = TextColumn("{task.description}", markup=False)
        with progress_bar(name, *Progress.get_default_columns()[1:]) as progress:
            task = progress.add_task(f"job {cleaned.job.job_id!r}", total=wanted)
            for deleted in batches:
                cleaned.deleted += deleted
                progress.update(task, completed=cleaned.deleted)

    def _show(self) -> None:
        if self.as_json:
            show_json(
                {
                    "path": self.found.url,
                    "dry_run": self.dry_run,
                    "take_over": self.take_over,
                    "jobs": [cleaned.as_document() for cleaned in self._jobs],
                }
            )
            return
        lines = table(
            "what would be deleted" if self.dry_run else "what was deleted",
            *("job", "what", "#objects", "#size"),
        )
        for cleaned in self._jobs:
            for kind, (objects, size_bytes) in cleaned.by_kind().items():
                lines.add_row(cleaned.job.job_id, kind, str(objects), bytes_for_people(size_bytes))
        if lines.row_count:
            show(lines)
        for cleaned in self._jobs:
            show(self._summary(cleaned))

    def _summary(self, cleaned: _Cleaned) -> str:
        name, found = f"job {cleaned.job.job_id!r}", cleaned.found
        if cleaned.error:
            partly = f" after {cleaned.deleted} objects" if cleaned.deleted else ""
            return f"{name} could not be cleaned{partly}: {cleaned.error}"
        if found is None:
            return f"{name} was not looked at"
        wanted = len(found.unneeded)
        kept = f"{_count(len(found.completed), 'completed checkpoint')} kept"
        if not wanted:
            return f"{name}: nothing to delete, {kept}"
        size = bytes_for_people(sum(stored.size_bytes for stored in found.unneeded))
        if self.dry_run:
            return f"{name}: {_count(wanted, 'object')}, {size}, would be deleted, {kept}"
        left = f" of {wanted}" if cleaned.deleted < wanted else ""
        return f"{name}: {_count(cleaned.deleted, 'object')}{left} deleted, {size}, {kept}"


def _kind(stored: StoredObject) -> str:
    if stored.owner_epoch is not None:
        return _RECORDS
    if not stored.finished:
        return _UNFINISHED
    if stored.is_metadata:
        return _VOID
    return _SHARED_FILES if stored.is_shared else _OWN_FILES


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
