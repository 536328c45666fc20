"""Rows that tasks push to a slot: staged whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from holdfast.runtime.network import Credentials, SlotClient
from holdfast.runtime.protocol.elements import Barrier, Watermark
from holdfast.runtime.protocol.messages import Admit, MarkSource, PushKey, RoomFor, Winner
from holdfast.runtime.task.channel import Closed
from holdfast.runtime.task.staging import Superseded
from holdfast.storage import Fenced, HoldfastError, Invalid, Unavailable
from support.jobs.networked_slots import SCHEMA, STRANGER, TRUSTED, ZOMBIE, Slot, child, rows

KEY = PushKey("s", "e", 0, 0, 7)


@pytest.fixture
def slot() -> Iterator[Slot]:
    slot = Slot()
    with slot.server:
        yield slot


@pytest.fixture
def client(slot: Slot) -> Iterator[SlotClient]:
    with SlotClient(slot.server.address, TRUSTED) as client:
        yield client


def admit(sequence: int, batch: int, *winners: tuple[int, int], **more: int) -> Admit:
    named = [Winner(*winner) for winner in winners]
    return Admit(source="s", sequence=sequence, batch=batch, winners=named, **more)


def test_a_push_is_staged_when_it_returns(slot: Slot, client: SlotClient) -> None:
    client.push_all(KEY, SCHEMA, [rows(1, 2), rows(), rows(3)])
    client.push_all(KEY._replace(split=1, attempt=8), SCHEMA, [])
    assert slot.staging.backlog_bytes("s") == 24
    assert client.call(admit(1, 0, (0, 7), (1, 8), watermark=4))
    taken = slot.take(slot.source, 4)
    assert [each for each in taken if each != rows()] == [rows(1, 2), rows(3), Watermark(4)]


def test_a_push_that_is_not_finished_does_not_count(slot: Slot, client: SlotClient) -> None:
    with client.push(KEY, SCHEMA) as push:
        push.add(rows(1))
    with pytest.raises(HoldfastError, match="did not all arrive"):
        client.call(admit(1, 0, (0, 7)))
    with SlotClient(slot.server.address, TRUSTED) as other:
        other.push(KEY, SCHEMA).add(rows(1))
    client.push_all(KEY, SCHEMA, [rows(5)])
    client.call(admit(1, 0, (0, 7)))
    assert slot.take(slot.source, 1) == [rows(5)]


def test_a_command_that_is_sent_again_is_not_done_again(slot: Slot, client: SlotClient) -> None:
    client.push_all(KEY, SCHEMA, [rows(1)])
    assert [client.call(admit(1, 0, (0, 7))) for _ in range(3)] == [True, False, False]
    assert len(slot.source) == 1


def test_a_barrier_says_what_it_was_given(slot: Slot, client: SlotClient) -> None:
    for sequence, completed in ((1, None), (2, 7)):
        barrier = Barrier(sequence + 7, completed)
        command = MarkSource(source="s", sequence=sequence, mark=barrier)
        assert client.call(command)
    assert slot.take(slot.source, 2) == [Barrier(8), Barrier(9, 7)]


def test_zombie_tasks_are_told_so(client: SlotClient) -> None:
    with client.push(KEY, SCHEMA) as slow:
        slow.add(rows(1))
        client.call(admit(1, 0))
        with pytest.raises(Superseded, match="attempt 7"):
            slow.finish()
    with pytest.raises(Superseded, match="the job is in order"):
        client.push_all(KEY, SCHEMA, [rows(*range(1000))] * 100)
    client.push_all(KEY._replace(batch=1), SCHEMA, [rows(1)])


def test_room_is_awaited_over_the_network(client: SlotClient) -> None:
    client.push_all(KEY, SCHEMA, [rows(1)])
    assert client.call(RoomFor(source="s", limit_bytes=8, timeout_s=0.0))
    assert not client.call(RoomFor(source="s", limit_bytes=7, timeout_s=0.02))


@pytest.mark.parametrize(
    ("credentials", "kind", "message"),
    [
        (STRANGER, Invalid, "token is not that of this job"),
        (ZOMBIE, Fenced, "expected attempt 3, found attempt 2"),
        (Credentials(token=TRUSTED.token, attempt=4), Fenced, "found attempt 4"),
        (Credentials(token="", attempt=3), Invalid, "token"),
    ],
)
def test_strangers_and_zombies_change_nothing(
    slot: Slot, credentials: Credentials, kind: type[HoldfastError], message: str
) -> None:
    with SlotClient(slot.server.address, credentials) as client:
        with pytest.raises(kind, match=message):
            client.push_all(KEY, SCHEMA, [rows(1)])
        with pytest.raises(kind, match=message):
            client.call(admit(1, 0))
    assert slot.staging.backlog_bytes("s") == 0
    assert slot.staging.admit("s", 1, batch=0, winners=[])


def test_rows_of_another_schema_are_refused(client: SlotClient) -> None:
    for schema in (pa.schema([("b", pa.int64())]), pa.schema([("a", pa.int32())]), pa.schema([])):
        with pytest.raises(Invalid, match=r"edge 'e'.*expected a: int64"):
            client.push_all(KEY, schema, [])
    with client.push(KEY, SCHEMA) as push, pytest.raises(Invalid):
        push.add(pa.record_batch({"z": ["x"]}))
    strict = pa.schema([pa.field("a", pa.int64(), nullable=False)], {"made": "elsewhere"})
    client.push_all(KEY, strict, [rows(1).cast(strict)])


def test_unknown_edges_are_named(client: SlotClient) -> None:
    with pytest.raises(Invalid, match="no such edge: expected 'e', found 'q'"):
        client.push_all(KEY._replace(edge="q"), SCHEMA, [rows(1)])


def test_columns_of_every_kind_come_as_they_were() -> None:
    slot = Slot(schema=None)
    batches = [
        pa.record_batch(
            {
                "dictionary": pa.array(words).dictionary_encode(),
                "list": pa.array([[1, None], None, []]),
                "struct": pa.array([{"x": 1, "y": ["a"]}, None, {"x": None, "y": None}]),
                "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
                "nested": pa.ListArray.from_arrays(
                    [0, 1, 2, 3], pa.array(words).dictionary_encode()
                ),
                "null": pa.nulls(3),
            }
        )
        for words in (["a", "b", "a"], ["c", None, "d"], ["e", "e", "e"])
    ]
    key = KEY
    with slot.server, SlotClient(slot.server.address, TRUSTED) as client:
        client.push_all(key, batches[0].schema, [*batches, batches[0].slice(1, 1)])
        client.call(admit(1, 0, (0, 7)))
        taken = slot.take(slot.source, 4)
    for expected, found in zip([*batches, batches[0].slice(1, 1)], taken, strict=True):
        assert isinstance(found, pa.RecordBatch)
        found.validate(full=True)
        assert found.to_pylist() == expected.to_pylist()


@pytest.mark.slow
def test_a_batch_of_more_than_a_hundred_megabytes(slot: Slot, client: SlotClient) -> None:
    large = rows(*range(1000))
    large = pa.concat_batches([large] * 20_000)
    assert large.nbytes > 150 << 20
    client.push_all(KEY, SCHEMA, [large])
    client.call(admit(1, 0, (0, 7)))
    taken = list(iter(slot.source.take, None))
    assert pa.concat_batches([each for each in taken if isinstance(each, pa.RecordBatch)]) == large


def test_a_large_batch_fills_a_small_channel_no_further_than_by_a_small_piece() -> None:
    slot = Slot(capacity_bytes=128 << 10)
    large = rows(*range(1 << 18))
    with slot.server, SlotClient(slot.server.address, TRUSTED) as client:
        client.push_all(KEY, SCHEMA, [large])
        client.call(admit(1, 0, (0, 7)))
        taken: list[object] = []
        while len(taken) < large.num_rows:
            assert 0 < slot.source.size_bytes <= (128 + 64) << 10
            taken += slot.take_values(slot.source, 1)
    assert taken == large.column(0).to_pylist()


def test_closing_the_server_ends_a_push_that_says_nothing(slot: Slot, client: SlotClient) -> None:
    with client.push(KEY, SCHEMA) as push:
        push.add(rows(1))
        assert slot.server.close(5.0)
        with pytest.raises(Closed):
            push.finish()


def test_a_slot_that_is_killed_fails_the_push() -> None:
    with child() as (process, address), SlotClient(address, TRUSTED, retry_for_s=0.2) as client:
        with client.push(KEY, SCHEMA) as push:
            push.add(rows(1))
            process.kill()
            process.wait()
            with pytest.raises(Unavailable):
                push.finish()
        with pytest.raises(Unavailable):
            client.push_all(KEY, SCHEMA, [rows(1)])
        with pytest.raises(Unavailable, match="cannot be reached"):
            client.call(admit(1, 0))
