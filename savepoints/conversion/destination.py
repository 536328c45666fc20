"""The destination of a conversion: what may be there, how it is begun, resumed and completed."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from enum import Enum

from holdfast.savepoints.conversion.exclusive_run import ExclusiveRun
from holdfast.savepoints.conversion.journal import FOLDER, PLAN_NAME, RUNNING, TASKS, Journal
from holdfast.savepoints.conversion.plan import ConversionPlan
from holdfast.savepoints.finding import StoredSnapshot
from holdfast.storage import (
    CheckpointMetadata,
    Invalid,
    NotFound,
    SavepointFolder,
    StateFolder,
    Taken,
    names,
)
from holdfast.storage.jobs.damage import file_sizes
from holdfast.storage.jobs.savepoint import check_keeps_savepoints
from holdfast.storage.restore_points import is_checkpoint_path

__all__ = ["Destination", "DestinationState", "destination_state"]


class DestinationState(Enum):
    """The state of a conversion at a place."""

    NOTHING = "nothing"
    BEGUN = "begun"
    COMPLETE = "complete"
    """A savepoint is there, of this conversion or of anything else."""


def destination_state(folder: SavepointFolder) -> DestinationState:
    """The current state; raises `Unavailable`."""
    if folder.is_complete():
        return DestinationState.COMPLETE
    return DestinationState.BEGUN if Journal(folder).is_begun() else DestinationState.NOTHING


class Destination:
    """The folder that becomes a savepoint."""

    def __init__(self, folder: SavepointFolder, source: StoredSnapshot) -> None:
        self._folder = folder
        self._source = source
        self.journal = Journal(folder)
        self._exclusive = ExclusiveRun(folder, RUNNING)

    def completed(self, plan: ConversionPlan, *, fresh: bool = False) -> CheckpointMetadata | None:
        """The metadata if this same conversion was completed before; None if there is no savepoint.

        Raises:
            Taken: another savepoint is there; or any savepoint, if `fresh`.
            Corrupt: files of the savepoint are missing or too short; names them.
            Invalid: the destination is inside the folder of the source, or contains it; has the
                name of a checkpoint; or was written by a newer version.
        """
        self._check_found()
        self._check_apart()
        try:
            there = self._folder.read_metadata()
        except NotFound:
            return None
        if fresh:
            raise Taken(
                "the savepoint at the destination is complete",
                where=self._folder.url,
                expected="one that was only begun, with --fresh",
                found=f"a savepoint of job {there.job_id!r}",
                fix="Delete the folder yourself if it is not needed, or name another destination",
            )
        conversion = there.properties.get("conversion")
        if isinstance(conversion, dict) and conversion.get("fingerprint") == plan.fingerprint:
            self._folder.check_files(there)
            self._delete_left(there)
            return there
        raise Taken(
            "there is a savepoint at the destination already",
            where=self._folder.url,
            expected="a place where nothing is",
            found=f"a savepoint of job {there.job_id!r}",
            fix="Name another destination",
        )

    def begin(
        self, plan: ConversionPlan, *, fresh: bool, take_over: bool = False
    ) -> ConversionPlan:
        """Begin or resume here; returns the plan of the first run, which every run follows.

        Raises:
            Taken: something else is there, or another run is active.
            Invalid: another conversion was begun here.
            Unavailable: the storage did not answer.
        """
        check_keeps_savepoints(self._folder.storage)
        self._folder.storage.prepare()
        if not self.journal.is_begun():
            self._check_empty()
            self.journal.begin(plan)
        self._exclusive.enter(take_over=take_over)
        try:
            return self._begun(plan, fresh=fresh)
        except BaseException:
            self.leave()
            raise

    def check(self) -> None:
        """Make sure that no other run has taken over; raises `Fenced` if one has."""
        self._exclusive.check()

    def sizes(self) -> dict[str, int]:
        """The existing files with their lengths."""
        return file_sizes(self._folder)

    def complete(self, metadata: CheckpointMetadata) -> None:
        """Make it a savepoint, then delete all other files of conversions.

        Raises:
            Corrupt: a file of the savepoint is missing.
            Fenced: another run has taken over.
            Taken: another savepoint was completed here meanwhile.
            Unavailable: the outcome is unknown; run the conversion again to see it.
        """
        self._folder.check_files(metadata)
        self.check()
        self._folder.commit(metadata)
        self._delete_others(metadata)
        self._delete_journal()

    def leave(self) -> None:
        """Remove the marker of this run; finished pieces stay."""
        self._exclusive.leave()

    def _begun(self, plan: ConversionPlan, *, fresh: bool) -> ConversionPlan:
        """The plan to follow, read while no other run is active."""
        begun = None if fresh else self.journal.plan()
        is_begun = self.journal.is_begun() if fresh else begun is not None
        if not is_begun or self._folder.is_complete():
            raise Taken(
                "another conversion to this place has just ended",
                where=self._folder.url,
                fix="Run this again to see what is there",
            )
        if begun is None:
            self._delete_begun()
            self.journal.begin_anew(plan)
            return plan
        if begun.fingerprint != plan.fingerprint:
            raise Invalid(
                "another conversion was begun at this destination",
                where=self._folder.url,
                expected=f"the same source, and the same options: {_shown(begun)}",
                found=_shown(plan),
                fix="Run it as it was begun, or pass --fresh to delete what is done of it",
            )
        return begun

    def _check_found(self) -> None:
        """Refuse names by which `find_snapshot` would look for something else than a savepoint."""
        url = self._folder.url.rstrip("/")
        name = url.rpartition("/")[2]
        if is_checkpoint_path(url) or name == names.METADATA_NAME:
            raise Invalid(
                "a savepoint cannot have this name: it would be looked for elsewhere",
                where=self._folder.url,
                expected="a name that is not that of a checkpoint, or of a file in it",
                found=name,
                fix="Name another destination",
            )

    def _check_apart(self) -> None:
        """Refuse a folder inside the source's or around it: unneeded files are deleted here."""
        mine = _root(self._folder)
        theirs = _root(self._source.folder)
        if mine.startswith(theirs):
            raise Invalid(
                "the destination is in the folder of the source",
                where=self._folder.url,
                expected=f"a place outside of {self._source.folder.url}, which is only read",
                fix="Name another destination",
            )
        if theirs.startswith(mine):
            raise Invalid(
                "the source is in the folder of the destination",
                where=self._folder.url,
                expected=f"a place that has not {self._source.folder.url} in it",
                fix="Name another destination",
            )

    def _check_empty(self) -> None:
        there = next(iter(self._folder.storage.list(self._folder.name_of(""))), None)
        if there is not None:
            raise Taken(
                "there is something at the destination already",
                where=self._folder.url,
                expected="a place where nothing is, or a conversion that was begun",
                found=f"files such as {there.name}",
                fix="Name another destination",
            )

    def _delete_left(self, metadata: CheckpointMetadata) -> None:
        """Finish the deletions of the run that has completed it, if that was interrupted."""
        if next(self._noted(), None) is not None:
            self._delete_others(metadata)
            self._delete_journal()

    def _delete_others(self, metadata: CheckpointMetadata) -> None:
        """Delete files of interrupted runs beside the savepoint."""
        self._delete_files_but({*metadata.files(), names.METADATA_NAME})

    def _delete_begun(self) -> None:
        """Delete an abandoned conversion but for its plan, which is replaced.

        Notes of pieces are deleted before their files: after a kill in between, no piece with
        missing files is taken for done.
        """
        folder = self._folder
        tasks = folder.storage.list(folder.name_of(TASKS))
        folder.storage.delete(info.name for info in tasks)
        kept = (folder.name_of(PLAN_NAME), folder.name_of(RUNNING))
        folder.storage.delete(name for name in self._noted() if name not in kept)
        self._delete_files_but(frozenset())

    def _delete_journal(self) -> None:
        """Delete the journal, its plan last: the plan tells a later run that more may be left."""
        plan = self._folder.name_of(PLAN_NAME)
        self._folder.storage.delete(name for name in self._noted() if name != plan)
        self._folder.storage.delete([plan])

    def _delete_files_but(self, needed: AbstractSet[str]) -> None:
        """Delete files that savepoints have, and unfinished writes; files of other origin stay."""
        self._folder.delete_own(lambda file: file not in needed)
        storage, journal = self._folder.storage, self._folder.name_of(f"{FOLDER}/")
        storage.delete(write.name for write in storage.unfinished(journal))

    def _noted(self) -> Iterator[str]:
        """The names in the storage of the journal's files."""
        listed = self._folder.storage.list(self._folder.name_of(f"{FOLDER}/"))
        return (info.name for info in listed)


def _root(folder: StateFolder) -> str:
    """The prefix of the identities of all objects in a folder."""
    root = folder.storage.identity.rstrip("/") + "/"
    return root + (f"{folder.folder}/" if folder.folder else "")


def _shown(plan: ConversionPlan) -> str:
    options = plan.options
    shown = ["canonical" if options.is_canonical else f"for {options.backend}"]
    shown += [
        f"{name.replace('_', ' ')} {getattr(options, name)}"
        for name in ("max_parallelism", "parallelism")
        if getattr(options, name) is not None
    ]
    if options.operators:
        shown.append(f"operators {', '.join(map(repr, options.operators))}")
    return f"{', '.join(shown)} ({plan.fingerprint[:8]})"
