"""The contract of a queue of timers, which a store may keep in a way of its own.

A store that offers none has its timers in a map table, under an index in memory
(`holdfast.backends.state.heap_timers`). One that holds more than memory does keeps them in order,
such as `holdfast.backends.byte_tables.timers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.backends.blocks.block import Block

__all__ = ["Timer", "TimerQueue"]


class Timer(msgspec.Struct, frozen=True):
    """One timer, at a millisecond."""

    timestamp: int
    key: Any
    namespace: Any


class TimerQueue(ABC):
    """Timers by time: for a moment, a key and a namespace there is one or none.

    Moments, keys and namespaces are canonical; a namespace is `NO_NAMESPACE` where there are none.
    Timers of one moment are in an order of the queue's own, which is always the same.

    Between two calls, and between two steps of `due`, the tables that a store freezes have just the
    timers that are in the queue: those of a map table of the queue's spec, with moments as map
    keys and True as values. Everything is called by the one thread that owns the backend.
    """

    @abstractmethod
    def add(self, moment: int, key: Any, namespace: Any) -> None:
        """Add a timer, unless it is there."""

    @abstractmethod
    def remove(self, moment: int, key: Any, namespace: Any) -> None:
        """Remove a timer, if it is there."""

    @abstractmethod
    def first_moment(self) -> int | None:
        """When the first timer is due, if there is one."""

    @abstractmethod
    def due(self, until: int) -> Iterator[Timer]:
        """Remove and answer the timers up to `until`, in order of time.

        Each step answers the first that is there then, and it is gone when the caller has it: the
        caller may add and remove others between two steps, also earlier ones than the last.
        """

    @abstractmethod
    def load(self, block: Block) -> None:
        """Add the timers of a block of such a map table. Nobody is walking through `due`."""
