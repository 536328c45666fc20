"""Where the channels of a chain meet: alignment, event time, idleness, the end."""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Sequence

import pyarrow as pa
import pytest

from holdfast.runtime.protocol.elements import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    Active,
    Barrier,
    Element,
    EndOfInput,
    Idle,
    Watermark,
)
from holdfast.runtime.task.alignment import AlignedExactlyOnce, Rows
from holdfast.runtime.task.gate import Event, Gate


def gate_of(channels: int) -> Gate:
    return Gate(channels, AlignedExactlyOnce(channels))


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"number": pa.array(values, pa.int64())})


def test_rows_are_passed_with_their_channel() -> None:
    batch = rows(1)
    assert list(gate_of(2).receive(1, batch)) == [Rows(1, batch)]


def test_a_single_channel_is_always_aligned() -> None:
    gate = gate_of(1)
    assert list(gate.receive(0, Barrier(4))) == [Barrier(4)]
    assert gate.may_read(0)


def test_a_channel_whose_barrier_has_come_waits_for_the_others() -> None:
    gate = gate_of(3)
    assert list(gate.receive(1, Barrier(4))) == []
    assert [gate.may_read(channel) for channel in range(3)] == [True, False, True]
    assert list(gate.receive(0, Barrier(4))) == []
    assert list(gate.receive(2, Barrier(4))) == [Barrier(4)]
    assert all(map(gate.may_read, range(3)))


def test_barriers_of_two_checkpoints_do_not_mix() -> None:
    gate = gate_of(2)
    gate.receive(0, Barrier(4))
    with pytest.raises(AssertionError, match=r"channel 1 brings .*id=5.* while .*id=4"):
        gate.receive(1, Barrier(5))


def test_barriers_of_one_checkpoint_say_the_same() -> None:
    gate = gate_of(3)
    assert list(gate.receive(2, Barrier(4, 3))) == []
    for other in (Barrier(4, 2), Barrier(4)):
        with pytest.raises(AssertionError, match=r"brings .* while .*completed=3.* is aligned"):
            gate.receive(1, other)
    assert list(gate.receive(1, Barrier(4, 3))) == []
    assert list(gate.receive(0, Barrier(4, 3))) == [Barrier(4, 3)]
    assert list(gate.receive(0, Barrier(5, 4))) == []


def test_channels_that_have_ended_still_bring_barriers() -> None:
    gate = gate_of(2)
    gate.receive(0, EndOfInput())
    assert list(gate.receive(1, Barrier(1))) == []
    assert list(gate.receive(0, Barrier(1))) == [Barrier(1)]
    gate.receive(1, EndOfInput())
    gate.receive(0, Barrier(2))
    assert list(gate.receive(1, Barrier(2))) == [Barrier(2)]


def test_the_last_end_takes_event_time_to_its_end_first() -> None:
    gate = gate_of(2)
    assert list(gate.receive(0, EndOfInput())) == []
    assert list(gate.receive(1, Watermark(5))) == [Watermark(5)]
    assert list(gate.receive(1, EndOfInput())) == [Watermark(MAX_WATERMARK), EndOfInput()]


def test_a_channel_cannot_end_twice() -> None:
    gate = gate_of(2)
    gate.receive(0, EndOfInput())
    with pytest.raises(AssertionError, match="channel 0 has ended twice"):
        gate.receive(0, EndOfInput())


def test_idleness_is_announced_once_all_channels_are_idle() -> None:
    gate = gate_of(2)
    assert list(gate.receive(0, Idle())) == []
    assert list(gate.receive(1, Idle())) == [Idle()]
    assert list(gate.receive(1, Idle())) == []
    assert list(gate.receive(0, Active())) == [Active()]
    assert list(gate.receive(0, Active())) == []
    assert list(gate.receive(0, Idle())) == [Idle()]


def test_rows_of_an_idle_channel_change_nothing() -> None:
    gate = gate_of(2)
    gate.receive(0, Watermark(3))
    assert list(gate.receive(0, Idle())) == []
    batch = rows(1)
    assert list(gate.receive(0, batch)) == [Rows(0, batch)]
    assert list(gate.receive(1, Watermark(9))) == [Watermark(9)], "channel 0 is not waited for"
    assert list(gate.receive(1, Idle())) == [Idle()]
    assert list(gate.receive(0, batch)) == [Rows(0, batch)]
    assert list(gate.receive(1, Idle())) == [], "it is quiet still"
    gate.receive(0, Active())
    assert list(gate.receive(1, Watermark(20))) == [], "now it is waited for"
    assert list(gate.receive(0, Watermark(15))) == [Watermark(15)]


def test_a_watermark_that_moves_nothing_says_all_the_same_that_the_chain_is_awake() -> None:
    gate = gate_of(1)
    gate.receive(0, Watermark(9))
    assert list(gate.receive(0, Idle())) == [Idle()]
    assert list(gate.receive(0, Watermark(9))) == [Active()]


def test_an_idle_channel_lets_time_go_on_before_it_is_quiet() -> None:
    gate = gate_of(2)
    gate.receive(0, Watermark(9))
    gate.receive(1, Watermark(3))
    assert list(gate.receive(1, Idle())) == [Watermark(9)]
    assert list(gate.receive(0, Idle())) == [Idle()]
    assert list(gate.receive(1, Watermark(20))) == [Active(), Watermark(20)]


def test_an_end_beside_an_idle_channel_is_quiet_and_not_the_end() -> None:
    gate = gate_of(2)
    gate.receive(0, Watermark(9))
    assert list(gate.receive(1, Idle())) == [Watermark(9)]
    assert list(gate.receive(0, EndOfInput())) == [Idle()]
    assert list(gate.receive(1, Watermark(12))) == [Active(), Watermark(12)]
    assert list(gate.receive(1, EndOfInput())) == [Watermark(MAX_WATERMARK), EndOfInput()]


def test_a_channel_at_the_end_of_time_does_not_wake_the_chain() -> None:
    gate = gate_of(2)
    gate.receive(0, Idle())
    assert list(gate.receive(1, Idle())) == [Idle()]
    assert list(gate.receive(0, Watermark(MAX_WATERMARK))) == []
    assert list(gate.receive(0, EndOfInput())) == []
    assert list(gate.receive(1, Watermark(5))) == [Active(), Watermark(5)]


class Channels:
    """Channels with rows, watermarks and barriers, read by a gate in any order."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.count = chance.randint(1, 5)
        self.barriers = chance.randint(1, 6)
        self.waiting = [deque(self._elements(channel)) for channel in range(self.count)]
        self.before: list[list[list[int]]] = []
        """For each checkpoint and channel, the rows that come before the barrier."""
        for number in range(1, self.barriers + 1):
            self.before.append([_rows_before(channel, number) for channel in self.waiting])

    def _elements(self, channel: int) -> list[Element]:
        elements: list[Element] = []
        number, has_ended = channel * 1_000, False
        for barrier in range(1, self.barriers + 1):
            for _ in range(0 if has_ended else self._chance.randint(0, 6)):
                number += 1
                time = Watermark(self._chance.randrange(100))
                mark = self._chance.choice((Idle(), Active(), time, None))
                elements.append(rows(number) if mark is None else mark)
            if not has_ended and self._chance.random() < 0.2:
                elements.append(EndOfInput())
                has_ended = True
            elements.append(Barrier(barrier))
        return elements if has_ended else [*elements, EndOfInput()]

    def read(self, gate: Gate) -> list[tuple[Event, ...]]:
        told: list[tuple[Event, ...]] = []
        while True:
            readable = [
                channel
                for channel in range(self.count)
                if self.waiting[channel] and gate.may_read(channel)
            ]
            if not readable:
                return told
            channel = self._chance.choice(readable)
            told.append(tuple(gate.receive(channel, self.waiting[channel].popleft())))


def _rows_before(channel: deque[Element], checkpoint_id: int) -> list[int]:
    found: list[int] = []
    for element in channel:
        if element == Barrier(checkpoint_id):
            break
        if isinstance(element, pa.RecordBatch):
            found += element.column(0).to_pylist()
    return found


@pytest.mark.parametrize("seed", range(200))
def test_a_snapshot_holds_just_what_came_before_its_barrier_in_each_channel(seed: int) -> None:
    channels = Channels(random.Random(seed))
    told = channels.read(gate_of(channels.count))
    assert not any(channels.waiting), "nothing is stuck"
    delivered: list[list[int]] = [[] for _ in range(channels.count)]
    aligned, time, ends = 0, MIN_WATERMARK, 0
    for event in [event for events in told for event in events]:
        match event:
            case Rows(channel, batch):
                delivered[channel] += batch.column(0).to_pylist()
            case Barrier() as barrier:
                aligned += 1
                assert barrier == Barrier(aligned), "in order, each once"
                assert delivered == channels.before[aligned - 1]
            case Watermark(timestamp):
                assert timestamp > time
                time = timestamp
            case EndOfInput():
                ends += 1
    assert aligned == channels.barriers
    assert (ends, time) == (1, MAX_WATERMARK)


def _marks_of(events: Sequence[Event]) -> list[Element]:
    """What a chain that passes everything on puts into its channels."""
    marks: list[Element] = []
    for event in events:
        match event:
            case Rows(_, batch):
                marks.append(batch)
            case Watermark() | Idle() | Active():
                marks.append(event)
    return marks


@pytest.mark.parametrize("seed", range(100))
def test_a_downstream_gate_is_idle_exactly_while_its_upstream_is(seed: int) -> None:
    """Two gates in a row: the second one knows of the first one's sources whether one is active."""
    chance = random.Random(seed)
    count = chance.randint(1, 4)
    gate, after = gate_of(count), gate_of(2)
    after.receive(1, Watermark(10_000))
    idle: set[int] = set()
    for _ in range(100):
        channel = chance.randrange(count)
        mark = chance.choice((Idle(), Active(), Watermark(chance.randrange(100)), rows(1)))
        if isinstance(mark, Idle):
            idle.add(channel)
        elif isinstance(mark, Active | Watermark):
            idle.discard(channel)
        for passed_on in _marks_of(gate.receive(channel, mark)):
            after.receive(0, passed_on)
        watched = copy.deepcopy(after)
        is_waiting = not watched.receive(1, Watermark(20_000))
        assert is_waiting == (len(idle) < count)
