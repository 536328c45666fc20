"""The loop of a slot looks at chains to which something has happened, and at no others."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest

from holdfast.runtime.protocol.elements import MAX_WATERMARK, MIN_WATERMARK
from holdfast.runtime.task.channel import Bell
from holdfast.runtime.task.loop import SlotLoop
from holdfast.storage import ManualClock


class PlayedChain:
    """A chain of which a test says what it has to do; it counts what the loop does to it."""

    def __init__(self, clock: ManualClock) -> None:
        self.given: deque[None] = deque()
        self.is_timed = True
        """Whether each step takes a millisecond."""
        self.has_room = True
        self.rows, self.watermark = 0, MIN_WATERMARK
        self.has_ended = False
        self.due_ms: int | None = None
        self.overtaking_ms: int | None = None
        """When a barrier overtakes rows in it."""
        self.can_take = True
        self.looks = self.tends = 0
        self.done: list[str] = []
        self._clock = clock

    @property
    def has_work(self) -> bool:
        return bool(self.given)

    def next_tick_ms(self) -> int | None:
        self.looks += 1
        return self.due_ms

    def next_overtaking_ms(self) -> int | None:
        return self.overtaking_ms

    def overtake(self, now_ms: int) -> None:
        if self.overtaking_ms is not None and self.overtaking_ms <= now_ms:
            self.done.append(f"overtake {now_ms}")
            self.overtaking_ms = None

    def tick(self, now_ms: int) -> None:
        self.done.append(f"tick {now_ms}")
        self.due_ms = None

    def step(self) -> bool:
        if self.given:
            self.given.pop()
            self.done.append("step")
        if self.is_timed:
            self._clock.advance(1)
        return True

    def tend(self) -> bool:
        self.tends += 1
        return self.can_take


class Stage:
    def __init__(self, chains: int) -> None:
        self.clock, self.bell = ManualClock(), Bell()
        self.chains = [PlayedChain(self.clock) for _ in range(chains)]
        self.loop = SlotLoop(chains, self.bell, self.clock)
        for chain in self.chains:
            played: Any = chain
            self.loop.begin(played)
        assert self.turns() == 0
        for chain in self.chains:
            chain.looks = 0

    def give(self, place: int, work: int = 1) -> None:
        self.chains[place].given.extend([None] * work)
        self.loop.bells[place].ring()

    def turns(self) -> int:
        """How many there are until there is nothing to do."""
        count = 0
        while self.loop.turn():
            count += 1
        return count

    def done(self) -> Sequence[Sequence[str]]:
        return [chain.done for chain in self.chains]


def test_only_a_chain_that_was_given_something_is_looked_at() -> None:
    stage = Stage(50)
    stage.give(7, 3)
    assert stage.bell.wait(0), "the slot's thread wakes up"
    assert stage.turns() == 3
    assert stage.chains[7].done == ["step"] * 3
    assert sum(chain.looks for chain in stage.chains) == stage.chains[7].looks == 4


def test_chains_with_work_share_the_time() -> None:
    stage = Stage(3)
    stage.give(0, 6)
    for _ in range(3):
        assert stage.loop.turn()
    stage.give(2, 3)
    for _ in range(6):
        assert stage.loop.turn()
    assert [len(chain.done) for chain in stage.chains] == [6, 0, 3]
    assert not stage.loop.turn()


def test_a_chain_without_room_has_no_turn_until_it_has() -> None:
    stage = Stage(2)
    stage.chains[0].has_room = False
    stage.chains[0].due_ms = 0
    stage.give(0)
    assert stage.turns() == 0
    assert stage.loop.wait_s() > 0.1, "it does not spin meanwhile"
    stage.chains[0].has_room = True
    stage.loop.bells[0].ring()
    assert stage.turns() == 1
    assert stage.chains[0].done[1:] == ["step"], "after its tick"


def test_a_chain_that_loses_its_room_while_it_waits_has_no_turn() -> None:
    stage = Stage(2)
    stage.give(0)
    stage.give(1)
    assert stage.loop.turn()
    waiting = next(chain for chain in stage.chains if chain.has_work)
    waiting.has_room = False
    assert not stage.loop.turn()
    waiting.has_room = True
    stage.loop.look_at_all()
    assert stage.loop.turn()


def test_ticks_come_when_they_are_due_and_not_before() -> None:
    stage = Stage(3)
    now = stage.clock.now_ms()
    for place, later_ms in enumerate((300, 100, 200)):
        stage.chains[place].due_ms = now + later_ms
        stage.loop.bells[place].ring()
    assert stage.turns() == 0
    assert abs(stage.loop.wait_s() - 0.1) < 0.001
    stage.clock.advance(150)
    assert stage.turns() == 1
    assert stage.done() == [[], [f"tick {now + 150}"], []]
    stage.clock.advance(150)
    assert stage.turns() == 2
    assert [len(each) for each in stage.done()] == [1, 1, 1]


def test_a_tick_that_is_put_off_comes_once() -> None:
    """As that of an idle timeout, which each batch puts off."""
    stage = Stage(1)
    (chain,) = stage.chains
    for _ in range(10_000):
        chain.due_ms = stage.clock.now_ms() + 10_000
        stage.give(0)
        assert stage.turns() == 1
    assert chain.done == ["step"] * 10_000
    assert len(stage.loop._ticks._heap) < 100, "those that are void do not pile up"
    stage.clock.advance(10_000)
    now = stage.clock.now_ms()
    assert stage.turns() == 1
    assert chain.done[10_000:] == [f"tick {now}"]


def test_state_is_tended_by_time_and_after_the_turns_of_its_chain() -> None:
    stage = Stage(2)
    stage.give(0, 5)
    stage.turns()
    assert [chain.tends for chain in stage.chains] == [5, 0]
    stage.clock.advance(500)
    stage.turns()
    assert [chain.tends for chain in stage.chains] == [6, 1]


def test_an_operator_that_may_take_no_rows_is_asked_again_soon() -> None:
    stage = Stage(2)
    stage.chains[0].can_take = False
    stage.give(0)
    stage.turns()
    tends = stage.chains[0].tends
    assert stage.loop.wait_s() <= 0.01
    stage.clock.advance(10)
    stage.turns()
    assert [chain.tends for chain in stage.chains] == [tends + 1, 0]
    looks = stage.chains[0].looks
    stage.chains[0].can_take = True
    stage.clock.advance(10)
    stage.turns()
    assert stage.chains[0].looks == looks + 1, "it may have work that waited"
    assert stage.loop.wait_s() > 0.1


def test_the_time_of_a_chain_is_busy_backpressured_or_idle() -> None:
    stage = Stage(2)
    chain = stage.chains[0]
    stage.give(0, 3)
    stage.give(1, 4)
    stage.turns()
    stage.clock.advance(100)
    chain.has_room = False
    stage.give(0)
    stage.turns()
    stage.clock.advance(200)
    blocked = stage.loop.metrics(0)
    chain.has_room = True
    stage.loop.bells[0].ring()
    stage.turns()
    assert blocked.backpressured_s == pytest.approx(0.2)
    told = stage.loop.metrics(0)
    # Idle also while the other one was busy.
    assert [told.busy_s, told.backpressured_s, told.idle_s] == pytest.approx([0.004, 0.2, 0.104])
    assert stage.loop.metrics(1).busy_s == pytest.approx(0.004)


def test_a_chain_tells_how_far_event_time_is_behind_the_clock() -> None:
    stage = Stage(1)
    told = []
    stage.clock.advance(10_000)
    for watermark in (MIN_WATERMARK, stage.clock.now_ms() - 2_500, MAX_WATERMARK):
        stage.chains[0].watermark = watermark
        metrics = stage.loop.metrics(0)
        told.append((metrics.watermark_ms, metrics.watermark_lag_s))
    assert told == [(None, None), (stage.clock.now_ms() - 2_500, 2.5), (MAX_WATERMARK, None)]


def test_the_slot_has_ended_when_all_chains_have() -> None:
    stage = Stage(2)
    for place in (1, 0):
        assert not stage.loop.have_ended
        stage.chains[place].has_ended = True
        stage.give(place)
        stage.turns()
    assert stage.loop.have_ended


def test_no_ring_of_another_thread_is_lost() -> None:
    stage, gifts = Stage(4), 3_000
    for chain in stage.chains:
        chain.is_timed = False

    def give(place: int) -> None:
        for _ in range(gifts):
            stage.chains[place].given.append(None)
            stage.loop.bells[place].ring()

    threads = [threading.Thread(target=give, args=(place % 4,)) for place in range(8)]
    for thread in threads:
        thread.start()
    turns = 0
    while turns < len(threads) * gifts:
        if stage.loop.turn():
            turns += 1
        else:
            assert stage.bell.wait(10), f"nothing comes any more after {turns} turns"
    for thread in threads:
        thread.join()
    assert stage.turns() == 0


def test_a_barrier_overtakes_when_its_time_has_come_also_in_a_chain_without_room() -> None:
    stage = Stage(3)
    chain = stage.chains[1]
    chain.has_room, chain.overtaking_ms = False, stage.loop.monotonic_ms() + 200
    stage.give(1)
    assert stage.turns() == 0
    assert chain.done == []
    assert 0.19 < stage.loop.wait_s() <= 0.2
    stage.clock.advance(199)
    assert stage.turns() == 0
    assert chain.done == []
    stage.clock.advance(1)
    assert stage.turns() == 0
    assert chain.done == [f"overtake {stage.loop.monotonic_ms()}"]


def test_a_barrier_does_not_wait_for_a_clock_that_was_set_back() -> None:
    stage = Stage(1)
    chain = stage.chains[0]
    chain.has_room, chain.overtaking_ms = False, stage.loop.monotonic_ms() + 200
    stage.give(0)
    assert stage.turns() == 0
    with patch.object(stage.clock, "now_ms", lambda: -3_600_000):
        assert 0.19 < stage.loop.wait_s() <= 0.2
        stage.clock.advance(200)
        assert stage.turns() == 0
    assert chain.done == ["overtake 200"]


def test_a_tick_is_not_forgotten_where_a_barrier_overtakes_before_it() -> None:
    stage = Stage(2)
    chain = stage.chains[0]
    now_ms = stage.clock.now_ms()
    chain.overtaking_ms, chain.due_ms = now_ms + 50, now_ms + 100
    stage.loop.bells[0].ring()
    assert stage.turns() == 0
    for _ in range(2):
        stage.clock.advance(50)
        stage.turns()
    assert chain.done == [f"overtake {now_ms + 50}", f"tick {now_ms + 100}"]
