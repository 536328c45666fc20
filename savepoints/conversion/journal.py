"""What is done of a conversion, in its destination, so that a re-run resumes.

    <destination>/_conversion/plan            what is to be done; created once
    <destination>/_conversion/task-<number>   what a piece of work has answered
    <destination>/_conversion/running         who is at it: see `presence`

There is no `_metadata` in the destination until all is done, so it is no savepoint. When it is one,
all of this is deleted.
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
    NotFound,
    SavepointFolder,
    StateSnapshot,
    Taken,
)
from holdfast.storage.jobs.envelope import seal, unseal

__all__ = [
    "FOLDER",
    "RUNNING",
    "TASKS",
    "Journal",
    "PieceResult",
    "Spilled",
    "TableSums",
    "added_up",
]

FOLDER = "_conversion"
RUNNING = f"{FOLDER}/running"
TASKS = "task-"
"""What the notes of pieces begin with."""
_VERSION = 1
_PLAN, _TASK = "conversion plan", "conversion task"

_Body = TypeVar("_Body", bound=msgspec.Struct)


class TableSums(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rows of a table, without its segments, that somebody has seen."""

    info: TableInfo
    sums: RowSums


class Spilled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of a table, by its number, that were put aside for a piece, by its number."""

    piece: int
    table: int
    handles: tuple[Handle, ...]


class PieceResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was done for a piece: the rows that were read, and what was written."""

    read: tuple[TableSums, ...] = ()
    part: StateSnapshot | None = None
    spilled: tuple[Spilled, ...] = ()

    @property
    def handles(self) -> Iterator[Handle]:
        """What it refers to."""
        if self.part is not None:
            yield from self.part.handles.values()
        for each in self.spilled:
            yield from each.handles

    @property
    def rows(self) -> int:
        """How many rows were read."""
        return sum(each.sums.rows for each in self.read)


def added_up(results: Iterable[PieceResult]) -> Mapping[str, TableSums]:
    """The rows of each table over all results, by a text that is the same for the same table."""
    found: dict[str, TableSums] = {}
    for result in results:
        for each in result.read:
            key = msgspec.json.encode(each.info, order="sorted").decode()
            there = found.get(key)
            sums = each.sums if there is None else there.sums + each.sums
            found[key] = TableSums(each.info, sums)
    return found


class Journal:
    """The journal in a destination. Light and picklable; any process may note what it has done."""

    def __init__(self, folder: SavepointFolder) -> None:
        self._folder = folder

    def plan(self) -> ConversionPlan | None:
        """What was begun here; None if nothing was.

        Raises:
            Invalid: by a newer version.
            Corrupt: it is damaged.
        """
        return self._read("plan", _PLAN, ConversionPlan)

    def is_begun(self) -> bool:
        """Whether something was begun here, be it readable or not."""
        try:
            self._folder.storage.read(self._name("plan"))
        except NotFound:
            return False
        return True

    def begin(self, plan: ConversionPlan) -> None:
        """Note the plan, before anything else is written.

        Raises:
            Taken: somebody else has begun here meanwhile.
        """
        name = self._name("plan")
        mine = seal(_PLAN, _VERSION, plan)
        existing = self._folder.storage.create(name, mine)
        if existing is not None and existing != mine:
            raise Taken("another conversion has begun here meanwhile", where=self._folder.url)

    def begin_anew(self, plan: ConversionPlan) -> None:
        """Note the plan in the place of another one, of which nothing is left."""
        self._folder.storage.write(self._name("plan"), seal(_PLAN, _VERSION, plan))

    def done(self, task: int, result: PieceResult) -> None:
        """Note what a piece of work has answered; its files are closed."""
        self._folder.storage.write(self._name(f"{TASKS}{task:08d}"), seal(_TASK, _VERSION, result))

    def result(self, task: int) -> PieceResult | None:
        """What a piece of work has answered; None if it was not done. Raises as `plan`."""
        return self._read(f"{TASKS}{task:08d}", _TASK, PieceResult)

    def _read(self, name: str, kind: str, shape: type[_Body]) -> _Body | None:
        try:
            data = self._folder.storage.read(self._name(name))
        except NotFound:
            return None
        where = f"{self._folder.url}/{FOLDER}/{name}"
        try:
            return unseal(data, kind=kind, version=_VERSION, body=shape, where=where)
        except (Corrupt, Invalid) as error:
            way = "Resume it with the version that has begun it, or pass"
            raise type(error)(
                error.what,
                where=where,
                expected=error.expected,
                found=error.found,
                fix=f"{way if isinstance(error, Invalid) else 'Pass'} --fresh to begin anew",
            ) from error

    def _name(self, name: str) -> str:
        return self._folder.name_of(f"{FOLDER}/{name}")
