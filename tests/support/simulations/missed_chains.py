"""Looks at all chains of a slot, as its loop does not: it has to know each that could go on."""

from __future__ import annotations

from holdfast.runtime.task.slot import Slot
from support.simulations.world import Broken

__all__ = ["checked_step"]


def checked_step(slot: Slot) -> bool:
    """A step of the slot, while no other thread gives it anything; then a look at all its chains.

    Raises:
        Broken: a chain has room and work, and will not get a turn.
    """
    has_done = slot.step()
    loop = slot.loop
    now_ms = loop._clock.now_ms()
    for place, chain in enumerate(slot.chains):
        if not chain.has_room or not (chain.has_work or chain.is_due(now_ms)):
            continue
        awaited_ms = loop._ticks._awaited_ms[place]
        is_due = awaited_ms is not None and awaited_ms <= now_ms
        if not (loop.turns._is_waiting[place] or loop.bells[place].has_rung or is_due):
            raise Broken(f"chain {chain.plan.chain_id!r} could go on, and gets no turn")
    return has_done
