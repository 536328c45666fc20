"""Elements from slot to slot: in order, held back by a slow receiver, and lost only aloud."""

from __future__ import annotations

import string
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pyarrow as pa
import pytest

from holdfast.runtime.network import Credentials, SlotServer
from holdfast.runtime.protocol.elements import Active, Barrier, Element, EndOfInput, Idle, Watermark
from holdfast.runtime.task.channel import Bell, Channel, Closed
from holdfast.storage import Fenced, Invalid, Taken, Unavailable
from support.jobs.networked_slots import (
    LISTENING,
    SCHEMA,
    STRANGER,
    TRUSTED,
    ZOMBIE,
    Errors,
    Slot,
    child,
    rows,
    sender_to,
    values_of,
)

SECONDS_S = 5.0


@pytest.fixture
def slot() -> Iterator[Slot]:
    slot = Slot()
    with slot.server:
        yield slot


def test_rows_and_marks_keep_their_order(slot: Slot) -> None:
    sent: list[Element] = [
        rows(1),
        Watermark(-5),
        rows(2, 3),
        Barrier(1),
        Idle(),
        Active(),
        Watermark(2**63 - 1),
        EndOfInput(),
        Barrier(2, 1),
    ]
    errors = Errors()
    sender = sender_to(slot.server.address, Bell(), errors)
    for element in sent:
        sender.send(element)
    sender.finish(SECONDS_S)
    sender.close()
    assert list(iter(slot.channels["x", 1].take, None)) == sent
    assert errors.is_empty
    assert not slot.lost


def test_many_senders_keep_each_its_order() -> None:
    slots = [Slot(capacity_bytes=4096) for _ in range(2)]
    count = 300
    elements = [
        [rows(sender, i), Watermark(i)][i % 5 == 0] for sender in (1, 2) for i in range(count)
    ]

    def send(to: Slot, sender: int) -> None:
        bell = Bell()
        out = sender_to(to.server.address, bell, Errors(), sender=sender, capacity_bytes=500)
        for element in elements[(sender - 1) * count : sender * count]:
            while not out.has_room:
                assert bell.wait(SECONDS_S)
            out.send(element)
        out.finish(SECONDS_S)
        out.close()

    with slots[0].server, slots[1].server, ThreadPoolExecutor(4) as pool:
        done = [pool.submit(send, to, sender) for to in slots for sender in (1, 2)]
        for to in slots:
            for sender in (1, 2):
                sent = elements[(sender - 1) * count : sender * count]
                values = [value for element in sent for value in values_of(element)]
                assert to.take_values(to.channels["x", sender], len(values)) == values
        for future in done:
            future.result(SECONDS_S)


def test_a_slow_receiver_holds_the_sender_back() -> None:
    """What is sent and not taken stays within queue, channel and what gRPC has on the way."""
    capacity, piece = 1 << 20, rows(*range(1 << 13))
    slot, bell, errors = Slot(capacity_bytes=capacity), Bell(), Errors()
    with slot.server:
        sender = sender_to(slot.server.address, bell, errors, capacity_bytes=capacity)
        channel, sent = slot.channels["x", 1], 0
        while sender.has_room or bell.wait(0.3):
            sender.send(piece)
            sent += 1
            assert sent * piece.nbytes < 64 << 20, "nothing holds the sender back"
        assert sender.size_bytes <= capacity + piece.nbytes
        assert channel.size_bytes <= capacity
        taken = slot.take_values(channel, sent * piece.num_rows)
        assert taken == piece.column(0).to_pylist() * sent
        assert bell.wait(SECONDS_S), "the sender has room again"
        sender.finish(SECONDS_S)
        sender.close()
    assert errors.is_empty


def test_a_full_channel_holds_up_no_other_of_its_stream() -> None:
    slot, count = Slot(capacity_bytes=1 << 14), 50
    with slot.server:
        first = sender_to(slot.server.address, Bell(), Errors(), edges="xy")
        second = first.sender.channel("y")
        piece = rows(*range(1 << 10))
        for number in range(count):
            first.send(piece)
            first.send(Barrier(number))
        for number in range(count):
            second.send(piece)
            second.send(Watermark(number))
        taken = slot.take(slot.channels["y", 1], 2 * count)
        assert taken == [each for number in range(count) for each in (piece, Watermark(number))]
        full = slot.channels["x", 1]
        assert 0 < full.size_bytes <= full.capacity_bytes
        taken = slot.take(full, 2 * count)
        assert taken == [each for number in range(count) for each in (piece, Barrier(number))]
        first.finish(SECONDS_S)
        first.close()
    assert not slot.lost


def test_two_slots_with_full_queues_to_each_other_go_on() -> None:
    capacity, count = 1 << 14, 50
    slots, errors = [Slot(capacity_bytes=capacity) for _ in range(2)], [Errors(), Errors()]
    piece = rows(*range(1 << 10))
    sent = [each for number in range(count) for each in (piece, Barrier(number))]
    with slots[0].server, slots[1].server:
        senders = [
            sender_to(
                slots[2 - number].server.address,
                Bell(),
                errors[number - 1],
                sender=number,
                capacity_bytes=capacity,
            )
            for number in (1, 2)
        ]
        for sender in senders:
            for element in sent:
                sender.send(element)
        assert not any(sender.has_room for sender in senders)
        for number in (1, 2):
            slot = slots[2 - number]
            assert slot.take(slot.channels["x", number], len(sent)) == sent
        for sender in senders:
            sender.finish(SECONDS_S)
        for sender in senders:
            sender.close()
    assert all(each.is_empty for each in errors)
    assert not any(slot.lost for slot in slots)


def test_many_edges_share_a_stream_and_its_threads() -> None:
    names = string.ascii_lowercase
    slot = Slot()
    slot.server.close()
    channels = {(edge, 1): Channel(1 << 16, slot.bell, schema=SCHEMA) for edge in names}
    server = SlotServer(
        LISTENING,
        TRUSTED,
        staging=slot.staging,
        channels=channels,
        handle=slot.handle,
        on_lost=slot.lose,
    )
    with server:
        before = threading.active_count()
        sender = sender_to(server.address, Bell(), Errors(), edges=names)
        for number, edge in enumerate(names):
            sender.sender.channel(edge).send(rows(number))
        for number, edge in enumerate(names):
            assert slot.take(channels[edge, 1], 1) == [rows(number)]
        assert threading.active_count() <= before + 4, "two to send, one to receive, one to grant"
        sender.finish(SECONDS_S)
        sender.close()
    assert not slot.lost


def test_rows_with_dictionaries_of_their_own_come_as_they_were() -> None:
    batches = [
        pa.record_batch({"word": pa.array(words).dictionary_encode(), "n": [1, None, 3]})
        for words in (["a", "b", "a"], ["c", None, "d"], ["e", "e", "e"])
    ]
    batches.append(batches[0].slice(1, 1))
    slot = Slot(schema=batches[0].schema)
    with slot.server:
        sender = sender_to(slot.server.address, Bell(), Errors(), schema=batches[0].schema)
        for batch in batches:
            sender.send(batch)
        for expected, found in zip(batches, slot.take(slot.channels["x", 1], 4), strict=True):
            assert isinstance(found, pa.RecordBatch)
            found.validate(full=True)
            assert found.to_pylist() == expected.to_pylist()
        sender.finish(SECONDS_S)
        sender.close()


def test_a_batch_too_large_for_one_message_comes_in_pieces(slot: Slot) -> None:
    large = pa.concat_batches([rows(*range(1000))] * 1500)
    sender = sender_to(slot.server.address, slot.bell, Errors())
    sender.send(large)
    sender.send(Barrier(1))
    channel = slot.channels["x", 1]
    taken: list[Element] = []
    while not taken or isinstance(taken[-1], pa.RecordBatch):
        taken += slot.take(channel, 1)
    sender.close()
    assert len(taken) > 2
    assert pa.concat_batches(taken[:-1]) == large


@pytest.mark.parametrize(
    ("credentials", "kind"), [(STRANGER, Invalid), (ZOMBIE, Fenced)], ids=["stranger", "zombie"]
)
def test_strangers_and_zombies_change_nothing(
    slot: Slot, credentials: Credentials, kind: type
) -> None:
    errors = Errors()
    sender = sender_to(slot.server.address, Bell(), errors, credentials=credentials)
    sender.send(rows(1))
    assert type(errors.wait(SECONDS_S)) is kind
    sender.close()
    assert slot.channels["x", 1].take() is None
    assert not slot.lost
    again = sender_to(slot.server.address, Bell(), Errors())
    again.send(rows(2))
    again.finish(SECONDS_S)
    again.close()
    assert slot.channels["x", 1].take() == rows(2)


def test_a_slot_has_one_stream(slot: Slot) -> None:
    first, errors = sender_to(slot.server.address, Bell(), Errors()), Errors()
    first.send(rows(1))
    slot.take(slot.channels["x", 1], 1)
    second = sender_to(slot.server.address, Bell(), errors)
    assert isinstance(errors.wait(SECONDS_S), Taken)
    first.send(rows(2))
    first.finish(SECONDS_S)
    first.close()
    second.close()
    assert slot.take(slot.channels["x", 1], 1) == [rows(2)]


def test_the_end_of_all_streams_is_awaited(slot: Slot) -> None:
    senders = [sender_to(slot.server.address, Bell(), Errors(), sender=sender) for sender in (1, 2)]
    for number, sender in enumerate(senders, start=1):
        sender.send(Barrier(number))
        slot.take(slot.channels["x", number], 1)
    for sender in senders:
        assert not slot.server.await_ends(0.02)
        sender.finish(SECONDS_S)
        sender.close()
    assert slot.server.await_ends(SECONDS_S)


def test_channels_and_schemas_that_do_not_fit_are_refused(slot: Slot) -> None:
    for edge, schema, message in (
        ("q", SCHEMA, "no such channel"),
        ("x", pa.schema([("b", pa.string())]), r"expected a: int64, found b: string"),
    ):
        errors = Errors()
        sender = sender_to(slot.server.address, Bell(), errors, edges=edge, schema=schema)
        with pytest.raises(Invalid, match=message):
            raise errors.wait(SECONDS_S)
        sender.close()
    assert slot.has_lost.wait(SECONDS_S)
    assert slot.lost[0][0] == 1


def test_rows_of_another_schema_fail_the_sender(slot: Slot) -> None:
    errors = Errors()
    sender = sender_to(slot.server.address, Bell(), errors)
    sender.send(pa.record_batch({"z": ["x"]}))
    assert isinstance(errors.wait(SECONDS_S), Invalid)
    with pytest.raises(Invalid):
        sender.finish(SECONDS_S)
    sender.send(rows(1))
    assert sender.size_bytes == 0
    sender.close()


def test_an_error_of_any_kind_fails_the_sender(slot: Slot) -> None:
    """What is no element stands for whatever goes wrong while a frame is made."""
    errors = Errors()
    sender = sender_to(slot.server.address, Bell(), errors)
    sender.send(cast(Barrier, object()))
    assert "TypeError" in str(errors.wait(SECONDS_S))
    assert sender.sender.end(SECONDS_S)
    with pytest.raises(Invalid, match="elements could not be sent"):
        sender.finish(SECONDS_S)
    sender.close()


def test_a_thread_that_cannot_be_started_fails_the_sender(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def start_few(thread: threading.Thread) -> None:
        if thread.name.startswith("holdfast-grants"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_few)
    errors = Errors()
    sender = sender_to(slot.server.address, Bell(), errors)
    assert "can't start new thread" in str(errors.wait(SECONDS_S))
    with pytest.raises(Invalid, match="elements could not be sent"):
        sender.finish(SECONDS_S)
    sender.close()


def test_an_error_of_any_kind_in_the_receiver_is_a_loss(slot: Slot) -> None:
    def offer(element: Element) -> None:
        raise RuntimeError(f"no place for {element}")

    slot.channels["x", 1].offer = offer  # type: ignore[method-assign]
    errors = Errors()
    sender = sender_to(slot.server.address, Bell(), errors)
    sender.send(Barrier(1))
    assert "no place for" in str(errors.wait(SECONDS_S))
    assert slot.has_lost.wait(SECONDS_S)
    assert "no place for" in str(slot.lost[0][1])
    sender.close()


def test_a_sender_that_closes_early_is_a_loss(slot: Slot) -> None:
    sender = sender_to(slot.server.address, Bell(), Errors())
    sender.send(rows(1))
    slot.take(slot.channels["x", 1], 1)
    sender.close()
    assert slot.has_lost.wait(SECONDS_S)
    number, error = slot.lost[0]
    assert number == 1
    assert isinstance(error, Unavailable)


def test_closing_the_receiver_ends_senders_that_say_nothing_and_those_that_wait() -> None:
    slot, errors = Slot(capacity_bytes=10), [Errors(), Errors()]
    senders = [
        sender_to(slot.server.address, Bell(), errors[sender - 1], sender=sender)
        for sender in (1, 2)
    ]
    for value in range(3):
        senders[0].send(rows(value))
    while not len(slot.channels["x", 1]):
        assert slot.bell.wait(SECONDS_S)
    assert slot.server.close(SECONDS_S)
    assert slot.server.close(SECONDS_S), "once more does no harm"
    for error, sender in zip(errors, senders, strict=True):
        assert isinstance(error.wait(SECONDS_S), Closed | Unavailable)
        sender.close()
    assert not slot.lost


def test_closing_a_sender_that_waits_for_a_slow_receiver() -> None:
    slot = Slot(capacity_bytes=10)
    with slot.server:
        sender = sender_to(slot.server.address, Bell(), Errors(), capacity_bytes=100)
        for _ in range(200):
            sender.send(rows(*range(10_000)))
        while not len(slot.channels["x", 1]):
            assert slot.bell.wait(SECONDS_S)
        with pytest.raises(Unavailable, match="not received in time"):
            sender.finish(0.05)
        sender.close()
        sender.close()


def test_a_receiver_that_is_killed_is_noticed_also_in_silence() -> None:
    with child() as (process, address):
        errors = Errors()
        sender = sender_to(address, Bell(), errors)
        sender.send(rows(1))
        process.kill()
        assert isinstance(errors.wait(SECONDS_S), Unavailable)
        with pytest.raises(Unavailable):
            sender.finish(SECONDS_S)
        sender.close()


def test_a_sender_that_is_killed_is_noticed_and_not_taken_for_finished(slot: Slot) -> None:
    with child(slot.server.address) as (process, _):
        assert slot.take(slot.channels["x", 1], 1) == [rows(1, 2)]
        process.kill()
        assert slot.has_lost.wait(SECONDS_S)
    number, error = slot.lost[0]
    assert number == 1
    assert isinstance(error, Unavailable)
    assert "no end" in str(error) or "broke off" in str(error)
