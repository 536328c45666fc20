"""Messages: to a slot's handler, to the driver, and what becomes of errors on the way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import get_args

import msgspec
import pytest

from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.network import DriverClient, DriverServer, Protection, SlotClient
from holdfast.runtime.network.flight_errors import from_wire, to_wire
from holdfast.runtime.protocol.checkpoints import SlotStatistics
from holdfast.runtime.protocol.messages import (
    Acknowledge,
    CancelAttempt,
    CheckpointCompleted,
    Collect,
    Decline,
    Failed,
    Finish,
    Finished,
    Heartbeat,
    Ready,
    Register,
    Start,
    ToDriver,
    ToSlot,
)
from holdfast.runtime.protocol.metrics import OperatorMetrics, SlotMetrics
from holdfast.runtime.protocol.process_facts import MemoryFacts
from holdfast.runtime.task.staging import Superseded
from holdfast.storage import (
    Corrupt,
    FileHandle,
    HoldfastError,
    InlineHandle,
    Invalid,
    NotFound,
    StateSnapshot,
    TooLarge,
    Unavailable,
)
from holdfast.storage.errors import Fenced
from holdfast.storage.processes import ProcessIdentity
from support.jobs.networked_slots import LISTENING, LOOPBACK, STRANGER, TRUSTED, ZOMBIE, Slot

SNAPSHOT = StateSnapshot(
    kind="keyed",
    handles={"a": InlineHandle(b"\x00\xff"), "b": FileHandle("f", 1, 2, "0" * 16)},
    attributes={"n": [1, None, "x"]},
    slot=1,
    key_groups=(0, 63),
)
TO_DRIVER: list[ToDriver] = [
    Register(
        slot=1,
        address="grpc://h:1",
        holdfast_version="1",
        python_version="3",
        process=ProcessIdentity(pid=7, host="h", boot="b", space="s", started=8),
    ),
    Ready(1),
    Acknowledge(
        checkpoint_id=5,
        slot=1,
        parts={"sum": [SNAPSHOT], "none": []},
        statistics=SlotStatistics(alignment_ms=5, sync_ms=1, async_ms=2),
    ),
    Decline(checkpoint_id=5, slot=1, reason="not open"),
    Failed(
        slot=1,
        uid=None,
        summary="died",
        traceback="…",
        is_fatal=True,
        is_users=True,
        memory=MemoryFacts(used_bytes=2**40, oom_kills=3),
    ),
    Finished(1),
    Collect(uid="out", part="p", rows=b"\x00" * 10),
    Heartbeat(
        slot=1,
        metrics=SlotMetrics(
            rows=10**18,
            backend={"cache_bytes": 1e18},
            operators={
                "sum": OperatorMetrics(
                    store={"cache_hit_ratio": 0.25},
                    states={"total": {"entries": 3.0}},
                    operator_states={"seen": {"entries": 0.0}},
                )
            },
        ),
    ),
]


class Driver:
    def __init__(self, listening: Listening = LISTENING) -> None:
        self.heard: list[ToDriver] = []
        self.answer = True
        self.server = DriverServer(listening, TRUSTED.token)
        self.server.serve(TRUSTED.attempt, self.handle)

    def handle(self, message: ToDriver) -> bool:
        self.heard.append(message)
        return self.answer


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    with driver.server:
        yield driver


@pytest.fixture
def slot() -> Iterator[Slot]:
    slot = Slot()
    with slot.server:
        yield slot


def test_every_message_to_the_driver_comes_as_it_was(driver: Driver) -> None:
    assert {type(message) for message in TO_DRIVER} == set(get_args(ToDriver))
    with DriverClient(driver.server.address, TRUSTED) as client:
        assert all(map(client.call, TO_DRIVER))
        driver.answer = False
        assert not client.call(Heartbeat(slot=1))
        client.call(Collect(uid="out", part="p", rows=b"rows"))
    assert driver.heard[: len(TO_DRIVER)] == TO_DRIVER
    assert driver.heard[-1] == Collect(uid="out", part="p", rows=b"rows")


def test_messages_to_a_slot_reach_its_handler(slot: Slot) -> None:
    said: list[ToSlot] = [
        Start({0: "grpc://h:1", 1: "grpc://h:2"}),
        CheckpointCompleted(4),
        Finish(),
    ]
    with SlotClient(slot.server.address, TRUSTED) as client:
        assert all(map(client.call, said))
        slot.answer = False
        assert not client.call(CancelAttempt("enough"))
    assert slot.commands == [*said, CancelAttempt("enough")]


def test_a_message_of_many_megabytes(driver: Driver) -> None:
    with DriverClient(driver.server.address, TRUSTED) as client:
        client.call(Collect(uid="out", part="p", rows=bytes(48 << 20)))
    (heard,) = driver.heard
    assert isinstance(heard, Collect)
    assert len(heard.rows) == 48 << 20


def test_only_the_attempt_that_is_served_is_heard(driver: Driver) -> None:
    address = driver.server.address
    with (
        DriverClient(address, TRUSTED) as trusted,
        DriverClient(address, STRANGER) as stranger,
        DriverClient(address, ZOMBIE) as zombie,
    ):
        with pytest.raises(Invalid, match="token is not that of this job"):
            stranger.call(Finished(1))
        with pytest.raises(Fenced, match="expected attempt 3, found attempt 2"):
            zombie.call(Finished(1))
        driver.server.pause()
        with pytest.raises(Fenced, match="expected none, at the moment"):
            trusted.call(Finished(1))
        assert not driver.heard
        driver.server.serve(ZOMBIE.attempt, driver.handle)
        assert zombie.call(Finished(1))
        with pytest.raises(Fenced):
            trusted.call(Finished(1))


@pytest.mark.parametrize(
    "error",
    [
        kind("what", where="here", expected="a", found="b", fix="so")
        for kind in (Corrupt, Fenced, Invalid, NotFound, Superseded, TooLarge, Unavailable)
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_the_house_come_as_they_were(slot: Slot, error: HoldfastError) -> None:
    slot.answer = error
    with SlotClient(slot.server.address, TRUSTED) as client, pytest.raises(HoldfastError) as caught:
        client.call(Finish())
    assert type(caught.value) is type(error)
    assert vars(caught.value) == vars(error)
    assert len(slot.commands) == 1, "an answer is not asked for again"


@pytest.mark.parametrize("letter", ["x", "ä", "€", "\n", "\x00"])
@pytest.mark.parametrize("size", [3_000, 9_000, 200_000])
def test_errors_of_any_size_keep_their_kind_their_beginning_and_their_end(
    slot: Slot, letter: str, size: int
) -> None:
    """There is room for 8 KB: what was longer came as an error of the transport."""
    long = f"begins {letter * size} ends"
    slot.answer = NotFound(long, where=long, expected=long, found=long, fix=long)
    with SlotClient(slot.server.address, TRUSTED) as client, pytest.raises(HoldfastError) as caught:
        client.call(Finish())
    assert type(caught.value) is NotFound
    parts = [getattr(caught.value, name) for name in ("what", "where", "expected", "found", "fix")]
    assert all(part.startswith(f"begins {letter}") for part in parts)
    assert all(part.endswith(f"{letter} ends") for part in parts)
    assert all("bytes left out" in part for part in parts)


def test_unexpected_errors_are_sent_with_their_traceback(slot: Slot) -> None:
    slot.answer = ZeroDivisionError("of all things")
    is_told = pytest.raises(Invalid, match=r"(?s)handled.*in handle.*of all things")
    with SlotClient(slot.server.address, TRUSTED) as client, is_told:
        client.call(Finish())


def test_an_error_of_a_kind_that_the_wire_does_not_know_is_its_parent() -> None:
    class Special(NotFound):
        pass

    assert type(from_wire(to_wire(Special("gone")))) is NotFound
    assert from_wire(ValueError()) is None


def test_a_driver_that_is_not_there_is_named() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
    address = f"grpc://{LOOPBACK}:{port}"
    is_named = pytest.raises(Unavailable, match=f"{address}.*refused")
    with DriverClient(address, TRUSTED, retry_for_s=0.2) as client, is_named:
        client.call(Finished(1))


def test_a_call_lost_on_the_way_is_made_again() -> None:
    """A door that drops the first connections, and then lets them through to the driver."""
    driver = Driver(Listening(host="127.0.0.2", bind_address=LOOPBACK))
    port = int(driver.server.address.rpartition(":")[2])
    door = socket.create_server(("127.0.0.2", port))
    with driver.server, door, ThreadPoolExecutor(4) as pool:

        def open_late() -> None:
            for _ in range(2):
                door.accept()[0].close()
            inside, _ = door.accept()
            with inside, socket.create_connection((LOOPBACK, port)) as outside:
                ways = [pool.submit(pump, inside, outside), pool.submit(pump, outside, inside)]
                for way in ways:
                    way.result()

        opening = pool.submit(open_late)
        with DriverClient(driver.server.address, TRUSTED, retry_for_s=20.0) as client:
            assert client.call(Finished(1))
        opening.result(20)
    assert driver.heard == [Finished(1)]


def pump(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(65536):
        target.sendall(data)
    with suppress(OSError):  # the other way may have ended first
        target.shutdown(socket.SHUT_WR)


def test_an_answer_is_not_awaited_for_ever(driver: Driver) -> None:
    is_over = threading.Event()

    def stall(_: ToDriver) -> bool:
        return is_over.wait(20)

    driver.server.serve(TRUSTED.attempt, stall)
    client = DriverClient(driver.server.address, TRUSTED, timeout_s=0.1, retry_for_s=0.0)
    with client, pytest.raises(Unavailable, match="no answer in time"):
        client.call(Finished(1))
    assert not driver.server.close(0.05)
    is_over.set()
    assert driver.server.close(5.0)


def test_garbage_from_a_trusted_caller_is_refused(driver: Driver) -> None:
    class Odd(msgspec.Struct, tag="odd"):
        pass

    is_refused = pytest.raises(Invalid, match=r"(?s)could not be handled.*odd")
    with DriverClient(driver.server.address, TRUSTED) as client, is_refused:
        client.call(Odd())  # type: ignore[arg-type]


def test_an_interface_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match=r"interface '203.0.113.1'"):
        DriverServer(
            Listening("localhost", "203.0.113.1"), "token", Protection(is_clear_allowed=True)
        )


def test_credentials_hide_the_secret() -> None:
    assert TRUSTED.token not in repr(TRUSTED)
