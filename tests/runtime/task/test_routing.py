"""The ways out of a chain."""

from __future__ import annotations

import pyarrow as pa

from holdfast.runtime.planning.partitioning import Partitioner
from holdfast.runtime.protocol.elements import Idle
from holdfast.runtime.task.channel import Bell, Channel
from holdfast.runtime.task.routing import ChannelOutlet, Router

STRICT = pa.schema([pa.field("id", pa.int64(), nullable=False)])
LOOSE = pa.schema([("id", pa.int64())])


def test_room_is_told_of_where_restored_rows_took_it() -> None:
    """They are not sent by the chain that waits for room."""
    bell = Bell()
    channel = Channel(100, Bell())
    outlet = ChannelOutlet(channel, bell)
    full = pa.record_batch([pa.array(range(50))], schema=STRICT)
    channel.restore([full, full])
    assert not outlet.has_room
    for rings in (False, True):
        assert channel.take() is not None
        assert (outlet.has_room, bell.wait(0)) == (rings, rings)
    outlet.send(full)
    assert channel.take() is not None
    assert not bell.wait(0), "no chain was told that there is no room"


def test_rows_get_the_schema_of_the_edge_before_they_are_split() -> None:
    bell = Bell()
    channels = [Channel(1_000, Bell()) for _ in range(2)]
    partitioner = Partitioner(["id"], LOOSE, 2, 16)
    router = Router([ChannelOutlet(each, bell) for each in channels], partitioner, LOOSE)
    assert router.has_room
    router.rows(pa.record_batch([pa.array(range(50))], schema=STRICT))
    router.mark(Idle())
    found: list[int] = []
    for channel in channels:
        batch = channel.take()
        assert isinstance(batch, pa.RecordBatch)
        assert batch.schema == LOOSE
        found += batch.column(0).to_pylist()
        assert channel.take() == Idle()
    assert sorted(found) == list(range(50))
    router.rows(pa.record_batch([pa.array(range(500))], schema=STRICT))
    has_room = [router.has_room]
    for channel in channels:
        assert not bell.wait(0)
        assert channel.take() is not None
        assert bell.wait(0), "the chain that waits for room is told"
        has_room.append(router.has_room)
    assert has_room == [False, False, True]
