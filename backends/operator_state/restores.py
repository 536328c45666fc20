"""Reading snapshots of operator state: the state of all old slots, and one slot's part of it.

As with keyed state, a state is loaded when the job declares it, since only then its types are
known. State that is not declared stays pending, and is copied undecoded into the next snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

import msgspec

from holdfast.backends.blocks.block import Block, decode_blocks
from holdfast.backends.operator_state.redistribution import (
    Extent,
    Rescale,
    Share,
    SlotElements,
    StateOfSlots,
    shares_of,
)
from holdfast.backends.operator_state.snapshots import (
    OPERATOR_KIND,
    OPERATOR_KINDS,
    OPERATOR_PARQUET_KIND,
    OperatorAttributes,
    OperatorSlot,
    OperatorTable,
    StateToWrite,
    typed_state,
)
from holdfast.backends.snapshots.neutral import (
    handle_of,
    not_as_described,
    read_attributes,
    restoring,
    storage_for,
)
from holdfast.backends.snapshots.parquet import read_part
from holdfast.storage import Corrupt, Handle, Invalid, StateFolder, StateSnapshot

__all__ = ["PendingPiece", "PendingState", "of_all_slots", "read_operator_snapshots"]


@dataclass(slots=True)
class PendingPiece:
    """A table of one old slot; some of its elements may belong to this slot."""

    table: OperatorTable
    slot: int
    handles: dict[str, Handle]
    storage: StateFolder
    place: OperatorSlot
    is_canonical: bool = False
    held: tuple[int, list[Block]] | None = None
    """The number of the first element that is held, and the blocks from there."""

    def blocks(self, first: int, end: int) -> Iterator[Block]:
        """The elements from number `first` to before `end`; other segments are not read."""
        if self.held is not None:
            start, held = self.held
            yield from _cut(held, first - start, end - start)
            return
        start = 0
        for segment in self.table.segments:
            stop = start + segment.elements
            if first < stop and start < end:
                wanted = range(max(first - start, 0), min(end, stop) - start)
                yield from self._read(segment.handle, wanted)
            start = stop

    def hold(self, first: int, end: int) -> None:
        """Read these elements into memory: their files may be deleted from now on."""
        if self.held is None:
            self.held = first, list(self.blocks(first, end))

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Add the names of state and operator to errors from inside."""
        with restoring(f"state {self.table.name!r} of {self.place}"):
            yield

    def _read(self, handle: str, wanted: range) -> Iterator[Block]:
        count = 0
        with self.naming():
            blocks = self._segment(handle)
            for block in _cut(blocks, wanted.start, wanted.stop):
                count += block.count
                yield block
            if count != len(wanted):
                expected, found = f"{len(wanted)} elements more", f"{count}, in {handle!r}"
                raise not_as_described(self.storage.url, expected=expected, found=found)

    def _segment(self, name: str) -> Iterator[Block]:
        handle = handle_of(self.handles, name, self.storage.url)
        if not self.is_canonical:
            return decode_blocks(self.storage.stream(handle), where=self.storage.url)
        typed = typed_state(self.place.uid, self.slot, self.table)
        rows = next(each.elements for each in self.table.segments if each.handle == name)
        return read_part(self.storage, handle, typed, rows=rows, groups=None)


@dataclass(slots=True)
class PendingState:
    """A state of the snapshots that the job has not declared yet."""

    pieces: list[PendingPiece]
    share: Share

    def loaded(self) -> Iterator[tuple[PendingPiece, Iterator[Block]]]:
        """The slot's part of the state, piece by piece."""
        return ((piece, piece.blocks(first, end)) for piece, first, end in self._of_loaded())

    def passed_on(self) -> Iterator[StateToWrite]:
        """The part that the slot writes while the state is not declared, in few tables."""
        for table, extents in groupby(self.share.passed_on, self._types):
            yield StateToWrite(table, self._blocks(list(extents)))

    def hold(self) -> None:
        """Read the slot's part into memory: its files may be deleted from now on."""
        for piece, first, end in self._of_loaded():
            piece.hold(first, end)

    def _of_loaded(self) -> Iterator[tuple[PendingPiece, int, int]]:
        for extent in self.share.loaded:
            yield self.pieces[extent.piece], extent.first, extent.end

    def _types(self, extent: Extent) -> OperatorTable:
        return msgspec.structs.replace(self.pieces[extent.piece].table, segments=())

    def _blocks(self, extents: Iterable[Extent]) -> Iterator[Block]:
        for extent in extents:
            yield from self.pieces[extent.piece].blocks(extent.first, extent.end)


def of_all_slots(parts: Sequence[StateSnapshot]) -> Sequence[StateSnapshot]:
    """The parts of a checkpoint, with empty ones for slots that never declared operator state.

    A checkpoint is complete or does not exist, so a missing part was never written.
    """
    if not parts:
        return ()
    first = parts[0]
    there = {part.slot for part in parts}
    silent = set(range(int(first.attributes.get("parallelism", 0)))) - there
    empty = {**first.attributes, "states": []}
    return [
        *parts,
        *(StateSnapshot(kind=OPERATOR_KIND, attributes=empty, slot=slot) for slot in silent),
    ]


def read_operator_snapshots(
    snapshots: Sequence[StateSnapshot], storage: StateFolder | None, place: OperatorSlot
) -> dict[str, PendingState]:
    """The slot's part of the snapshots of all old slots; no state is read from storage yet.

    Raises:
        Invalid: they are no snapshots of operator state of this operator, or not those of all
            slots of one checkpoint.
        Corrupt: their attributes are damaged.
    """
    if not snapshots:
        return {}
    folder = storage_for(storage, str(place))
    found = [(snapshot, _attributes(snapshot, place)) for snapshot in snapshots]
    found.sort(key=lambda each: _slot_of(each[0], place))
    old_parallelism = _old_parallelism(found, place)
    pieces: dict[str, list[PendingPiece]] = {}
    for snapshot, attributes in found:
        for table in attributes.states:
            piece = PendingPiece(
                table,
                _slot_of(snapshot, place),
                snapshot.handles,
                folder,
                place,
                is_canonical=snapshot.kind == OPERATOR_PARQUET_KIND,
            )
            pieces.setdefault(table.name, []).append(piece)
    written = {name: _written(name, its_pieces, place) for name, its_pieces in pieces.items()}
    shares = shares_of(written, Rescale(old_parallelism, place.parallelism, place.slot))
    return {name: PendingState(its_pieces, shares[name]) for name, its_pieces in pieces.items()}


def _attributes(snapshot: StateSnapshot, place: OperatorSlot) -> OperatorAttributes:
    kinds = dict.fromkeys(OPERATOR_KINDS, OperatorAttributes)
    attributes = read_attributes(snapshot, kinds, str(place))
    if attributes.uid != place.uid:
        raise Invalid(
            "a snapshot belongs to another operator",
            where=str(place),
            expected=f"uid {place.uid!r}",
            found=repr(attributes.uid),
        )
    return attributes


def _slot_of(snapshot: StateSnapshot, place: OperatorSlot) -> int:
    if snapshot.slot is None:
        raise Corrupt(f"a snapshot for {place} does not say of which slot it is")
    return snapshot.slot


def _old_parallelism(
    found: Sequence[tuple[StateSnapshot, OperatorAttributes]], place: OperatorSlot
) -> int:
    """The parallelism of the snapshots.

    All slots must be present: elements of a missing one would be lost silently.
    """
    parallelisms = sorted({attributes.parallelism for _, attributes in found})
    slots = [_slot_of(snapshot, place) for snapshot, _ in found]
    if len(parallelisms) > 1 or slots != list(range(parallelisms[0])):
        raise Invalid(
            f"{place} is not restored from the snapshots of all slots of one checkpoint",
            expected=f"each of {' or '.join(map(str, parallelisms))} slots once",
            found=f"slots {', '.join(map(str, slots))}",
            fix="Pass the operator's snapshots of every slot of one checkpoint as restore=",
        )
    return parallelisms[0]


def _written(name: str, pieces: Sequence[PendingPiece], place: OperatorSlot) -> StateOfSlots:
    mode = pieces[0].table.mode
    for piece in pieces:
        if piece.table.mode is not mode:
            raise Invalid(
                f"the slots' snapshots for {place} differ in the kind of state {name!r}",
                expected=f"{mode}, as in slot {pieces[0].slot}",
                found=f"{piece.table.mode} in slot {piece.slot}",
            )
    return StateOfSlots(
        mode, tuple(SlotElements(piece.slot, piece.table.elements) for piece in pieces)
    )


def _cut(blocks: Iterable[Block], first: int, end: int) -> Iterator[Block]:
    """The rows from number `first` to before `end` of these blocks; reads no further."""
    start = 0
    for block in blocks:
        begin, stop = max(first - start, 0), min(end - start, block.count)
        if (begin, stop) == (0, block.count):
            yield block
        elif begin < stop:
            yield block.rows(begin, stop)
        start += block.count
        if start >= end:
            return
