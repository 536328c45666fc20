"""Finding a checkpoint or a savepoint by its path or URL."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from holdfast.backends.interface import OpenBackend, usual_backend
from holdfast.backends.operator_state.snapshots import OPERATOR_KINDS
from holdfast.backends.snapshots.restores import KEYED_KINDS
from holdfast.savepoints.reading.readers import KeyedReader, OperatorReader
from holdfast.storage import (
    CheckpointMetadata,
    HoldfastError,
    Invalid,
    NotFound,
    SavepointFolder,
    StateFolder,
    load_storage,
    names,
)
from holdfast.storage.jobs.cleaning import is_job_folder, jobs_in
from holdfast.storage.jobs.job import job_in
from holdfast.storage.registry import OpenStorage, whole_url
from holdfast.storage.restore_points import RestorePoint, checkpoint_at

__all__ = ["KEYED", "OPERATOR", "StoredSnapshot", "check_kind", "find_snapshot", "kind_of"]

KEYED, OPERATOR = "keyed", "operator"
"""The kinds of state, as callers name them: with keys and without."""


def check_kind(kind: str | None) -> None:
    """Make sure that this is a kind of state, or None; raises `Invalid` if not."""
    if kind not in (None, KEYED, OPERATOR):
        raise Invalid(
            "there is no such kind of state", expected=f"{KEYED} or {OPERATOR}", found=kind
        )


def kind_of(
    name: str, kind: str | None, there: Mapping[str, Collection[str]], *, uid: str, where: str
) -> str:
    """The kind of the state of this name: the given one, or the only one that fits.

    `there` has the names of the operator's states by kind.

    Raises:
        NotFound: there is no state of this name and kind; names the known ones.
        Invalid: a state with keys and one without have this name, or there is no such kind.
    """
    check_kind(kind)
    found = [each for each in (KEYED, OPERATOR) if kind in (None, each) and name in there[each]]
    if not found:
        known = [*there[KEYED], *(f"{each} (without keys)" for each in there[OPERATOR])]
        raise NotFound(
            f"operator {uid!r} has no state {name!r}" + ("" if kind is None else f", {kind}"),
            where=where,
            expected=", ".join(dict.fromkeys(known)) or "none at all",
            found=name,
        )
    if len(found) > 1:
        raise Invalid(
            f"operator {uid!r} has two states {name!r}, with keys and without",
            where=where,
            fix=f'Say kind="{KEYED}" or kind="{OPERATOR}"',
        )
    return found[0]


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A completed checkpoint, or a savepoint, of any backend. Light and picklable."""

    point: RestorePoint
    path: str
    """The path or URL as the caller gave it; a path is made absolute."""

    @property
    def metadata(self) -> CheckpointMetadata:
        """The content of its `_metadata`."""
        return self.point.metadata

    @property
    def folder(self) -> StateFolder:
        """The folder that its handles are relative to."""
        return self.point.folder

    @property
    def uids(self) -> list[str]:
        """The uids of operators with state, sorted."""
        return sorted(uid for uid, left in self.metadata.operators.items() if left.parts)

    def keyed(self, uid: str, open_backend: OpenBackend = usual_backend) -> KeyedReader | None:
        """The keyed state of an operator; None if it has none.

        Raises:
            NotFound: there is no such operator; names the known ones.
            Corrupt: the attributes of a part are damaged.
            Invalid: a part is of a kind that this version does not know.
        """
        self.check_uid(uid)
        self.check_kinds(uid)
        parts = self.metadata.operators[uid].parts
        if not any(part.kind in KEYED_KINDS for part in parts):
            return None
        return KeyedReader(uid, parts, self.folder, open_backend)

    def unkeyed(self, uid: str) -> OperatorReader:
        """The state without keys of an operator; raises as `keyed`."""
        self.check_uid(uid)
        self.check_kinds(uid)
        return OperatorReader(uid, self.metadata.operators[uid].parts, self.folder)

    def check_kinds(self, uid: str) -> None:
        """Make sure that this version can read all state of an operator, so that none is skipped.

        Raises:
            Invalid: a part is of another kind, such as one of a newer version.
        """
        kinds = {part.kind for part in self.metadata.operators[uid].parts}
        known = {*KEYED_KINDS, *OPERATOR_KINDS}
        if not kinds <= known:
            raise Invalid(
                f"operator {uid!r} has state of a kind that is not known here",
                where=str(self.point),
                expected=", ".join(sorted(known)),
                found=", ".join(sorted(kinds - known)),
                fix="Use the version of Holdfast that has written it, or a newer one",
            )

    def check_uid(self, uid: str) -> None:
        """Make sure that the operator exists; raises `NotFound` if not."""
        if uid not in self.metadata.operators:
            raise NotFound(
                f"there is no operator {uid!r}",
                where=str(self.point),
                expected=", ".join(map(repr, sorted(self.metadata.operators))) or "none at all",
                found=repr(uid),
            )


def find_snapshot(
    path: str, open_storage: OpenStorage = load_storage, *, looks_for_files: bool = True
) -> StoredSnapshot:
    """The snapshot at a path or URL: the folder of a checkpoint or a savepoint, or its `_metadata`.

    Checks that the files of a savepoint exist, without reading them; a caller that will read all
    of them anyway passes `looks_for_files=False`.

    Raises:
        NotFound: there is none, or it was never completed; the message says which.
        Corrupt: it is damaged, or files of it are missing; names them.
        Invalid: it was written in a newer format, or the storage cannot be opened.
        Unavailable: the storage did not answer.
    """
    url = whole_url(path).rstrip("/").removesuffix("/_metadata")
    if os.path.isfile(url):  # which does not raise, whatever the path is
        raise NotFound(
            "this is a file, and not the folder of a savepoint or a checkpoint",
            where=url,
            expected="a folder with a file `_metadata`",
        )
    point = checkpoint_at(url, open_storage, open_storage)
    if point is None:
        folder = SavepointFolder(open_storage(url), "")
        try:
            metadata = folder.load() if looks_for_files else folder.read_metadata()
            point = RestorePoint(metadata, folder)
        except NotFound as error:
            raise _of_jobs(folder) or error from None
    return StoredSnapshot(point, url)


def _of_jobs(folder: SavepointFolder) -> HoldfastError | None:
    """The error for the folder of a job, or of several jobs; None if it is neither."""
    storage = folder.storage
    if is_job_folder(storage):
        root, _, name = storage.url.rstrip("/").rpartition("/")
        job = storage.at(root) if root else None
        completed = () if job is None else job_in(job, name).completed()
        newest = f", such as {names.checkpoint_folder(completed[-1])}" if completed else ""
        return NotFound(
            "this is the folder of a job, and not of one of its checkpoints",
            where=storage.url,
            expected=f"a folder in it{newest}",
            fix="`holdfast checkpoints` shows those that there are",
        )
    jobs = jobs_in(storage)
    if jobs:
        return NotFound(
            "this is the folder of jobs, and not of a checkpoint",
            where=storage.url,
            expected="a checkpoint of one of them: …/chk-00000000000000000042",
            found=", ".join(map(repr, jobs[:3])),
            fix="`holdfast checkpoints` shows those that there are",
        )
    return None
