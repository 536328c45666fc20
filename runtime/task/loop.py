"""The loop of a slot: which chain has the next turn, at a cost that follows those that have work.

    a channel has an element, an outlet has room, a commit has ended ─▶ the chain's bell ─┐
    a tick is due, or a barrier may overtake ─▶ a heap for all chains ────────────────────┤
    a command of the driver ─▶ all chains ────────────────────────────────────────────────┤
    the chain has had a turn ─────────────────────────────────────────────────────────────┤
                                         look at the chain: room and work? ◀──────────────┘
                                                  └─▶ it waits for its turn; see `Turns`

A chain that nothing has happened to is not looked at. So whatever may give a chain work or room
must ring its bell, after it has. The simulation in tests looks at all chains after each step.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from holdfast.runtime.protocol.elements import MAX_WATERMARK, MIN_WATERMARK
from holdfast.runtime.protocol.metrics import ChainMetrics
from holdfast.runtime.task.chain import Chain
from holdfast.runtime.task.channel import Bell
from holdfast.runtime.task.fair_turns import Turns
from holdfast.storage import Clock

__all__ = ["ChainBell", "SlotLoop"]

# How late state is maintained, such as a log uploaded, of a chain that has no turns.
_TEND_EVERY_S = 0.5
# What holds back an operator, such as a log that is being uploaded, ends without ringing.
_TEND_HELD_BACK_EVERY_S = 0.01


class ChainBell:
    """Has the loop look at one chain, and wakes the slot's thread. Any thread may ring."""

    def __init__(self, place: int, rung: deque[ChainBell], bell: Bell) -> None:
        self.place = place
        self.has_rung = False
        self._rung = rung
        self._bell = bell

    def ring(self) -> None:
        """Say that the chain may have work, or room, that it did not have."""
        self.mark()
        self._bell.ring()

    def mark(self) -> None:
        """Have the loop look at the chain before the next turn, in the slot's own thread."""
        # The loop clears the flag before it looks: it sees what was done before a ring that found
        # the flag set. Two threads that find it cleared have it look twice, which does no harm.
        if not self.has_rung:
            self.has_rung = True
            self._rung.append(self)


class _Times:
    """What a chain has done with the time since it was opened."""

    def __init__(self, now_s: float) -> None:
        self.began_s = now_s
        self.busy_s = 0.0
        self._backpressured_s = 0.0
        self._blocked_since_s: float | None = None

    def looked(self, now_s: float, *, is_blocked: bool) -> None:
        """The chain was looked at: it has something to do and no room, or not."""
        if is_blocked is (self._blocked_since_s is None):
            self._backpressured_s = self.backpressured_s(now_s)
            self._blocked_since_s = now_s if is_blocked else None

    def backpressured_s(self, now_s: float) -> float:
        since_s = self._blocked_since_s
        return self._backpressured_s + (0.0 if since_s is None else now_s - since_s)


class _Moments:
    """When chains have something to do, by one clock: one moment a chain."""

    def __init__(self, chains: int) -> None:
        self._awaited_ms: list[int | None] = [None] * chains
        self._heap: list[tuple[int, int]] = []
        """Moments and places; an entry is void if the chain awaits another by now."""

    def wait(self, place: int, due_ms: int | None) -> None:
        """The chain at this place awaits this moment from now on, or none."""
        if due_ms == self._awaited_ms[place]:
            return
        self._awaited_ms[place] = due_ms
        if due_ms is not None:
            heappush(self._heap, (due_ms, place))
            # An idle timeout moves with every batch: void entries would pile up until it is due.
            if len(self._heap) > 2 * len(self._awaited_ms) + 64:
                self._heap = [*{entry for entry in self._heap if not self._is_void(entry)}]
                heapify(self._heap)

    def take_due(self, now_ms: int) -> list[int]:
        """The places whose moment has come; they await none then."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            entry = heappop(self._heap)
            if not self._is_void(entry):
                _, place = entry
                self._awaited_ms[place] = None
                due.append(place)
        return due

    def first_ms(self) -> int | None:
        """The first moment that a chain awaits."""
        while self._heap and self._is_void(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _is_void(self, entry: tuple[int, int]) -> bool:
        due_ms, place = entry
        return self._awaited_ms[place] != due_ms


class SlotLoop:
    """Gives chains their turns. All but the bells is for the slot's thread.

    A chain without room for its output gets no turn. The furthest chain downstream that has work
    always has room, so the slot cannot deadlock.
    """

    def __init__(self, chains: int, bell: Bell, clock: Clock) -> None:
        self._rung: deque[ChainBell] = deque()
        self.bells = [ChainBell(place, self._rung, bell) for place in range(chains)]
        self.turns = Turns(chains)
        self._chains: list[Chain] = []
        self._clock = clock
        self._ticks = _Moments(chains)
        """The next tick of each chain, as of when it was looked at last, if it was not due then."""
        self._overtakings = _Moments(chains)
        """When a barrier overtakes rows in each chain, on the clock of `monotonic_ms`."""
        self._is_due = [False] * chains
        """Whether each chain has something to do by the clock, likewise."""
        self._held_back: set[int] = set()
        """Chains with an operator that may take no rows now."""
        self._tended_s = self._tended_held_back_s = clock.monotonic_s()
        self._running = {*range(chains)}
        self._times: list[_Times] = []

    @property
    def have_ended(self) -> bool:
        """Whether all chains have ended."""
        return not self._running

    def begin(self, chain: Chain) -> None:
        """Take part in the loop, in the order of the bells; called for each chain before a turn."""
        self.bells[len(self._chains)].mark()
        self._chains.append(chain)
        self._times.append(_Times(self._clock.monotonic_s()))

    def monotonic_ms(self) -> int:
        """The time by which barriers wait: the time of day may be set back."""
        return _ms(self._clock.monotonic_s())

    def look_at_all(self) -> None:
        """Look at every chain before the next turn."""
        for bell in self.bells:
            bell.mark()

    def turn(self) -> bool:
        """Give one chain a turn of a bounded amount; False if none has anything to do.

        Chains share the time of the slot's thread.
        """
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic_s()
        self._tend_some(now_s)
        self._look_at_due(now_ms, now_s)
        for _ in range(len(self._rung)):  # not for ever: other threads ring meanwhile
            bell = self._rung.popleft()
            bell.has_rung = False
            self._look(bell.place, now_ms, now_s)
        place = self.turns.next()
        while place is not None and not self._chains[place].has_room:
            place = self.turns.next()
        if place is None:
            return False
        self._give(place, now_ms)
        return True

    def wait_s(self) -> float:
        """How long there is nothing to do, unless a bell rings."""
        # Chains without room need no timeout: the receiver that makes room rings the bell.
        least_s = _TEND_HELD_BACK_EVERY_S if self._held_back else _TEND_EVERY_S
        for moments, now_ms in (
            (self._ticks, self._clock.now_ms()),
            (self._overtakings, self.monotonic_ms()),
        ):
            due_ms = moments.first_ms()
            if due_ms is not None:
                least_s = min(max((due_ms - now_ms) / 1000, 0.001), least_s)
        return least_s

    def metrics(self, place: int) -> ChainMetrics:
        """What a chain has done so far, and how far it has got."""
        chain, times, now_s = self._chains[place], self._times[place], self._clock.monotonic_s()
        backpressured_s = times.backpressured_s(now_s)
        watermark = None if chain.watermark == MIN_WATERMARK else chain.watermark
        lag_s = None
        if watermark not in (None, MAX_WATERMARK):
            lag_s = (self._clock.now_ms() - watermark) / 1000
        return ChainMetrics(
            rows=chain.rows,
            busy_s=times.busy_s,
            backpressured_s=backpressured_s,
            idle_s=max(now_s - times.began_s - times.busy_s - backpressured_s, 0.0),
            watermark_ms=watermark,
            watermark_lag_s=lag_s,
        )

    def _give(self, place: int, now_ms: int) -> None:
        chain, began_s = self._chains[place], self._clock.monotonic_s()
        if self._is_due[place]:
            chain.tick(now_ms)
        if chain.has_room:
            chain.step()
        self._tend(place)
        took_s = self._clock.monotonic_s() - began_s
        self.turns.charge(place, took_s)
        self._times[place].busy_s += took_s
        self.bells[place].mark()
        if chain.has_ended:
            self._running.discard(place)

    def _look(self, place: int, now_ms: int, now_s: float) -> None:
        """Let a chain wait for a turn, if it has something to do and room for what comes of it."""
        chain = self._chains[place]
        chain.overtake(_ms(now_s))
        due_ms = chain.next_tick_ms()
        is_due = self._is_due[place] = due_ms is not None and due_ms <= now_ms
        self._ticks.wait(place, None if is_due else due_ms)
        self._overtakings.wait(place, chain.next_overtaking_ms())
        has_work = is_due or chain.has_work
        has_room = not has_work or chain.has_room
        self._times[place].looked(now_s, is_blocked=not has_room)
        if has_work and has_room:
            self.turns.enter(place)

    def _look_at_due(self, now_ms: int, now_s: float) -> None:
        due = (*self._ticks.take_due(now_ms), *self._overtakings.take_due(_ms(now_s)))
        for place in dict.fromkeys(due):
            self._look(place, now_ms, now_s)

    def _tend_some(self, now_s: float) -> None:
        if now_s - self._tended_s >= _TEND_EVERY_S:
            self._tended_s = self._tended_held_back_s = now_s
            for place in range(len(self._chains)):
                self._tend(place)
        elif self._held_back and now_s - self._tended_held_back_s >= _TEND_HELD_BACK_EVERY_S:
            self._tended_held_back_s = now_s
            for place in [*self._held_back]:
                self._tend(place)

    def _tend(self, place: int) -> None:
        is_held_back = not self._chains[place].tend()
        if is_held_back is not (place in self._held_back):
            (self._held_back.add if is_held_back else self._held_back.remove)(place)
            self.bells[place].mark()


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
