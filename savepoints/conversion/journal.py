"""The journal of a conversion in its destination, from which another run resumes.

    <destination>/_conversion/plan            the plan; created once
    <destination>/_conversion/task-<number>   the result of a finished piece
    <destination>/_conversion/running         the marker of the active run: see `exclusive_run`

The destination has no `_metadata` until the conversion is complete, so it is no savepoint before.
The journal is deleted afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from holdfast.backends.snapshots.neutral import TableInfo
from holdfast.savepoints.conversion.plan import ConversionPlan
from holdfast.savepoints.reading.row_sums import RowSums
from holdfast.storage import (
    Corrupt,
    Handle,
    Invalid,
    SavepointFolder,
    StateSnapshot,
    Taken,
)
from holdfast.storage.jobs.envelope import DocumentType

__all__ = [
    "FOLDER",
    "PLAN_NAME",
    "RUNNING",
    "TASKS",
    "Journal",
    "PieceResult",
    "Spilled",
    "TableSums",
    "added_up",
]

FOLDER = "_conversion"
PLAN_NAME = f"{FOLDER}/plan"
RUNNING = f"{FOLDER}/running"
TASKS = f"{FOLDER}/task-"
"""Prefix of the names of results."""
_Body = TypeVar("_Body")


class TableSums(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The checksum of the rows that were read of a table; `info` is without segments."""

    info: TableInfo
    sums: RowSums


class Spilled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows put aside for a piece; piece and table are numbers."""

    piece: int
    table: int
    handles: tuple[Handle, ...]


class PieceResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of a piece: the checksums of rows that were read, and what was written."""

    read: tuple[TableSums, ...] = ()
    part: StateSnapshot | None = None
    spilled: tuple[Spilled, ...] = ()

    @property
    def handles(self) -> Iterator[Handle]:
        if self.part is not None:
            yield from self.part.handles.values()
        for each in self.spilled:
            yield from each.handles

    @property
    def rows(self) -> int:
        return sum(each.sums.rows for each in self.read)


_PLAN = DocumentType("conversion plan", 1, ConversionPlan)
_TASK = DocumentType("conversion task", 1, PieceResult)


def added_up(results: Iterable[PieceResult]) -> Mapping[str, TableSums]:
    """The checksums of each table over all results, by the encoded description of the table."""
    found: dict[str, TableSums] = {}
    for result in results:
        for each in result.read:
            key = msgspec.json.encode(each.info, order="sorted").decode()
            there = found.get(key)
            sums = each.sums if there is None else there.sums + each.sums
            found[key] = TableSums(each.info, sums)
    return found


class Journal:
    """The journal in a destination. Light and picklable; any process may add results."""

    def __init__(self, folder: SavepointFolder) -> None:
        self._folder = folder

    def plan(self) -> ConversionPlan | None:
        """The plan that was begun here; None if there is none.

        Raises:
            Invalid: it was written by a newer version.
            Corrupt: it is damaged.
        """
        return self._read(PLAN_NAME, _PLAN)

    def is_begun(self) -> bool:
        """Whether there is a plan, readable or not."""
        return self._folder.storage.read_if_there(self._folder.name_of(PLAN_NAME)) is not None

    def begin(self, plan: ConversionPlan) -> None:
        """Note the plan, before anything else is written.

        Raises:
            Taken: another conversion has begun here meanwhile.
        """
        name = self._folder.name_of(PLAN_NAME)
        mine = _PLAN.seal(plan)
        existing = self._folder.storage.create(name, mine)
        if existing is not None and existing != mine:
            raise Taken("another conversion has begun here meanwhile", where=self._folder.url)

    def begin_anew(self, plan: ConversionPlan) -> None:
        """Replace the plan of a conversion that was deleted otherwise."""
        self._folder.storage.write(self._folder.name_of(PLAN_NAME), _PLAN.seal(plan))

    def done(self, task: int, result: PieceResult) -> None:
        """Note the result of a piece, after its files are closed."""
        self._folder.storage.write(self._folder.name_of(f"{TASKS}{task:08d}"), _TASK.seal(result))

    def result(self, task: int) -> PieceResult | None:
        """The result of a piece; None if it was not done. Raises as `plan`."""
        return self._read(f"{TASKS}{task:08d}", _TASK)

    def _read(self, name: str, shape: DocumentType[_Body]) -> _Body | None:
        data = self._folder.storage.read_if_there(self._folder.name_of(name))
        if data is None:
            return None
        where = f"{self._folder.url}/{name}"
        try:
            return shape.unseal(data, where=where)
        except (Corrupt, Invalid) as error:
            way = "Resume it with the version that has begun it, or pass"
            raise error.replaced(
                where=where,
                fix=f"{way if isinstance(error, Invalid) else 'Pass'} --fresh to begin anew",
            ) from error
