"""Strategies of alignment, as pure functions of what channels bring."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.protocol.elements import Barrier
from holdfast.runtime.task.alignment import (
    AlignedExactlyOnce,
    Alignment,
    AlignmentEvent,
    AtLeastOnce,
    Rows,
    alignment_of,
)
from holdfast.runtime.task.gate import Gate


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": values})


def test_a_channel_whose_barrier_has_come_waits_until_all_have() -> None:
    alignment = AlignedExactlyOnce(3)
    assert list(alignment.barrier(1, Barrier(4))) == []
    assert [alignment.may_read(channel) for channel in range(3)] == [True, False, True]
    assert list(alignment.barrier(0, Barrier(4))) == []
    assert list(alignment.barrier(2, Barrier(4))) == [Barrier(4)]
    assert all(map(alignment.may_read, range(3)))


def test_rows_are_processed_while_barriers_are_on_their_way() -> None:
    alignment, batch = AlignedExactlyOnce(2), pa.record_batch({"n": [1]})
    alignment.barrier(0, Barrier(1))
    assert list(alignment.rows(1, batch)) == [Rows(1, batch)]


@pytest.mark.parametrize("other", [Barrier(5), Barrier(4, completed=3)])
def test_barriers_that_differ_are_a_bug(other: Barrier) -> None:
    alignment = AlignedExactlyOnce(2)
    alignment.barrier(0, Barrier(4))
    with pytest.raises(AssertionError, match=r"every channel must bring the same"):
        alignment.barrier(1, other)


def test_no_channel_waits_at_least_once() -> None:
    alignment, batch = AtLeastOnce(2), rows(1)
    assert list(alignment.barrier(0, Barrier(4))) == []
    assert all(map(alignment.may_read, range(2)))
    assert list(alignment.rows(0, batch)) == [Rows(0, batch)]
    assert list(alignment.barrier(1, Barrier(4))) == [Barrier(4)]


def test_several_checkpoints_are_counted_at_once_at_least_once() -> None:
    alignment = AtLeastOnce(3)
    brought = [(0, 4), (0, 5), (1, 4), (0, 7), (1, 5), (2, 4), (2, 5), (2, 7), (1, 7)]
    cuts = [[*alignment.barrier(channel, Barrier(number))] for channel, number in brought]
    assert [cut for each in cuts for cut in each] == [Barrier(4), Barrier(5), Barrier(7)]
    assert [place for place, each in enumerate(cuts) if each] == [5, 6, 8]


@pytest.mark.parametrize("other", [Barrier(5), Barrier(3), Barrier(4, completed=3)])
def test_barriers_that_differ_are_a_bug_at_least_once_too(other: Barrier) -> None:
    alignment = AtLeastOnce(2)
    alignment.barrier(0, Barrier(4))
    with pytest.raises(AssertionError, match=r"every channel must bring the same"):
        alignment.barrier(1, other)


@st.composite
def orders_of_barriers(draw: st.DrawFn) -> tuple[int, list[int]]:
    """How many channels there are, and which of them is read next; each brings all barriers."""
    channels, barriers = draw(st.integers(1, 5)), draw(st.integers(0, 6))
    return channels, draw(st.permutations([*range(channels)] * barriers))


@given(orders_of_barriers())
def test_a_checkpoint_is_cut_when_its_last_barrier_comes(order: tuple[int, list[int]]) -> None:
    """By the model: a channel's nth barrier is that of the nth checkpoint."""
    channels, reads = order
    alignment, came = AtLeastOnce(channels), [0] * channels
    for channel in reads:
        complete = min(came)
        came[channel] += 1
        cut = [*alignment.barrier(channel, Barrier(came[channel]))]
        assert cut == [Barrier(number) for number in range(complete + 1, min(came) + 1)]


def test_each_mode_has_its_strategy() -> None:
    assert isinstance(alignment_of("exactly-once", 2), AlignedExactlyOnce)
    assert isinstance(alignment_of("at-least-once", 2), AtLeastOnce)


class Unaligned(Alignment):
    """Cuts at the first barrier; keeps the rows of channels whose barrier is still to come."""

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.came: set[int] = set()
        self.kept: list[Any] = []

    def may_read(self, channel: int) -> bool:
        return True

    def barrier(self, channel: int, barrier: Barrier) -> Sequence[AlignmentEvent]:
        is_first = not self.came
        self.came = set() if len(self.came) + 1 == self.channels else {*self.came, channel}
        return (barrier,) if is_first else ()

    def rows(self, channel: int, batch: pa.RecordBatch) -> Sequence[AlignmentEvent]:
        if self.came and channel not in self.came:
            self.kept.append(batch.column(0).to_pylist())
        return super().rows(channel, batch)


@pytest.mark.parametrize(
    ("kind", "cut_behind"), [(AlignedExactlyOnce, 2), (AtLeastOnce, 3), (Unaligned, 1)]
)
def test_a_gate_cuts_where_its_alignment_says(kind: Any, cut_behind: int) -> None:
    """By one channel come 1, the barrier, 3; then by the other 2, the barrier."""
    alignment = kind(2)
    gate, events = Gate(2, alignment), list[Any]()
    brought = deque((0, each) for each in (rows(1), Barrier(4), rows(3)))
    brought += ((1, each) for each in (rows(2), Barrier(4)))
    while brought:
        channel, element = brought.popleft()
        if gate.may_read(channel):
            events += gate.receive(channel, element)
        else:
            brought.append((channel, element))
    (cut,) = (place for place, event in enumerate(events) if isinstance(event, Barrier))
    assert cut == cut_behind
    assert len(events) == 4
    if kind is Unaligned:
        assert alignment.kept == [[2]], "it is in the checkpoint, though behind the cut"
