"""Channels keep order and their bound; no ring of the bell is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from holdfast.runtime.protocol.elements import Barrier, Watermark
from holdfast.runtime.task.channel import Bell, Channel, Closed

SHORT_S = 0.05


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    """Eight bytes a row."""
    return pa.record_batch({"a": np.arange(first, first + count, dtype=np.int64)})


def in_thread(call: Callable[[], None]) -> Future[None]:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return future


def is_blocked(future: Future[None]) -> bool:
    try:
        future.result(SHORT_S)
    except TimeoutError:
        return True
    return False


def test_elements_come_in_order_and_count_while_they_wait() -> None:
    channel = Channel(1000, Bell())
    elements = [rows(3), Watermark(5), Barrier(1), rows(2)]
    for element in elements:
        channel.put(element)
    assert len(channel) == 4
    assert channel.size_bytes == 24 + 64 + 64 + 16
    assert [channel.take() for _ in elements] == elements
    assert channel.take() is None
    assert channel.size_bytes == 0


def test_rows_that_follow_each_other_are_joined_up_to_a_size() -> None:
    channel = Channel(1000, Bell())
    for element in (rows(3), rows(2, 3), rows(5, 5), Barrier(1), rows(1), rows(100)):
        channel.put(element)
    assert channel.take(80) == rows(10)
    assert channel.size_bytes == 64 + 8 + 800
    assert channel.take(80) == Barrier(1)
    assert channel.take(80) == rows(1)
    assert channel.take(80) == rows(100)
    assert channel.take(80) is None


def nested(array: pa.Array) -> pa.Array:
    lists = pa.ListArray.from_arrays(pa.array(range(len(array) + 1), pa.int32()), array)
    return pa.StructArray.from_arrays([lists], ["nested"])


@pytest.mark.parametrize("wrap", [lambda array: array, nested])
def test_rows_with_dictionaries_are_not_joined(wrap: Callable[[pa.Array], pa.Array]) -> None:
    """Each fits its 8-bit numbers; together they would not."""
    channel = Channel(100_000, Bell())
    kind = pa.dictionary(pa.int8(), pa.string())
    batches = [
        pa.record_batch({"a": wrap(pa.array(map(str, range(n, n + 100)), pa.string()).cast(kind))})
        for n in (0, 100)
    ]
    for batch in batches:
        channel.put(batch)
    assert [channel.take(100_000) for _ in batches] == batches
    channel.put(rows(1))
    channel.put(rows(2))
    channel.put(batches[0])
    assert channel.take(100_000) == pa.concat_batches([rows(1), rows(2)])


def test_a_full_channel_holds_its_producer_back() -> None:
    channel = Channel(100, Bell())
    channel.put(rows(10))
    waiting = in_thread(lambda: channel.put(rows(3)))
    assert is_blocked(waiting)
    channel.take()
    waiting.result(5)
    assert channel.size_bytes == 24


def test_room_for_some_but_not_for_this() -> None:
    channel = Channel(100, Bell())
    channel.put(rows(5))
    channel.put(rows(5))
    large, small = in_thread(lambda: channel.put(rows(12))), in_thread(lambda: channel.put(rows(2)))
    small.result(5)
    channel.take()
    assert is_blocked(large)
    channel.take()
    assert is_blocked(large)
    channel.take()
    large.result(5)


def test_an_element_larger_than_the_channel_enters_when_it_is_empty() -> None:
    channel = Channel(100, Bell())
    channel.put(rows(1000))
    assert not channel.has_room
    waiting = in_thread(lambda: channel.put(rows(1000)))
    assert is_blocked(waiting)
    channel.take()
    waiting.result(5)


def test_an_offer_goes_beyond_the_bound() -> None:
    channel = Channel(100, Bell())
    assert channel.has_room
    channel.offer(rows(12))
    channel.offer(rows(12))
    assert channel.size_bytes == 192
    channel.offer(Barrier(1))
    assert len(channel) == 3
    assert not channel.has_room


def test_closing_wakes_blocked_producers_and_refuses_new_ones() -> None:
    channel = Channel(100, Bell())
    channel.put(rows(12))
    waiting = in_thread(lambda: channel.put(rows(12)))
    assert is_blocked(waiting)
    channel.close()
    with pytest.raises(Closed):
        waiting.result(5)
    for send in (channel.put, channel.offer):
        with pytest.raises(Closed):
            send(rows(1))
    assert channel.take() is None
    assert channel.size_bytes == 0


def test_a_watcher_is_called_at_each_take() -> None:
    channel, sizes = Channel(100, Bell()), []
    channel.watch(lambda: sizes.append(channel.size_bytes))
    channel.put(rows(2))
    channel.put(rows(1))
    channel.take()
    channel.take()
    channel.take()
    assert sizes == [8, 0]


def test_a_ring_is_kept_for_the_next_wait_once() -> None:
    bell = Bell()
    assert not bell.wait(0)
    bell.ring()
    bell.ring()
    assert bell.wait(60)
    assert not bell.wait(SHORT_S)


def test_a_ring_wakes_the_waiting_thread() -> None:
    bell, waits = Bell(), threading.Event()

    def wait() -> None:
        waits.set()
        assert bell.wait(60)

    future = in_thread(wait)
    assert waits.wait(5)
    assert is_blocked(future)
    bell.ring()
    future.result(5)


def test_many_producers_lose_no_element_and_no_wake_up() -> None:
    """Each element is awaited without a timeout that could hide a lost ring."""
    producers, each = 8, 300
    bell = Bell()
    channels = [Channel(200, bell) for _ in range(3)]

    def produce(number: int) -> None:
        for i in range(each):
            channels[i % 3].put(rows(1 + i % 7, first=number * each + i))

    seen: list[list[int]] = [[] for _ in range(producers)]
    with ThreadPoolExecutor(producers) as pool:
        done = [pool.submit(produce, number) for number in range(producers)]
        left = producers * each
        while left:
            taken = [element for channel in channels if (element := channel.take()) is not None]
            for element in taken:
                assert isinstance(element, pa.RecordBatch)
                first = element.column(0)[0].as_py()
                seen[first // each].append(first % each)
            left -= len(taken)
            if not taken:
                assert bell.wait(30), "a producer put something and the bell did not ring"
        for future in done:
            future.result()
    for numbers in seen:
        for place in range(3):
            of_one = [number for number in numbers if number % 3 == place]
            assert of_one == sorted(of_one)
        assert sorted(numbers) == list(range(each))
