"""What a piece of work answers, and is written down in the destination."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from holdfast.backends.snapshots.neutral import TableInfo
from holdfast.savepoints.reading.row_sums import RowSums
from holdfast.storage import Handle, StateSnapshot

__all__ = ["PieceResult", "Spilled", "TableSums", "added_up"]


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
