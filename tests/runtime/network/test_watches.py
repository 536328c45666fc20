"""The driver notices at once that the process of a slot is gone, and takes no other for dead."""

from __future__ import annotations

import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import Any

import pytest

from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.network import Credentials, SlotClient
from holdfast.runtime.network.slot_server import SlotServer
from holdfast.runtime.protocol.messages import Finish
from holdfast.storage import HoldfastError, SystemClock, Unavailable
from support.jobs.networked_slots import LOOPBACK, STRANGER, TRUSTED, ZOMBIE, Slot, child
from support.waiting import wait_until

SOON_S = 10.0
A_WHILE_S = 0.5


class Losses:
    """What `on_lost` was called with."""

    def __init__(self) -> None:
        self.errors: list[HoldfastError] = []
        self._has_come = threading.Event()

    def __call__(self, error: HoldfastError) -> None:
        self.errors.append(error)
        self._has_come.set()

    def come(self, timeout_s: float) -> bool:
        return self._has_come.wait(timeout_s)


class EndlessClock(SystemClock):
    """Its time stands still, so that a call is tried again for ever."""

    def __init__(self) -> None:
        self.has_paused = threading.Event()

    def monotonic_s(self) -> float:
        return 0.0

    def wait_s(self, event: threading.Event, seconds: float) -> bool:
        self.has_paused.set()
        return super().wait_s(event, seconds)


def test_a_slot_that_is_killed_is_lost_and_calls_to_it_are_not_tried_again() -> None:
    losses, clock = Losses(), EndlessClock()
    with child() as (process, address), SlotClient(address, TRUSTED, clock=clock) as client:
        client.watch(losses)
        assert client.call(Finish())
        process.kill()
        with ThreadPoolExecutor(1) as calling:
            called = calling.submit(client.call, Finish())
            assert clock.has_paused.wait(SOON_S)
            assert isinstance(called.exception(SOON_S), Unavailable)
        assert losses.come(SOON_S)
        with pytest.raises(Unavailable):
            client.call(Finish())
    assert len(losses.errors) == 1


def test_a_slot_that_stands_still_is_not_lost() -> None:
    losses = Losses()
    with child() as (process, address), SlotClient(address, TRUSTED) as client:
        client.watch(losses)
        assert client.call(Finish())
        os.kill(process.pid, signal.SIGSTOP)
        assert not losses.come(A_WHILE_S)
        os.kill(process.pid, signal.SIGCONT)
        assert client.call(Finish())
        assert not losses.errors


def test_a_slot_that_closes_in_order_is_not_lost() -> None:
    losses, slot = Losses(), Slot()
    with SlotClient(slot.server.address, TRUSTED) as client:
        client.watch(losses)
        assert client.call(Finish())
        assert slot.server.close()
        assert not losses.come(A_WHILE_S)


def test_a_client_that_closes_ends_its_watch_and_reports_nothing() -> None:
    losses, slot = Losses(), Slot()
    with slot.server:
        with SlotClient(slot.server.address, TRUSTED) as client:
            client.watch(losses)
        assert not losses.come(A_WHILE_S)
    assert not [each for each in threading.enumerate() if each.name == "holdfast-watch"]


@pytest.mark.parametrize("credentials", [STRANGER, ZOMBIE])
def test_another_process_at_the_slots_address_is_not_the_slot(credentials: Credentials) -> None:
    losses, slot = Losses(), Slot()
    with slot.server, SlotClient(slot.server.address, credentials) as client:
        client.watch(losses)
        assert losses.come(SOON_S)


class Door:
    """The way to a slot, at another address: it can be broken, and is open again at once."""

    HOST = "127.0.0.2"

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server((self.HOST, port))
        self._ends: list[socket.socket] = []
        self.opened = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def slam(self) -> None:
        """Break all connections."""
        for end in self._ends.copy():
            with suppress(OSError):  # it broke before
                end.shutdown(socket.SHUT_RDWR)

    def has_opened(self, times: int) -> bool:
        return self.opened >= times

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.slam()
        for each in (self._listener, *self._ends):
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                outer = socket.create_connection((LOOPBACK, self._port))
                self._ends += [inner, outer]
                self.opened += 1
                for ends in ((inner, outer), (outer, inner)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)


def test_a_connection_that_breaks_and_can_be_opened_again_is_no_loss() -> None:
    losses, slot = Losses(), Slot(listening=Listening(Door.HOST, bind_address=LOOPBACK))
    door = Door(int(slot.server.address.rpartition(":")[2]))
    with slot.server, SlotClient(slot.server.address, TRUSTED) as client, closing(door):
        client.watch(losses)
        assert client.call(Finish())
        for broken in range(1, 4):
            door.slam()
            wait_until(partial(door.has_opened, broken + 1))
            assert not losses.come(A_WHILE_S)
        door.close()
        assert losses.come(SOON_S)


def test_a_connection_that_broke_leaves_nothing_behind(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each left a thread in the slot, and a complaint of Arrow's on the driver's terminal."""
    monkeypatch.setattr("holdfast.runtime.network.slot_server.PULSE_S", 0.05)
    watching: list[int] = []
    real = SlotServer._receive

    def receive(server: SlotServer, *arguments: Any) -> None:
        watching.append(1)
        try:
            real(server, *arguments)
        finally:
            watching.pop()

    monkeypatch.setattr(SlotServer, "_receive", receive)
    slot = Slot(listening=Listening(Door.HOST, bind_address=LOOPBACK))
    door = Door(int(slot.server.address.rpartition(":")[2]))
    with slot.server, SlotClient(slot.server.address, TRUSTED) as client, closing(door):
        client.watch(Losses())
        assert client.call(Finish())
        for broken in range(1, 4):
            door.slam()
            wait_until(partial(door.has_opened, broken + 1))
            wait_until(lambda: len(watching) == 1)
    assert not capfd.readouterr().err
