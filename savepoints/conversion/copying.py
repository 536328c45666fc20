"""Copying of what a conversion does not cut into pieces: source positions, state without keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from holdfast.backends.arrow.values import ValueForm, is_plain, may_lack_fields
from holdfast.backends.operator_state.redistribution import Mode
from holdfast.backends.operator_state.restores import of_all_slots, read_operator_snapshots
from holdfast.backends.operator_state.snapshots import (
    OPERATOR_KINDS,
    OperatorSlot,
    OperatorWriter,
)
from holdfast.backends.snapshots.neutral import SnapshotFuture
from holdfast.savepoints.reading.readers import OperatorReader
from holdfast.savepoints.reading.row_sums import RowCounter, RowSums
from holdfast.savepoints.reading.tables import UnkeyedTable
from holdfast.savepoints.writing.assembly import AttemptTarget, copy_part
from holdfast.storage import (
    Corrupt,
    SavepointFolder,
    StateFolder,
    StateSnapshot,
)

__all__ = ["PartCopier", "check_unkeyed"]


@dataclass(frozen=True, slots=True)
class PartCopier:
    """Copies parts into the folder of a savepoint, with state in the canonical or neutral form."""

    source: StateFolder
    folder: SavepointFolder
    is_canonical: bool
    checkpoint_id: int

    def copied(self, part: StateSnapshot, label: str) -> StateSnapshot:
        """The same part, with its files copied into the savepoint's folder.

        Raises:
            Corrupt: a file is missing or damaged; names it.
            Unavailable: a storage failed.
        """
        return copy_part(part, self.source, self.folder, self.checkpoint_id, label)

    def unkeyed(
        self, uid: str, parts: Sequence[StateSnapshot], parallelism: int
    ) -> list[StateSnapshot]:
        """State without keys, distributed to `parallelism` slots.

        Raises:
            Invalid: the parts contradict each other.
            Corrupt, Unavailable: as `copied`.
        """
        own = of_all_slots([part for part in parts if part.kind in OPERATOR_KINDS])
        written: list[StateSnapshot] = []
        for slot in range(parallelism if own else 0):
            place = OperatorSlot(uid, slot, parallelism)
            states = read_operator_snapshots(own, self.source, place).values()
            carried = [each for state in states for each in state.passed_on()]
            if self.is_canonical:
                carried = [
                    replace(each, whole=not may_lack_fields(each.table.values)) for each in carried
                ]
            target = AttemptTarget.begin(self.folder) if self.is_canonical else self.folder
            writer = OperatorWriter(
                place, target, self.checkpoint_id, is_canonical=self.is_canonical
            )
            written.append(writer.write(carried, SnapshotFuture()))
        return written


def check_unkeyed(before: OperatorReader, after: OperatorReader, *, is_canonical: bool) -> int:
    """Make sure that redistribution has kept all state without keys; returns its elements.

    Raises:
        Corrupt: a state differs; names it.
    """
    expected, found = (_sums(each, is_canonical=is_canonical) for each in (before, after))
    for key in dict.fromkeys((*expected, *found)):
        mode, name, _ = key
        mine, its = expected.get(key, {}), found.get(key, {})
        if mode == Mode.BROADCAST:
            is_same = set(its.values()) <= set(mine.values()) and bool(its) == bool(mine)
        else:
            is_same = _total(mine) == _total(its)
        if not is_same:
            raise Corrupt(
                f"state {name!r} of operator {before.uid!r} has changed in the conversion",
                where=after.folder.url,
                expected=str(_total(mine)),
                found=str(_total(its)),
                fix="Convert it again with --fresh; if that fails again, this is a bug of Holdfast",
            )
    return sum(_total(its).rows for its in found.values())


_Key = tuple[str, str, str]


def _sums(reader: OperatorReader, *, is_canonical: bool) -> dict[_Key, dict[int, RowSums]]:
    found: dict[_Key, dict[int, RowSums]] = {}
    for table in reader.tables():
        info = table.info
        types = msgspec.json.encode((info.map_keys, info.values), order="sorted").decode()
        slots = found.setdefault((info.mode.value, info.name, types), {})
        for slot in reader.slots:
            sums = _of_slot(reader, table, slot, is_canonical=is_canonical)
            if sums is not None:
                slots[slot] = sums
    return found


def _of_slot(
    reader: OperatorReader, table: UnkeyedTable, slot: int, *, is_canonical: bool
) -> RowSums | None:
    """The checksum of a state in one slot; None if the slot does not have the state at all."""
    if not reader.has(table, slot):
        return None
    form = None
    if is_canonical and not is_plain(table.info.values):
        form = ValueForm(table.info.values, checked=not may_lack_fields(table.info.values))
    counter = RowCounter(table.as_unordered, form)
    for block in reader.blocks(table, slot):
        counter.add(block)
    return counter.sums


def _total(slots: Mapping[int, RowSums]) -> RowSums:
    return sum(slots.values(), RowSums())
