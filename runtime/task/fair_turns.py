"""Who is next: turns by what turns have cost, so that nobody who has work starves.

A long turn of one counts as much as many short ones of another. What is counted is for the caller
to say: seconds for the chains of a slot, bytes for the channels of a chain.

One loop and not a thread for each chain: Python runs one thread at a time, and a loop that gives
each chain its share needs no locks. A chain whose outputs have no room has no turn, so the loop
never waits for a full channel.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Turns"]


class Turns:
    """Shares turns among parties that are numbered from 0. Used by one thread.

    Of parties that always have work each gets the same in the long run, and between two turns of
    one the others get no more than it is behind them, plus a turn each.
    """

    def __init__(self, parties: int) -> None:
        self._spent = [0.0] * parties
        self._last_turn = [0] * parties
        self._turn = 0

    def next(self, ready: Sequence[int]) -> int:
        """Of those that have work, in ascending order, the one that has spent least.

        Where several have, it is the one whose last turn is the longest ago.
        """
        spent, last_turn = self._spent, self._last_turn
        chosen = min(ready, key=lambda party: (spent[party], last_turn[party]))
        if len(ready) < len(spent):
            # Who has no work saves nothing up: otherwise it would keep all others waiting later.
            least, waiting = spent[chosen], {*ready}
            for party, its in enumerate(spent):
                if its < least and party not in waiting:
                    spent[party] = least
        return chosen

    def charge(self, party: int, cost: float) -> None:
        """A turn of this party is over, and has cost so much."""
        self._turn += 1
        self._last_turn[party] = self._turn
        self._spent[party] += cost
