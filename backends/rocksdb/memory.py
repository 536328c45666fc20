"""The memory of a slot's databases: one cache, and one budget of write buffers.

There is no write-ahead log: only snapshots last.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import Any, Protocol

from rocksdict import Cache, WriteBufferManager

from holdfast.storage import Clock, Invalid, SystemClock
from holdfast.storage.options.sizes import size_bytes

__all__ = ["HasBuffers", "SlotMemory", "check_parts", "memory_bytes"]

_MEBIBYTE = 1024 * 1024
_LEAST_MEMORY, _MOST_MEMORY = 16 * _MEBIBYTE, 2**50

_MOST_TABLES = 256
"""The least memory has room for so many tables of one slot."""
_LEAST_PIECE_BYTES = 4096
_LEAST_BUFFERS = 2 * _MOST_TABLES * _LEAST_PIECE_BYTES


class HasBuffers(Protocol):
    """A user of write buffers. Any thread may call it, but not after `SlotMemory.buffers_gone`."""

    @property
    def buffered_bytes(self) -> int:
        """How many bytes its write buffers take."""
        ...

    def flush(self) -> None:
        """Empty them."""
        ...


class SlotMemory:
    """One cache and one budget of write buffers, for all stores of a slot.

    The parts of a budget are those of Flink: write buffers may take `2 r/3` of it, and count in
    the cache of `(3 - r)/3`. Of the rest RocksDB makes the buffer that it is just filling when
    the others are full.

    RocksDB can stall writers when write buffers have used up their part. Where two databases share
    the budget that stall never ends, so it is off: every writer calls `make_room` instead.
    """

    def __init__(
        self, budget_bytes: int, write_buffer_ratio: float, clock: Clock | None = None
    ) -> None:
        self.buffers_bytes = buffers_bytes = _buffers_bytes(budget_bytes, write_buffer_ratio)
        """What write buffers may take."""
        self._cache_bytes = int(budget_bytes * (3 - write_buffer_ratio) / 3)
        self.cache = Cache(self._cache_bytes)
        self.write_buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            buffers_bytes, False, self.cache
        )
        # With its first entry a table takes one piece of a write buffer, which only a flush gives
        # back: with RocksDB's own size of pieces a few dozen tables would fill a small budget.
        self.piece_bytes = min(
            max(buffers_bytes // (2 * _MOST_TABLES), _LEAST_PIECE_BYTES), _MEBIBYTE
        )
        self.batch_bytes = min(max(buffers_bytes // 4, 64 * 1024), 4 * _MEBIBYTE)
        """About how much may be written before `make_room` is called."""
        self._owners: list[HasBuffers] = []
        self._lock = Lock()
        self._clock = clock or SystemClock()
        self._waits = 0
        self._waited_s = 0.0

    def buffers_of(self, owner: HasBuffers) -> None:
        """Register a user of write buffers."""
        with self._lock:
            self._owners.append(owner)

    def buffers_gone(self, owner: HasBuffers) -> None:
        """Forget a user whose write buffers end soon; waits for a flush of them that is running."""
        with self._lock, suppress(ValueError):
            self._owners.remove(owner)

    def make_room(self) -> float | None:
        """Flush the largest buffers of any database while all together exceed their part.

        Answers how many seconds that took; None if there was room.
        """
        buffers, limit_bytes = self.write_buffers, self.buffers_bytes
        used = buffers.get_usage()
        if used <= limit_bytes:
            return None
        began_s = self._clock.monotonic_s()
        while used > limit_bytes:
            with self._lock:
                largest = max(self._owners, key=lambda owner: owner.buffered_bytes, default=None)
                if largest is None:
                    return None
                largest.flush()
            before, used = used, buffers.get_usage()
            if used >= before:  # other threads write as fast, or iterators pin flushed buffers
                break
        waited_s = self._clock.monotonic_s() - began_s
        self._waits += 1
        self._waited_s += waited_s
        return waited_s

    def metrics(self) -> dict[str, float]:
        """How much of the memory is used, its limits, and how often writers waited for it."""
        return {
            "cache_bytes": float(self.cache.get_usage()),
            "cache_pinned_bytes": float(self.cache.get_pinned_usage()),
            "cache_limit_bytes": float(self._cache_bytes),
            "write_buffers_bytes": float(self.write_buffers.get_usage()),
            "write_buffers_limit_bytes": float(self.buffers_bytes),
            "room_waits": float(self._waits),
            "room_waited_s": self._waited_s,
        }


def check_parts(budget_bytes: int, write_buffer_ratio: Any) -> None:
    """Refuse a ratio that makes a part of the budget useless.

    Raises:
        Invalid: it is no ratio, or write buffers are too small for the first pieces of all tables:
            every write would wait for room.
    """
    is_number = type(write_buffer_ratio) in (int, float)
    if not is_number or not 0 < write_buffer_ratio < 1:
        raise Invalid(
            "write_buffer_ratio is out of range",
            expected="a number between 0 and 1",
            found=repr(write_buffer_ratio),
        )
    buffers_bytes = _buffers_bytes(budget_bytes, write_buffer_ratio)
    if buffers_bytes < _LEAST_BUFFERS:
        raise Invalid(
            "write_buffer_ratio leaves too little memory for write buffers",
            expected=f"{_LEAST_BUFFERS} bytes or more, which are two thirds of ratio times memory",
            found=f"{buffers_bytes} bytes, with {write_buffer_ratio!r} of {budget_bytes}",
            fix="Raise write_buffer_ratio, or memory",
        )


def _buffers_bytes(budget_bytes: int, write_buffer_ratio: float) -> int:
    return int(budget_bytes * 2 * write_buffer_ratio / 3)


def memory_bytes(memory: int | str) -> int:
    """A number of bytes, or text such as `512m`, as a number.

    Raises:
        Invalid: it is neither, or less than a database needs, or more than any machine has.
    """
    size = memory
    if isinstance(memory, str):
        size = size_bytes(memory) or 0
    if type(size) is not int or not _LEAST_MEMORY <= size <= _MOST_MEMORY:
        raise Invalid(
            "the memory for RocksDB is out of range",
            expected=f"{_LEAST_MEMORY // _MEBIBYTE}m or more, and at most {_MOST_MEMORY >> 40}t, "
            "as a number of bytes or as text",
            found=repr(memory),
        )
    return size
