"""The contract of a queue of timers, which a store may keep in a way of its own.

A store without such a queue has its timers in a map table, with an index of all of them in memory
(`holdfast.backends.state.heap_timers`). A store that can hold more than memory keeps them in order,
as `holdfast.backends.byte_tables.timers` does.
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
    """Timers in order of time; at most one for a moment, a key and a namespace.

    Moments, keys and namespaces are canonical; a namespace is `NO_NAMESPACE` where there are none.
    Each implementation chooses a fixed order for timers of one moment.

    Between two calls, and between two steps of `due`, the tables that a store freezes contain
    exactly the timers of the queue, as a map table of the queue's spec with moments as map keys and
    True as values. The one thread that owns the backend calls everything here.
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

        Each step removes and answers the timer that is first at that time. The caller may add and
        remove others between two steps, also earlier ones than the last.
        """

    @abstractmethod
    def load(self, block: Block) -> None:
        """Add the timers of a block of such a map table. No iteration of `due` is in progress."""
