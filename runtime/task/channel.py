"""The queue between a producer and the slot's loop, bounded in bytes, and the bell of the loop.

The bound is where backpressure begins: a chain whose output has no room reads no input. The loop of
a slot is one thread with many channels. It takes elements while there are any, and then waits at
the slot's bell, which every producer rings.

Batches that wait are joined for functions over batches: state is touched once for each key of a
batch, so long ones are cheap. A sum of 100 thousand keys is three times as fast by that. Admitted
rows may exceed the bound: they are in memory already, in staging, and the next micro-batch waits
for room.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from holdfast.runtime.columns.types import detached, has_dictionary
from holdfast.runtime.protocol.elements import Barrier, Element, size_bytes
from holdfast.runtime.task.spill import SpillFile
from holdfast.storage import Fenced

__all__ = ["Bell", "Channel", "Closed", "LaterRows", "Reserve", "Rings", "WaitingRows"]


class LaterRows(Protocol):
    """Rows that wait elsewhere than in memory, such as on local disk."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All of them; they still wait for the channel afterwards. By any thread, at any time."""
        ...


WaitingRows: TypeAlias = pa.RecordBatch | LaterRows


class Reserve(Protocol):
    """What waits for room in a channel, in order, behind all that is in it."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while something is moved from here into the channel."""
        ...

    def overtake(self, barrier: Barrier) -> Sequence[WaitingRows]:
        """Take a barrier out that waits here; the rows before it, which stay. With the lock."""
        ...


class Closed(Fenced):
    """The attempt is over in this slot. Stop sending: elements are dropped."""


class Rings(Protocol):
    """What wakes a reader, or a sender that waits for room."""

    def ring(self) -> None:
        """Say that there is something to see. Any thread."""
        ...


class Bell:
    """Wakes one waiting thread. A ring without a waiting thread is kept for the next wait.

    Any thread may ring; one thread waits. Its loop: do all there is to do, wait, look again.
    Whatever was done before a ring is seen after the wait that the ring ended.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._has_rung = False

    def ring(self) -> None:
        """Wake the waiting thread, or the next one that waits. Cheap when it has rung already."""
        # A ring that is still kept makes the waiter look after this moment: one is enough.
        if self._has_rung:
            return
        with self._condition:
            self._has_rung = True
            self._condition.notify()

    def wait(self, timeout_s: float) -> bool:
        """Return at a ring, at once if there was one since the last wait, or after `timeout_s`.

        Returns whether it rang.
        """
        with self._condition:
            if not self._has_rung and timeout_s > 0:
                self._condition.wait(timeout_s)
            has_rung, self._has_rung = self._has_rung, False
            return has_rung


class Channel:
    """Elements in order, from any number of producers to the slot's thread.

    Elements of one producer keep their order. The bound is in bytes, as `elements.size_bytes`
    counts them; an element that alone is larger than the capacity is let into an empty channel.

    `schema` is the schema of the batches, for callers that check it: the network does.
    """

    def __init__(
        self, capacity_bytes: int, bell: Rings, *, schema: pa.Schema | None = None
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.schema = schema
        self.bell = bell
        """Rings for each element, after it was appended. A reader may put its own here, and must
        look at the channel once after that."""
        self._elements: deque[tuple[Element | SpillFile, int]] = deque()
        """And their sizes. Only restored rows are in files."""
        self._size_bytes = 0
        self._room = threading.Condition(threading.Lock())
        self._blocked = 0
        self._joins: tuple[pa.Schema, bool] | None = None
        self._is_closed = False
        self._barriers: deque[tuple[Barrier, int]] = deque()
        """Those that wait, and when they came."""
        self._now_ms: Callable[[], int] = int
        self._reserve: Reserve | None = None
        self._restored_left = 0
        self.rows_taken = 0
        """Rows that were ever taken. For the taking thread only."""
        self._on_taken: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._elements)

    @property
    def size_bytes(self) -> int:
        """Bytes that wait in the channel."""
        return self._size_bytes

    @property
    def has_room(self) -> bool:
        """Whether the channel is not full. `offer` does not check it."""
        return self._size_bytes < self.capacity_bytes

    @property
    def first(self) -> Element | SpillFile | None:
        """What `take` would begin with; None if empty. For the taking thread only."""
        try:
            return self._elements[0][0]
        except IndexError:
            return None

    @property
    def first_barrier(self) -> tuple[Barrier, int] | None:
        """The first barrier that waits, and when it came; None if none does.

        For the taking thread only.
        """
        try:
            return self._barriers[0]
        except IndexError:
            return None

    @property
    def has_restored(self) -> bool:
        """Whether rows that `restore` has put in are left."""
        return self._restored_left > 0

    def time_barriers(self, now_ms: Callable[[], int]) -> None:
        """Note by this clock when barriers come. Call it before any does."""
        self._now_ms = now_ms

    def reserve(self, reserve: Reserve) -> None:
        """Let something wait for room; its barriers are announced. Once a channel."""
        self._reserve = reserve

    def announce(self, barrier: Barrier) -> None:
        """A barrier has come, which waits for room in the reserve. With the lock of that."""
        with self._room:
            self._barriers.append((barrier, self._now_ms()))
        self.bell.ring()

    def restore(self, rows: Iterable[pa.RecordBatch | SpillFile]) -> None:
        """Put rows in front of everything that waits. Call it once, before anything is taken.

        Those in files count as the others do, and are read as they are taken.
        """
        kept = [
            (each, each.written_bytes) if isinstance(each, SpillFile) else _kept(each)
            for each in rows
        ]
        with self._room:
            self._elements.extendleft(reversed(kept))
            self._size_bytes += sum(size for _, size in kept)
            self._restored_left = len(kept)
        self.bell.ring()

    def overtake(self) -> tuple[Barrier, list[WaitingRows]]:
        """Take the first barrier that waits; returns it and the rows that it has overtaken.

        These stay where they are, and so do marks among them. For the taking thread only.
        """
        reserve = self._reserve
        with nullcontext() if reserve is None else reserve.lock:
            with self._room:
                barrier, _ = self._barriers.popleft()
                rows, is_here = self._overtake_here(barrier)
            if reserve is not None and not is_here:
                rows += reserve.overtake(barrier)
        return barrier, rows

    def _overtake_here(self, barrier: Barrier) -> tuple[list[WaitingRows], bool]:
        rows: list[WaitingRows] = []
        for place, (each, size) in enumerate(self._elements):
            if each is barrier:
                self._size_bytes -= size
                del self._elements[place]
                return rows, True
            if isinstance(each, SpillFile):
                rows.append(each.rest())
            elif isinstance(each, pa.RecordBatch):
                rows.append(each)
        return rows, False

    def watch(self, on_taken: Callable[[], None]) -> None:
        """Have `on_taken` called after each take, by the thread that takes. Once a channel."""
        self._on_taken = on_taken

    def put(self, element: Element) -> None:
        """Append an element; waits while it does not fit.

        Raises:
            Closed: the channel is closed, before or while the call waited.
        """
        element, size = _kept(element)
        with self._room:
            while self._elements and self._size_bytes + size > self.capacity_bytes:
                if self._is_closed:
                    break
                self._blocked += 1
                self._room.wait()
                self._blocked -= 1
            self._append(element, size)
        self.bell.ring()

    def offer(self, element: Element) -> None:
        """Append an element at once, also to a full channel: check `has_room` before.

        Raises:
            Closed: the channel is closed.
        """
        element, size = _kept(element)
        with self._room:
            self._append(element, size)
        self.bell.ring()

    def take(self, join_bytes: int = 0) -> Element | None:
        """The next element, or None if there is none now or the channel is closed.

        Batches of rows that follow each other are joined, as long as they make no more than
        `join_bytes` together. Those with dictionaries are not: theirs may hold more together than
        their numbers can count.

        Raises:
            Corrupt: rows that were restored to local disk cannot be read back.
        """
        if not self._elements:
            return None
        self._bring_in()
        with self._room:
            if not self._elements:
                return None
            element, size = self._elements.popleft()
            assert not isinstance(element, SpillFile)
            taken = [element]
            while self._elements and isinstance(taken[-1], pa.RecordBatch):
                following, more = self._elements[0]
                if not isinstance(following, pa.RecordBatch) or size + more > join_bytes:
                    break
                if not self._may_join(following.schema):
                    break
                taken.append(following)
                size += more
                self._elements.popleft()
            self._size_bytes -= size
            self._restored_left = max(self._restored_left - len(taken), 0)
            if isinstance(element, Barrier):
                self._barriers.popleft()
            if self._blocked:
                self._room.notify_all()  # the first to wait may be the one that does not fit
        if self._on_taken is not None:
            self._on_taken()
        joined = element if len(taken) == 1 else pa.concat_batches(taken)
        if isinstance(joined, pa.RecordBatch):
            self.rows_taken += joined.num_rows
        return joined

    def close(self) -> None:
        """Drop what waits. Producers that wait, and later calls, get `Closed`."""
        with self._room:
            self._is_closed = True
            self._elements.clear()
            self._barriers.clear()
            self._size_bytes = 0
            self._room.notify_all()
        if self._on_taken is not None:
            self._on_taken()

    def _bring_in(self) -> None:
        """If a file is the first, put rows of it in its place, or before it: a channel full."""
        file = self.first
        if not isinstance(file, SpillFile):
            return
        batches: list[tuple[pa.RecordBatch, int]] = []
        read_bytes = 0
        # Without the lock: producers must not wait for the disk.
        while file.has_more and (not batches or read_bytes < self.capacity_bytes):
            batch, size = _kept(file.read())
            batches.append((batch, size))
            read_bytes += size
        with self._room:
            if not self._elements:
                return  # closed meanwhile
            _, left_bytes = self._elements.popleft()
            rest_bytes = max(left_bytes - read_bytes, 0) if file.has_more else 0
            if file.has_more:
                self._elements.appendleft((file, rest_bytes))
            self._elements.extendleft(reversed(batches))
            self._restored_left += len(batches) - (not file.has_more)
            self._size_bytes += read_bytes + rest_bytes - left_bytes

    def _may_join(self, schema: pa.Schema) -> bool:
        # Called for each batch; nearly all batches of a channel have the same schema.
        if self._joins is None or not schema.equals(self._joins[0]):
            self._joins = (schema, not any(map(has_dictionary, schema.types)))
        return self._joins[1]

    def _append(self, element: Element, size: int) -> None:
        if self._is_closed:
            raise Closed("a channel was closed", fix="The attempt of this slot is over; stop")
        if isinstance(element, Barrier) and all(each is not element for each, _ in self._barriers):
            self._barriers.append((element, self._now_ms()))
        self._elements.append((element, size))
        self._size_bytes += size


def _kept(element: Element) -> tuple[Element, int]:
    """The element in a form to keep, and its size."""
    if isinstance(element, pa.RecordBatch):
        element = detached(element)
    return element, size_bytes(element)
