"""Backends whose queues of timers are wrong: ordered keys in bytes, few of them in memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar

from holdfast.backends import ByteTableStore, KeyGroupRange, TableStore, Timer
from holdfast.backends.blocks.block import Block
from holdfast.backends.byte_tables.timers import ByteTimerQueue, TimerPages
from holdfast.backends.tables.contract import TableSpec
from holdfast.backends.tables.timer_queues import TimerQueue
from support.broken.backends.register import Altered, breaks
from support.states.counting_byte_store import MemoryStore


class _Store(ByteTableStore):
    """Keeps timers in another queue."""

    queue: type[ByteTimerQueue] = ByteTimerQueue

    def timer_queue(self, spec: TableSpec) -> TimerQueue | None:
        known = self._queues.get(spec.name)
        queue = super().timer_queue(spec)
        if known is None and queue is not None:
            queue.__class__ = self.queue
        return queue


class _WithQueue(Altered):
    """A backend over bytes, with a queue that is broken."""

    queue: ClassVar[type[ByteTimerQueue]] = ByteTimerQueue

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        store = _Store(
            MemoryStore(), key_groups, max_parallelism, timers=TimerPages(read=32, write=64)
        )
        store.queue = self.queue
        return store


def _broken(clause: str, says: str) -> Any:
    """Note that a backend with this queue breaks the clause."""

    def note(queue: type[ByteTimerQueue]) -> type[ByteTimerQueue]:
        breaks(clause, says=says)(type(queue.__name__, (_WithQueue,), {"queue": queue}))
        return queue

    return note


@_broken("thousands_of_timers_fire_in_order", says="timers up to")
class ReadsOnePage(ByteTimerQueue):
    def _read_on(self, group: Any) -> None:
        group.unread = group.end


@_broken("timers_of_thousands_of_keys_fire_in_order", says="timers of many keys")
class PassesOverTheSameMoment(ByteTimerQueue):
    def due(self, until: int) -> Iterator[Timer]:
        before: Timer | None = None
        for timer in super().due(until):
            if before is None or (before.timestamp, before.key) != (timer.timestamp, timer.key):
                yield timer
            before = timer


@_broken("an_earlier_timer_comes_first", says="the next timer")
class MarksNoNewFirst(ByteTimerQueue):
    def _mark(self, group: Any) -> None:
        if not group.mark:
            super()._mark(group)


@_broken("timers_among_thousands_are_deleted", says="timers that were not deleted")
class DeletesWhatIsInMemory(ByteTimerQueue):
    def remove(self, moment: int, key: Any, namespace: Any) -> None:
        self._take_up()
        stored = self._layout.stored(moment, key, namespace)
        if any(stored in group.cached for group in self._groups.values()):
            super().remove(moment, key, namespace)


@_broken("thousands_of_timers_change_while_they_fire", says="of many that fire and change")
class HandsOutEightAtOnce(ByteTimerQueue):
    def due(self, until: int) -> Iterator[Timer]:
        while timers := list(islice(super().due(until), 8)):
            yield from timers


@_broken("a_snapshot_may_be_taken_while_timers_fire", says="from between two that fired")
class WritesWhatFiredLater(ByteTimerQueue):
    def flush(self) -> None:
        self._take_up()


@_broken("thousands_of_timers_move_with_their_keys", says="timers due in 3 slots")
class LoadsOneBlock(ByteTimerQueue):
    def load(self, block: Block) -> None:
        if not vars(self).setdefault("has_loaded", False):
            super().load(block)
        self.has_loaded = True
