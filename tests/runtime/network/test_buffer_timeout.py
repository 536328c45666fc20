"""Small batches are sent together: those that wait anyway, and those that come within a timeout."""

from __future__ import annotations

import math
import threading

import numpy as np
import pyarrow as pa
import pytest

from holdfast.runtime.network.exchange_sender import OutgoingChannel
from holdfast.runtime.protocol.elements import Barrier, Watermark
from holdfast.runtime.task.channel import Bell
from support.jobs.networked_slots import SCHEMA, rows

CAPACITY_BYTES = 1 << 20


def channel(
    timeout_s: float, schema: pa.Schema = SCHEMA, *, is_granted: bool = True
) -> OutgoingChannel:
    """With room for all that is sent, if that `is_granted`."""
    made = OutgoingChannel(
        0,
        schema,
        capacity_bytes=CAPACITY_BYTES,
        timeout_s=timeout_s,
        changed=threading.Condition(threading.Lock()),
        bell=Bell(),
    )
    if is_granted:
        made.granted(CAPACITY_BYTES, CAPACITY_BYTES)
    return made


def sent(out: OutgoingChannel, now_s: float) -> list[object]:
    taken, size = out.begin(now_s)
    out.frame(taken)
    out.sent(size)
    return [*taken]


def test_rows_after_a_pause_are_sent_at_once_and_those_that_follow_within_the_timeout() -> None:
    out = channel(0.005)
    assert out.ready_s() == math.inf, "there is nothing"
    out.send(rows(1))
    assert out.ready_s() <= 0
    assert sent(out, 100.0) == [rows(1)]
    out.send(rows(2))
    out.send(rows(3))
    assert out.ready_s() == 100.005
    assert sent(out, 100.005) == [rows(2), rows(3)]
    assert out.size_bytes == 0
    out.send(rows(4))
    assert out.ready_s() == pytest.approx(100.01)
    assert out.ready_s() < 100.5, "a pause longer than the timeout costs nothing"


def test_a_batch_that_is_sent_in_pieces_leaves_memory_piece_by_piece() -> None:
    out, before = channel(0.0), pa.total_allocated_bytes()
    out.granted(64 << 20, 64 << 20)
    out.send(pa.record_batch({"a": pa.repeat(7, 1 << 20)}))  # in memory that Arrow counts
    whole = out.size_bytes
    while out.size_bytes > whole // 4:
        out.sent(out.begin(0.0)[1])
    assert pa.total_allocated_bytes() - before < whole // 2
    assert out.size_bytes > 0


def test_a_mark_sends_what_is_before_it() -> None:
    out = channel(60.0)
    out.send(rows(0))
    sent(out, 0.0)
    for element in (rows(1), rows(2), Barrier(1), rows(3)):
        out.send(element)
    assert out.ready_s() <= 0.0
    assert sent(out, 0.1) == [rows(1), rows(2)]
    assert out.ready_s() <= 0.0
    assert sent(out, 0.1) == [Barrier(1)]
    assert out.ready_s() == 60.1, "what follows the mark waits again"
    out.send(Watermark(1))
    assert sent(out, 0.1) == [rows(3)]


def test_enough_rows_wait_for_no_more() -> None:
    out = channel(60.0)
    out.send(rows(0))
    sent(out, 0.0)
    part = rows(*range(1 << 12))
    for _ in range(8):
        out.send(part)
        assert out.ready_s() == 60.0 or len(out.queue or ()) == 8
    assert out.ready_s() <= 0.0
    assert sent(out, 0.0) == [part] * 8


def test_without_a_timeout_only_what_waits_anyway_is_joined() -> None:
    out = channel(0.0)
    for number in range(3):
        out.send(rows(number))
        assert out.ready_s() <= 5.0
    assert sent(out, 5.0) == [rows(0), rows(1), rows(2)]
    out.send(rows(3))
    assert out.ready_s() <= 5.0


def test_no_more_is_joined_than_there_is_room_for() -> None:
    out = channel(0.005, is_granted=False)
    part = rows(*range(100))
    for _ in range(5):
        out.send(part)
    out.send(Barrier(1))
    assert out.ready_s() == math.inf
    out.granted(2 * part.nbytes + 10, CAPACITY_BYTES)
    assert out.ready_s() <= 0.0
    assert sent(out, 0.0) == [part] * 2
    assert out.ready_s() == math.inf, "nor does a mark overtake"
    assert out.queue is not None
    assert len(out.queue) == 4


def test_large_batches_are_cut_and_not_joined() -> None:
    out = channel(0.005)
    large = rows(*range(100_000))
    out.send(large)
    pieces = [sent(out, 0.0) for _ in range(len(out.queue or ()))]
    assert all(len(piece) == 1 for piece in pieces)
    assert pa.concat_batches([batch for (batch,) in pieces]).equals(large)


def test_rows_with_dictionaries_are_not_joined_and_do_not_wait() -> None:
    batch = pa.record_batch({"word": pa.array(np.array(["a", "b"])).dictionary_encode()})
    out = channel(60.0, batch.schema)
    for _ in range(3):
        out.send(batch)
    for _ in range(3):
        assert out.ready_s() <= 0.0
        assert sent(out, 0.0) == [batch]
