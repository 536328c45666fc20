"""Which slot gets which part of operator state when the parallelism may have changed.

Pure decisions: numbers of stored elements go in, ranges of them come out; nothing is read here.
Every slot decides for itself from the same facts, so all slots agree.

At an unchanged parallelism a slot keeps its own part. Otherwise, as in Flink:

- *list*: the elements of all slots, one slot after the other, are divided into runs of equal
  length. The remainder goes one by one to the next slots, in a round that continues from state to
  state, so that slots are balanced over all states together, too.
- *union list*: every slot gets all elements of all slots.
- *broadcast*: the existing copies are assigned to the slots in turn.

States are processed in the order of their names; Flink uses the order of a hash map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "Extent",
    "Mode",
    "Rescale",
    "Share",
    "SlotElements",
    "StateOfSlots",
    "deal",
    "shares_of",
]


class Mode(StrEnum):
    """How operator state is redistributed."""

    LIST = "list"
    UNION_LIST = "union-list"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class SlotElements:
    """How many elements, in order, one of the old slots wrote."""

    slot: int
    elements: int


@dataclass(frozen=True, slots=True)
class StateOfSlots:
    """A state as all old slots wrote it, by slot; a slot may have written no piece or several."""

    mode: Mode
    pieces: tuple[SlotElements, ...]


@dataclass(frozen=True, slots=True)
class Rescale:
    """One slot, the parallelism before, and the parallelism now."""

    old_parallelism: int
    parallelism: int
    slot: int

    @property
    def is_none(self) -> bool:
        return self.old_parallelism == self.parallelism


@dataclass(frozen=True, slots=True)
class Extent:
    """The elements from number `first` to before `end` of a piece, which is named by its index."""

    piece: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a state that one slot gets.

    `loaded` is what it has once the job asks for the state. `passed_on` is what it writes into its
    next snapshot when the job does not: over all slots each element once, or one copy a slot.
    Everything passed on is in what is loaded.
    """

    loaded: tuple[Extent, ...]
    passed_on: tuple[Extent, ...]


def shares_of(written: Mapping[str, StateOfSlots], rescale: Rescale) -> dict[str, Share]:
    """What the slot gets of each state, by name."""
    shares = {}
    dealt = dict.fromkeys(Mode, 0)
    for name in sorted(written):
        state = written[name]
        share = _share(state, rescale, dealt[state.mode])
        dealt[state.mode] += sum(piece.elements for piece in state.pieces)
        shares[name] = share
    return shares


def _share(state: StateOfSlots, rescale: Rescale, dealt: int) -> Share:
    pieces = state.pieces
    if state.mode is Mode.BROADCAST:
        copy = _whole(pieces, _copy_for(pieces, rescale))
        return Share(copy, copy)
    if rescale.is_none:
        own = _whole(pieces, rescale.slot)
    else:
        total = sum(piece.elements for piece in pieces)
        run = deal(total, rescale.parallelism, slot=rescale.slot, dealt=dealt)
        own = _extents(pieces, run)
    everything = _whole(pieces, None)
    return Share(everything if state.mode is Mode.UNION_LIST else own, own)


def deal(total: int, parallelism: int, *, slot: int, dealt: int) -> range:
    """Which of `total` elements a slot gets, after `dealt` elements of earlier states.

    The slots' ranges are a partition. Their lengths differ by at most one element, and so do the
    slots' sums over all states.
    """
    turn = (slot - dealt) % parallelism
    length, left_over = divmod(total, parallelism)
    first = turn * length + min(turn, left_over)
    return range(first, first + length + (turn < left_over))


def _copy_for(pieces: Sequence[SlotElements], rescale: Rescale) -> int:
    """The old slot whose copy the slot takes: its own, or one that has a copy."""
    holders = sorted({piece.slot for piece in pieces})
    if rescale.is_none or not holders:
        return rescale.slot
    return holders[rescale.slot % len(holders)]


def _whole(pieces: Sequence[SlotElements], slot: int | None) -> tuple[Extent, ...]:
    """All pieces of one old slot, or of all; also empty ones: an empty map is a copy, too."""
    return tuple(
        Extent(number, 0, piece.elements)
        for number, piece in enumerate(pieces)
        if slot in (None, piece.slot)
    )


def _extents(pieces: Sequence[SlotElements], run: range) -> tuple[Extent, ...]:
    """The extents of a run of elements over the concatenated pieces."""
    extents = []
    start = 0
    for number, piece in enumerate(pieces):
        first = max(run.start - start, 0)
        end = min(run.stop - start, piece.elements)
        if first < end:
            extents.append(Extent(number, first, end))
        start += piece.elements
    return tuple(extents)
