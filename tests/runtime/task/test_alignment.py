"""Strategies of alignment, as pure functions of what channels bring."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from holdfast.runtime.protocol.elements import Barrier
from holdfast.runtime.task.alignment import (
    AlignedExactlyOnce,
    Alignment,
    AlignmentEvent,
    Rows,
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


class AtLeastOnce(Alignment):
    """Counts barriers, and has no channel wait."""

    def __init__(self, channels: int) -> None:
        self.missing: dict[int, int] = {}
        self.channels = channels

    def may_read(self, channel: int) -> bool:
        return True

    def barrier(self, channel: int, barrier: Barrier) -> Sequence[AlignmentEvent]:
        number = barrier.checkpoint_id
        self.missing[number] = self.missing.get(number, self.channels) - 1
        if self.missing[number]:
            return ()
        del self.missing[number]
        return (barrier,)


class Unaligned(AtLeastOnce):
    """Cuts at the first barrier; keeps the rows of channels whose barrier is still to come."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.came: set[int] = set()
        self.kept: list[Any] = []

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
