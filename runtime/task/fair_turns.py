"""Fair turns by cost: of those that have work, the one that has cost least is next.

One long turn counts as much as many short ones. The caller chooses what a cost is: seconds for the
chains of a slot, bytes for the channels of a chain.

One loop and not a thread for each chain: Python runs one thread at a time, and a loop that gives
each chain its share needs no locks. A chain whose outputs have no room has no turn, so the loop
never waits for a full channel.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Turns"]


class Turns:
    """Shares turns among parties that are numbered from 0. Used by one thread.

    Parties that always have work get equal shares in the long run. Between two turns of a party the
    others get no more than it is behind them, plus one turn each.
    """

    def __init__(self, parties: int) -> None:
        self._spent = [0.0] * parties
        self._last_turn = [0] * parties
        self._turn = 0

    def next(self, ready: Sequence[int]) -> int:
        """The party that has spent least, of those in `ready`, which are in ascending order.

        Among equals it is the one whose last turn is the longest ago.
        """
        spent, last_turn = self._spent, self._last_turn
        chosen = min(ready, key=lambda party: (spent[party], last_turn[party]))
        if len(ready) < len(spent):
            # A party without work saves nothing up: otherwise all others would wait for it later.
            least, waiting = spent[chosen], {*ready}
            for party, its in enumerate(spent):
                if its < least and party not in waiting:
                    spent[party] = least
        return chosen

    def charge(self, party: int, cost: float) -> None:
        """Record that a turn of this party has ended, and its cost."""
        self._turn += 1
        self._last_turn[party] = self._turn
        self._spent[party] += cost
