"""Messages of an attacker that knows the job's secret, or has got into a slot, run no code here.

That a stranger gets not so far is in `test_protection.py`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight

from holdfast.runtime.network import SlotClient
from holdfast.runtime.network.authentication import headers_of
from holdfast.runtime.network.element_stream import ACKNOWLEDGED, END, PULSE
from holdfast.runtime.network.exchange_frames import FRAMES, RowFrames, schema_frame
from holdfast.runtime.network.flight_errors import from_wire
from holdfast.runtime.network.server import ACTION, Opening
from holdfast.runtime.protocol.elements import Mark
from holdfast.runtime.protocol.messages import (
    BeginSavepoint,
    Exchange,
    Push,
    PushKey,
    ToDriver,
    ToSlot,
)
from support.jobs.networked_slots import SCHEMA, TRUSTED, Slot


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "it ran"
    pickle.loads(pickle.dumps(Bomb(path)))
    assert path.exists(), "what is not unpickled proves nothing if it does nothing"
    path.unlink()
    yield path
    assert not path.exists(), "code that came over the network has run"


@pytest.fixture
def slot() -> Iterator[Slot]:
    slot = Slot()
    with slot.server:
        yield slot


@pytest.fixture
def caller(slot: Slot) -> Iterator[tuple[Any, Any]]:
    client = flight.FlightClient(slot.server.address)
    headers = headers_of(TRUSTED, slot.server.address)
    yield client, flight.FlightCallOptions(headers=headers, timeout=10)
    client.close()


def test_a_pickle_is_no_message(slot: Slot, caller: tuple[Any, Any], path: Path) -> None:
    client, options = caller
    bomb = pickle.dumps(Bomb(path))
    inside = msgspec.msgpack.encode(
        {"type": "begin_savepoint", "checkpoint_id": 1, "folder": bomb, "format": "native"}
    )
    older = msgspec.msgpack.encode(
        {
            "type": "inject_barrier",
            "source": "s",
            "sequence": 1,
            "checkpoint_id": 1,
            "completed": None,
            "savepoint": {"folder": bomb, "format": "native", "ends_job": False},
        }
    )
    for body in (bomb, inside, older):
        try:
            list(client.do_action(flight.Action(ACTION, body), options))
        except flight.FlightError:
            continue
        (barrier,) = slot.take(slot.source, 1)
        assert b"pickle" not in repr(barrier).encode(), "what is not known is dropped"
    assert slot.commands == []


PUSH = Push(PushKey("s", "e", 1, 0, 0))
EXCHANGE = Exchange(sender=1, edges=["x"])


def streamed(
    caller: tuple[Any, Any], opening: Push | Exchange, schema: pa.Schema, frame: bytes
) -> None:
    """Send a row, the frame, and the end; returns when all was received.

    Raises what the slot answers instead.
    """
    client, options = caller
    descriptor = flight.FlightDescriptor.for_command(msgspec.msgpack.encode(opening))
    writer, reader = client.do_exchange(descriptor, options)
    try:
        with suppress(pa.ArrowException):  # it may have been refused by now; the answer says so
            row = pa.record_batch([[1]], schema=schema)
            if isinstance(opening, Push):
                writer.begin(schema)
                writer.write_batch(row)
            else:
                writer.begin(FRAMES)
                for told in (schema_frame(0, schema), RowFrames(0, schema).frame([row])):
                    writer.write_with_metadata(told.data, told.head)
            writer.write_metadata(frame)
            writer.write_metadata(END)
            writer.done_writing()
        answers = [bytes(chunk.app_metadata) for chunk in iter(reader.read_chunk, None)]
        assert answers[-1] == ACKNOWLEDGED
    finally:
        reader.cancel()


@pytest.mark.parametrize("opening", [PUSH, EXCHANGE])
def test_a_stream_brings_rows_and_marks_and_nothing_else(
    caller: tuple[Any, Any], path: Path, opening: Push | Exchange
) -> None:
    streamed(caller, opening, SCHEMA, pickle.dumps(Bomb(path)))


def test_a_mark_that_is_none_ends_the_stream_and_is_told(
    slot: Slot, caller: tuple[Any, Any], path: Path
) -> None:
    bomb = b"m" + bytes(4) + pickle.dumps(Bomb(path))
    with pytest.raises(flight.FlightError, match="a mark in a stream cannot be read"):
        streamed(caller, EXCHANGE, SCHEMA, bomb)
    ((sender, error),) = slot.lost
    assert (sender, error.what) == (1, "a mark in a stream cannot be read")
    streamed(caller, PUSH, SCHEMA, bomb)  # whose rows have no marks between them


@pytest.mark.parametrize("opening", [PUSH, EXCHANGE])
def test_types_of_columns_bring_no_code(
    caller: tuple[Any, Any], path: Path, opening: Push | Exchange
) -> None:
    said = {
        "ARROW:extension:name": "arrow.py_extension_type",
        "ARROW:extension:metadata": pickle.dumps(Bomb(path)),
    }
    streamed(caller, opening, SCHEMA.with_metadata(said), PULSE)
    other = Push(PushKey("s", "e", 2, 0, 0)) if opening is PUSH else Exchange(sender=2, edges=["x"])
    # An unregistered extension type is read as its storage type: numbers.
    streamed(caller, other, pa.schema([pa.field("a", pa.int64(), metadata=said)]), PULSE)


def test_an_answer_is_not_unpickled_either(path: Path) -> None:
    bomb = pickle.dumps(Bomb(path))
    assert from_wire(flight.FlightServerError("no", bomb)) is None
    told = msgspec.msgpack.encode({"kind": bomb, "what": bomb})
    assert from_wire(flight.FlightServerError("no", told)) is None


def test_a_place_is_text(slot: Slot, path: Path) -> None:
    """That its folder is called as one of a savepoint the slot makes sure: see `test_slot.py`."""
    told = BeginSavepoint(
        checkpoint_id=1,
        directory=pickle.dumps(Bomb(path), protocol=0).decode(),
        folder="savepoint-1",
        format="native",
        ends_job=False,
    )
    with SlotClient(slot.server.address, TRUSTED) as client:
        assert client.call(told)
    assert slot.commands == [told]


def test_no_message_carries_bytes_of_an_undeclared_format() -> None:
    """A pickle would travel as such. Marks, which go from slot to slot, have numbers only."""
    found: set[str] = set()

    seen: list[Any] = []

    def look(kind: Any, where: str) -> None:
        if isinstance(kind, msgspec.inspect.BytesType | msgspec.inspect.AnyType):
            found.add(where)
        if kind is None or any(kind is each for each in seen):
            return
        seen.append(kind)
        for field in getattr(kind, "fields", ()):
            name = getattr(kind, "cls", tuple).__name__
            look(field.type, f"{name}.{field.name}")
        for part in ("item_type", "key_type", "value_type"):
            look(getattr(kind, part, None), where)
        for part in (*getattr(kind, "types", ()), *getattr(kind, "item_types", ())):
            look(part, where)

    for message in (ToSlot, ToDriver, Opening):
        look(msgspec.inspect.type_info(message), "")
    assert found == {"Collect.rows", "InlineHandle.data", "StateSnapshot.attributes"}
    marks = msgspec.inspect.multi_type_info([*get_args(Mark)])
    numbers = (msgspec.inspect.IntType, msgspec.inspect.BoolType, msgspec.inspect.NoneType)
    for mark in marks:
        assert isinstance(mark, msgspec.inspect.StructType)
        for field in mark.fields:
            kinds = getattr(field.type, "types", (field.type,))
            assert all(isinstance(each, numbers) for each in kinds), field
