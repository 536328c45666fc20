"""A savepoint's folder: it holds all that the savepoint needs, under names free of its place.

So it can be moved and copied, and belongs to no job: no owner, no retention, no file that anything
else refers to. `_metadata` is created last, and is its commit point; without it there is no
savepoint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from holdfast.storage import names
from holdfast.storage.errors import Corrupt, HoldfastError, Invalid, NotFound, Taken
from holdfast.storage.interface import ObjectStorage
from holdfast.storage.jobs.damage import file_sizes, missing_files
from holdfast.storage.jobs.decisions import Created, judge_create
from holdfast.storage.jobs.metadata import METADATA, CheckpointMetadata
from holdfast.storage.segments.reader import StateFolder
from holdfast.storage.segments.writer import SegmentWriter

__all__ = ["SAVEPOINT", "SavepointFolder", "check_keeps_savepoints"]

SAVEPOINT = "savepoint"
"""The kind that the metadata of a savepoint says."""


class SavepointFolder(StateFolder):
    """A savepoint, or one that is being written. Light, picklable, safe to use from any thread.

    `SavepointFolder(storage, "")` is the one whose folder is the root of the storage. As a target
    of snapshots it has only files of its own: nothing outside refers to them.
    """

    @classmethod
    def begin(cls, storage: ObjectStorage, job_id: str) -> Self:
        """A folder of a new name in a directory, for a savepoint of this job. Writes nothing in it.

        Raises:
            Invalid: the directory cannot be written to as it is set up, or processes do not share
                it, or it keeps no files.
            Unavailable: the storage did not answer.
        """
        check_keeps_savepoints(storage)
        storage.prepare()
        return cls(storage, names.savepoint_folder(job_id, storage.entropy.token()))

    def segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> SegmentWriter:
        """A writer for a file in which a slot puts its part; the first few bytes are inline."""
        return self._writer(label, None, compression)

    def shared_segments(
        self, checkpoint_id: int, label: str = "slot", *, compression: str = ""
    ) -> SegmentWriter:
        """A writer for a file of its own, never inline. A savepoint shares no file."""
        return self._writer(label, 0, compression)

    log_segments = segments

    def table_file(self, checkpoint_id: int, path: str) -> SegmentWriter:
        """A writer for a file of this name within the folder, such as of `names.table_file`.

        One segment that is streamed into it is the whole file, with nothing around it.

        Raises:
            Invalid: the name is not legal.
        """
        del checkpoint_id
        names.check_name(path)
        return SegmentWriter(self.storage, self.folder, path, inline_limit_bytes=0)

    def commit(self, metadata: CheckpointMetadata) -> None:
        """Make it a savepoint: atomically, once, for good.

        Every file that it refers to must have been closed before. After a call that raised
        `Unavailable` the savepoint may exist; calling again with the same argument tells.

        Raises:
            Invalid: the metadata is not that of a savepoint.
            Taken: there is another savepoint in the folder.
            Unavailable: it is not known whether it was committed.
        """
        if metadata.kind != SAVEPOINT:
            raise Invalid(
                "the metadata to commit is not that of a savepoint",
                where=self.url,
                expected=f"kind {SAVEPOINT!r}",
                found=f"kind {metadata.kind!r}",
            )
        mine = METADATA.seal(metadata)
        existing = self.storage.create(self.name_of(names.METADATA_NAME), mine)
        if judge_create(mine, existing) is Created.TAKEN:
            raise Taken("there is another savepoint in this folder", where=self.url)

    def read_metadata(self) -> CheckpointMetadata:
        """The metadata of the savepoint, whether or not its files exist.

        Raises:
            NotFound: there is no savepoint, or one that was never completed; says which.
            Invalid: it is a checkpoint, or was written in a newer format.
            Corrupt: `_metadata` is damaged; names it.
            Unavailable: the storage did not answer.
        """
        name = names.METADATA_NAME
        data = self.storage.read_if_there(self.name_of(name))
        if data is None:
            raise self._none_here()
        metadata = METADATA.unseal(data, where=f"{self.url}/{name}")
        if metadata.kind != SAVEPOINT:
            raise Invalid(
                f"this is a {metadata.kind}, and not a savepoint",
                where=self.url,
                expected="the folder of a savepoint, which has all that it needs",
                found=f"{metadata.kind} {metadata.checkpoint_id} of job {metadata.job_id!r}, which "
                "may need files beside its folder",
                fix="Name it in the folder of its job: …/job/chk-00000000000000000042",
            )
        return metadata

    def is_complete(self) -> bool:
        """Whether `_metadata` exists, damaged or not; raises `Unavailable`."""
        return self.storage.read_if_there(self.name_of(names.METADATA_NAME)) is not None

    def load(self) -> CheckpointMetadata:
        """The metadata of the savepoint, after a check that its files exist.

        Raises:
            Corrupt: `_metadata` is damaged, or a file is missing or too short; names it.
            NotFound, Invalid, Unavailable: as `read_metadata`.
        """
        metadata = self.read_metadata()
        self.check_files(metadata)
        return metadata

    def check_files(self, metadata: CheckpointMetadata) -> None:
        """Check that all files that the savepoint names are here, in their length.

        Raises:
            Corrupt: one is missing or too short; names it.
            Unavailable: the storage did not answer.
        """
        lost = missing_files(metadata, file_sizes(self))
        if lost:
            raise Corrupt(
                "files of a savepoint are missing or too short",
                where=self.url,
                expected=f"{len(metadata.files())} files beside `_metadata`",
                found=lost,
                fix="Move or copy the whole folder, or bring the files back from a copy",
            )

    def discard(self) -> None:
        """Delete everything written for it, the commit point first, and unfinished writes too.

        For a savepoint that was given up while it was written. Objects whose names no savepoint
        uses were put there by other programs, and stay.

        Raises:
            Unavailable: not all could be deleted; calling again is safe.
        """
        if not self.folder:
            raise Invalid("the root of a storage is not deleted as a savepoint", where=self.url)
        self.storage.delete([self.name_of(names.METADATA_NAME)])
        self.delete_own(lambda _: True)

    def delete_own(self, is_unneeded: Callable[[str], bool]) -> None:
        """Delete files that pass `is_unneeded`, and unfinished writes; only names of savepoints.

        Raises as `discard` does.
        """
        prefix = self.name_of("")
        listed = (
            info.name
            for info in self.storage.list(prefix)
            if names.is_of_savepoint(info.name[len(prefix) :])
            and is_unneeded(info.name[len(prefix) :])
        )
        self.storage.delete(listed)
        self.storage.delete(
            write.name
            for write in self.storage.unfinished(prefix)
            if names.is_of_savepoint(write.target[len(prefix) :])
        )

    def delete_some(self, metadata: CheckpointMetadata, done: int, most: int) -> int:
        """Delete files of a savepoint after the first `done`; answers how many, 0 at the end.

        Only the files that belong to it, and its commit point last, so that an interrupted deletion
        knows what is left. The savepoint is unusable from the first file on, and opening it says
        so.

        Raises:
            Unavailable: not all could be deleted; calling again is safe.
        """
        ordered = [*sorted(metadata.files()), names.METADATA_NAME]
        batch = ordered[done : done + most]
        self.storage.delete([self.name_of(file) for file in batch])
        return len(batch)

    def _writer(
        self, label: str, inline_limit_bytes: int | None, compression: str
    ) -> SegmentWriter:
        file = names.savepoint_file(label, self.storage.entropy.token())
        return SegmentWriter(
            self.storage,
            self.folder,
            file,
            inline_limit_bytes=inline_limit_bytes,
            compression=compression,
        )

    def _none_here(self) -> HoldfastError:
        some = next(self.storage.list(self.name_of("")), None)
        if some is None:
            return NotFound(
                "there is no savepoint",
                where=self.url,
                expected="a folder with a file `_metadata`",
                found="nothing",
                fix="Check the path, and whether the savepoint was moved",
            )
        return NotFound(
            "there is no whole savepoint",
            where=self.url,
            expected="a folder with a file `_metadata`, which is written last",
            found=f"no `_metadata`, and files such as {some.name.removeprefix(self.name_of(''))}",
            fix="If this is a savepoint's folder, it was never completed: take another savepoint",
        )


def check_keeps_savepoints(storage: ObjectStorage) -> None:
    """Refuse a storage that cannot keep one.

    Raises:
        Invalid: processes do not share it, or it keeps no files.
    """
    can = storage.capabilities
    if not (can.keeps_segment_files and can.shared_between_processes):
        raise Invalid(
            "a savepoint cannot be kept here: it would end with this process",
            where=storage.url,
            expected="a directory for files, such as file://, hdfs:// or s3://",
            found="a storage in the memory of one process",
            fix="Name another directory for savepoints",
        )
