"""Strategies of alignment, as pure functions of what channels bring."""

from __future__ import annotations

import pyarrow as pa
import pytest

from holdfast.runtime.protocol.elements import Barrier
from holdfast.runtime.task.alignment import Aligned, AlignedExactlyOnce, Rows


def test_a_channel_whose_barrier_has_come_waits_until_all_have() -> None:
    alignment = AlignedExactlyOnce(3)
    assert alignment.aligning is None
    assert list(alignment.barrier(1, Barrier(4))) == []
    assert [alignment.may_read(channel) for channel in range(3)] == [True, False, True]
    assert alignment.aligning == 4
    assert list(alignment.barrier(0, Barrier(4))) == []
    assert list(alignment.barrier(2, Barrier(4))) == [Aligned(Barrier(4))]
    assert all(map(alignment.may_read, range(3)))
    assert alignment.aligning is None


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
