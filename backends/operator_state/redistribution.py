"""Which slot gets what of operator state when the number of slots may have changed.

Only decisions: facts about what was written go in, extents of it come out; nothing is read here.
Every slot decides for itself, from the same facts, and so all slots together agree.

At an unchanged parallelism a slot keeps what is its own. Otherwise, as in Flink:

- *list*: the elements of all slots, one slot after the other, are dealt out in runs of one length.
  What is left over goes one by one to the next slots in a round that goes on from state to state,
  so that slots are even over all states together, too.
- *union list*: every slot gets all elements of all slots.
- *broadcast*: the copies that there are go around among the slots.

States are taken in the order of their names, where Flink takes them as a hash map yields them.
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
    """A number of elements, in order, that one of the old slots wrote."""

    slot: int
    elements: int


@dataclass(frozen=True, slots=True)
class StateOfSlots:
    """A state as all old slots wrote it, in order of slot; a slot may have written none or more."""

    mode: Mode
    pieces: tuple[SlotElements, ...]


@dataclass(frozen=True, slots=True)
class Rescale:
    """One slot of now, and how many there were and are."""

    old_parallelism: int
    parallelism: int
    slot: int

    @property
    def is_none(self) -> bool:
        """Whether there are as many slots as there were."""
        return self.old_parallelism == self.parallelism


@dataclass(frozen=True, slots=True)
class Extent:
    """The elements from number `first` to before `end` of a piece, which is named by its index."""

    piece: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Share:
    """What one slot gets of a state.

    `loaded` is what it has once the job asks for the state. `carried` is what it writes into its
    next snapshot when the job does not: over all slots each element once, or one copy a slot.
    Everything carried is in what is loaded.
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
    """Which of `total` elements a slot gets, when so many were dealt out before these.

    The slots' ranges are a partition; no two differ by more than one element in length, and
    neither do the slots' sums over all rounds of dealing, where `dealt` counts them.
    """
    turn = (slot - dealt) % parallelism
    length, left_over = divmod(total, parallelism)
    first = turn * length + min(turn, left_over)
    return range(first, first + length + (turn < left_over))


def _copy_for(pieces: Sequence[SlotElements], rescale: Rescale) -> int:
    """The old slot whose copy the slot takes: its own, or one of those that have a copy."""
    holders = sorted({piece.slot for piece in pieces})
    if rescale.is_none or not holders:
        return rescale.slot
    return holders[rescale.slot % len(holders)]


def _whole(pieces: Sequence[SlotElements], slot: int | None) -> tuple[Extent, ...]:
    """All pieces of one old slot, or of all; also empty ones, since an empty map is a copy, too."""
    return tuple(
        Extent(number, 0, piece.elements)
        for number, piece in enumerate(pieces)
        if slot in (None, piece.slot)
    )


def _extents(pieces: Sequence[SlotElements], run: range) -> tuple[Extent, ...]:
    """Where the elements of a run are, when the pieces lie one after the other."""
    extents = []
    start = 0
    for number, piece in enumerate(pieces):
        first = max(run.start - start, 0)
        end = min(run.stop - start, piece.elements)
        if first < end:
            extents.append(Extent(number, first, end))
        start += piece.elements
    return tuple(extents)
