"""Fair turns by cost: of those that have work, the one that has cost least is next.

One long turn counts as much as many short ones. The caller chooses what a cost is: seconds for the
chains of a slot, bytes for the channels of a chain.

One loop and not a thread for each chain: Python runs one thread at a time, and a loop that gives
each chain its share needs no locks. A chain whose outputs have no room has no turn, so the loop
never waits for a full channel.
"""

from __future__ import annotations

from heapq import heappop, heappush

__all__ = ["Turns"]


class Turns:
    """Shares turns among parties that are numbered from 0. Used by one thread.

    Parties that always have work get equal shares in the long run. Between two turns of a party the
    others get no more than it is behind them, plus one turn each. The cost of a turn does not grow
    with the number of parties that have no work.
    """

    def __init__(self, parties: int) -> None:
        self._spent = [0.0] * parties
        self._last_turn = [0] * parties
        self._is_waiting = [False] * parties
        self._waiting: list[tuple[float, int, int]] = []
        """A heap of those that wait: what they have spent, their last turn, their number."""
        self._least = 0.0
        """What the party of the last turn had spent before it; it never falls."""
        self._turn = 0

    def enter(self, party: int) -> None:
        """Let a party wait for its next turn, because it has work; once is enough."""
        if not self._is_waiting[party]:
            self._is_waiting[party] = True
            # A party without work saves nothing up: otherwise all others would wait for it now.
            spent = self._spent[party] = max(self._spent[party], self._least)
            heappush(self._waiting, (spent, self._last_turn[party], party))

    def next(self) -> int | None:
        """The party that has spent least of those that wait, which waits no more; None without one.

        Among equals it is the one whose last turn is the longest ago.
        """
        if not self._waiting:
            return None
        self._least, _, party = heappop(self._waiting)
        self._is_waiting[party] = False
        return party

    def charge(self, party: int, cost: float) -> None:
        """Record that a turn of this party has ended, and its cost. Before it enters again."""
        self._turn += 1
        self._last_turn[party] = self._turn
        self._spent[party] += cost
