"""Positions of sources in checkpoints: which kinds there are, and how they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from holdfast.storage import (
    Corrupt,
    Handle,
    Invalid,
    JobStorage,
    SavepointFolder,
    StateSnapshot,
)

__all__ = [
    "FRAME_KIND",
    "LOG_PARTS",
    "QUERY_KIND",
    "FramePosition",
    "LogKeeper",
    "QueryPosition",
    "read_position",
]

LOG_PARTS = ("metadata", "offsets", "commits", "sources")
"""What the names of those files of a query's log begin with that checkpoints keep."""
QUERY_KIND = "holdfast.spark-query/1"
FRAME_KIND = "holdfast.spark-frame/1"


class QueryPosition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A streaming query after a batch; None before the first. The files of its log are handles."""

    batch: int | None
    has_ended: bool = False


class FramePosition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A DataFrame of which so many splits are done. `fingerprint` says how it was split."""

    splits_done: int
    splits: int
    fingerprint: str
    has_ended: bool = False


_Position = QueryPosition | FramePosition


def read_position(snapshot: StateSnapshot, kind: str, uid: str) -> _Position:
    """The position in a checkpoint.

    Raises:
        Invalid: it is that of a source of another kind.
        Corrupt: it has not the shape of its kind.
    """
    shape: type[_Position] = QueryPosition if kind == QUERY_KIND else FramePosition
    if snapshot.kind != kind:
        raise Invalid(
            f"source {uid!r} was of another kind when the checkpoint was taken",
            expected=snapshot.kind,
            found=kind,
            fix="Give a source of another kind another uid",
        )
    try:
        position: _Position = msgspec.convert(snapshot.attributes, shape)
    except msgspec.ValidationError as error:
        raise Corrupt(
            f"the position of source {uid!r} has not the shape of its kind",
            expected=kind,
            found=str(error),
        ) from error
    if kind == QUERY_KIND:
        _check_log_names(snapshot, uid)
    return position


def _check_log_names(snapshot: StateSnapshot, uid: str) -> None:
    # They become files of a folder: none may lead out of it.
    for name in snapshot.handles:
        parts = name.split("/")
        if parts[0] not in LOG_PARTS or any(
            part.strip(".") == "" or "\\" in part or "\0" in part for part in parts
        ):
            raise Corrupt(
                f"the position of source {uid!r} has a file that no log of a query has",
                where=f"source {uid!r}",
                expected=f"names in {', '.join(LOG_PARTS)}",
                found=repr(name[:200]),
                fix="Restore another checkpoint",
            )


@dataclass
class LogKeeper:
    """Stores the files of a query's log, which never change, so that checkpoints share them.

    A checkpoint refers to files of the newest complete one and writes all others, including those
    that a checkpoint wrote which is not complete, since it may never be. Used by one thread at a
    time.
    """

    uid: str
    job: JobStorage
    base: dict[str, Handle] = field(default_factory=dict)
    """Files of the checkpoint that the next one builds on: at first of the restored one, if it is
    in the job's own folder."""
    _kept: dict[int, dict[str, Handle]] = field(default_factory=dict)
    """Files of checkpoints that may still complete, by number."""

    def keep(
        self,
        checkpoint_id: int,
        files: Mapping[str, bytes],
        *,
        completed: int | None,
        savepoint: SavepointFolder | None = None,
    ) -> dict[str, Handle]:
        """Handles of all these files; only those are written that the completed one does not have.

        For a savepoint all of them are, into its folder; any thread may ask for that.

        Raises:
            Unavailable: the storage failed.
        """
        if savepoint is not None:
            with savepoint.segments(checkpoint_id, self._label) as writer:
                return {name: writer.add(data) for name, data in files.items()}
        self._build_on(completed)
        handles = {name: self.base[name] for name in files if name in self.base}
        new = {name: data for name, data in files.items() if name not in handles}
        if new:
            with self.job.shared_segments(checkpoint_id, self._label) as writer:
                written = {name: writer.add(data) for name, data in new.items()}
            handles |= written
        self._kept[checkpoint_id] = handles
        return handles

    @property
    def _label(self) -> str:
        return f"source-{self.uid}"

    def _build_on(self, completed: int | None) -> None:
        if completed is not None:
            self.base = self._kept.get(completed, self.base)
            self._kept = {number: its for number, its in self._kept.items() if number > completed}
