"""Slots with a real server, for tests of the network; and one in a child process to be killed.

`python slot_networks.py` serves a slot, prints its address and waits to be killed;
`python slot_networks.py ADDRESS` opens an exchange stream to one, and does the same.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.network import Credentials, ExchangeSender, SlotCommand, SlotServer
from holdfast.runtime.protocol.elements import Element
from holdfast.runtime.task.channel import Bell, Channel
from holdfast.runtime.task.staging import Staging
from holdfast.storage import HoldfastError

LOOPBACK = "127.0.0.1"
LISTENING = Listening(LOOPBACK)
TRUSTED = Credentials(token="0123456789abcdef", attempt=3)
STRANGER = Credentials(token="0123456789abcdee", attempt=3)
ZOMBIE = Credentials(token=TRUSTED.token, attempt=2)
SCHEMA = pa.schema([("a", pa.int64())])
CAPACITY_BYTES = 1 << 20


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"a": np.array(values, np.int64)})


class Slot:
    """Source "s" has edge "e"; edges "x" and "y" have a channel from slot 1 and one from slot 2."""

    def __init__(
        self,
        schema: pa.Schema | None = SCHEMA,
        capacity_bytes: int = CAPACITY_BYTES,
        credentials: Credentials = TRUSTED,
        listening: Listening = LISTENING,
    ) -> None:
        self.bell = Bell()
        self.source = Channel(capacity_bytes, self.bell, schema=schema)
        self.staging = Staging({"s": {"e": self.source}})
        self.channels = {
            (edge, sender): Channel(capacity_bytes, self.bell, schema=schema)
            for edge in "xy"
            for sender in (1, 2)
        }
        self.commands: list[SlotCommand] = []
        self.answer: bool | Exception = True
        self.lost: list[tuple[int, HoldfastError]] = []
        self.has_lost = threading.Event()
        self.server = SlotServer(
            listening,
            credentials,
            staging=self.staging,
            channels=self.channels,
            handle=self.handle,
            on_lost=self.lose,
        )

    def handle(self, command: SlotCommand) -> bool:
        self.commands.append(command)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def lose(self, sender: int, error: HoldfastError) -> None:
        self.lost.append((sender, error))
        self.has_lost.set()

    def take(self, channel: Channel, count: int) -> list[Element]:
        """So many elements, as they come."""
        taken: list[Element] = []
        while len(taken) < count:
            element = channel.take()
            if element is not None:
                taken.append(element)
            elif not self.bell.wait(10):
                raise TimeoutError(f"{len(taken)} of {count} elements came")
        return taken

    def take_values(self, channel: Channel, count: int) -> list[object]:
        """So many rows, by their values, and marks, as they come: batches may be joined."""
        taken: list[object] = []
        while len(taken) < count:
            (element,) = self.take(channel, 1)
            taken += values_of(element)
        return taken


def values_of(element: Element) -> list[object]:
    """The values of rows, or a mark."""
    return element.column(0).to_pylist() if isinstance(element, pa.RecordBatch) else [element]


class Errors:
    """Where a sender's error is put, and awaited."""

    def __init__(self) -> None:
        self._error: HoldfastError | None = None
        self._has_come = threading.Event()

    def __call__(self, error: HoldfastError) -> None:
        assert self._error is None, "an error is reported once"
        self._error = error
        self._has_come.set()

    @property
    def is_empty(self) -> bool:
        return self._error is None

    def wait(self, timeout_s: float) -> HoldfastError:
        assert self._has_come.wait(timeout_s), "no error came"
        assert self._error is not None
        return self._error


class LoneChannel:
    """A sender, seen by one of its channels."""

    def __init__(self, sender: ExchangeSender, edge: str) -> None:
        self.sender = sender
        self.channel = sender.channel(edge)
        self.send, self.finish, self.close = self.channel.send, sender.finish, sender.close

    @property
    def has_room(self) -> bool:
        return self.channel.has_room

    @property
    def size_bytes(self) -> int:
        return self.channel.size_bytes


def sender_to(
    address: str,
    bell: Bell,
    errors: Errors,
    *,
    sender: int = 1,
    edges: str = "x",
    credentials: Credentials = TRUSTED,
    schema: pa.Schema = SCHEMA,
    capacity_bytes: int = CAPACITY_BYTES,
) -> LoneChannel:
    """A sender with channels of these edges, seen by the first of them."""
    made = ExchangeSender(
        address,
        credentials,
        sender=sender,
        edges=dict.fromkeys(edges, schema),
        capacity_bytes=capacity_bytes,
        bell=bell,
        on_error=errors,
        buffer_timeout_s=0.005,
    )
    return LoneChannel(made, edges[0])


@contextmanager
def child(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of this program, and the line that it prints when it is ready."""
    with subprocess.Popen(
        [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def main(arguments: list[str]) -> None:
    """The child's side."""
    slot = Slot()
    if arguments:
        sender_to(arguments[0], slot.bell, Errors()).send(rows(1, 2))
    sys.stdout.write(f"{slot.server.address}\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
