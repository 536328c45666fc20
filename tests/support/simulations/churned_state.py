"""State of every kind under random changes that never end and do not let it grow, and a model.

What lives for a time lives by a clock that the churn moves; a changelog's own times are real.
"""

from __future__ import annotations

import operator
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from heapq import heappop, heappush
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.backends import (
    KeyedStateBackend,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateBackend,
    StateTtlConfig,
    ValueStateDescriptor,
    key_groups_of_slots,
)
from holdfast.backends.keyed.backend import EarlyFiles
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_groups
from holdfast.backends.snapshots.neutral import SnapshotFuture
from holdfast.storage import JobStorage, StateSnapshot, SystemClock

__all__ = ["GROUPS", "UID", "Churn", "Content", "Slots", "SteadyClock"]

UID = "churned"
GROUPS = 128
TTL_MS = 20_000
_TIMER_MS = 20_000
_SLOWEST_MS = 200
_BATCH = 400
_ROWS = 200
_TTL = StateTtlConfig(ttl=timedelta(milliseconds=TTL_MS))
_VALUE = ValueStateDescriptor("value", str, ttl=_TTL)
_SUM = ReducingStateDescriptor("sum", operator.add, int)
_LIST = ListStateDescriptor("list", str)
_MAP = MapStateDescriptor("map", str, int, ttl=_TTL)
_MAP_KEYS = [f"map key {number}" for number in range(12)]


class SteadyClock:
    """Real, but for the time of day, which stands still until it is moved."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._real = SystemClock()

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._real.monotonic_s()

    def sleep_s(self, seconds: float) -> None:
        self._real.sleep_s(seconds)

    def wait_s(self, event: threading.Event, seconds: float) -> bool:
        return self._real.wait_s(event, seconds)

    def advance(self, milliseconds: int) -> None:
        """Move the time of day on."""
        self._now_ms += milliseconds


@dataclass(slots=True)
class Content:
    """All that must be in the state, by key; what has a time to live with its stamp."""

    values: dict[int, tuple[int, str]] = field(default_factory=dict)
    sums: dict[int, int] = field(default_factory=dict)
    lists: dict[int, list[str]] = field(default_factory=dict)
    maps: dict[int, dict[str, tuple[int, int]]] = field(default_factory=dict)
    timers: set[tuple[int, int]] = field(default_factory=set)
    """Moment and key."""
    _in_order: list[tuple[int, int]] = field(default_factory=list)
    """A heap of these, and of some that were deleted."""

    def copied(self) -> Content:
        """Another one, which changes by itself."""
        return Content(
            dict(self.values),
            dict(self.sums),
            {key: list(elements) for key, elements in self.lists.items()},
            {key: dict(entries) for key, entries in self.maps.items()},
            set(self.timers),
            list(self._in_order),
        )

    def value(self, key: int, now_ms: int) -> str | None:
        stamp, value = self.values.get(key, (-TTL_MS, None))
        return value if stamp + TTL_MS > now_ms else None

    def map(self, key: int, now_ms: int) -> dict[str, int]:
        entries = self.maps.get(key, {})
        return {each: cell for each, (stamp, cell) in entries.items() if stamp + TTL_MS > now_ms}

    def drop_expired(self, now_ms: int) -> None:
        """Forget what is past its time, so that the model does not grow either."""
        oldest = now_ms - TTL_MS
        self.values = {key: each for key, each in self.values.items() if each[0] > oldest}
        maps = {
            key: {each: cell for each, cell in entries.items() if cell[0] > oldest}
            for key, entries in self.maps.items()
        }
        self.maps = {key: entries for key, entries in maps.items() if entries}

    def add_timer(self, timer: tuple[int, int]) -> None:
        if timer not in self.timers:
            self.timers.add(timer)
            heappush(self._in_order, timer)

    def next_timer(self) -> tuple[int, int] | None:
        """The first one."""
        while self._in_order and self._in_order[0] not in self.timers:
            heappop(self._in_order)
        return self._in_order[0] if self._in_order else None

    def due(self, until_ms: int) -> set[tuple[int, int]]:
        """Take out the timers that are due."""
        fired = set()
        while (first := self.next_timer()) is not None and first[0] <= until_ms:
            fired.add(first)
            self.timers.remove(first)
        return fired


class Slots:
    """The slots of one operator, in one thread."""

    def __init__(
        self,
        backend: StateBackend,
        job: JobStorage,
        clock: SteadyClock,
        *,
        parallelism: int,
        keys: int,
        restore: Sequence[StateSnapshot] = (),
        first_checkpoint_id: int = 1,
    ) -> None:
        ranges = key_groups_of_slots(parallelism, GROUPS)
        self.parallelism = parallelism
        self.slots: list[KeyedStateBackend] = []
        groups = key_groups(key_codec_for(int).hash_many(range(keys)), GROUPS).tolist()
        for mine in ranges:
            parts = [part for part in restore if part.key_groups and _meet(part.key_groups, mine)]
            slot = backend.open(
                uid=UID,
                key_groups=mine,
                max_parallelism=GROUPS,
                key_type=int,
                restore=parts,
                storage=job,
                clock=clock,
                early=EarlyFiles(job, first_checkpoint_id),
            )
            if [part.key_groups for part in parts] == [(mine.first, mine.last)]:
                slot.build_on_restored()
            self.slots.append(slot)
        self.slot_of = [
            next(place for place, mine in enumerate(ranges) if group in mine) for group in groups
        ]
        self.values, self.sums, self.lists, self.maps = (
            [slot.get_state(descriptor) for slot in self.slots]
            for descriptor in (_VALUE, _SUM, _LIST, _MAP)
        )
        self.timers = [slot.timers("user") for slot in self.slots]

    def divided(self, keys: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """Each slot that has some of the keys, and which."""
        for slot in range(self.parallelism):
            mine = [key for key in keys if self.slot_of[key] == slot]
            if mine:
                yield slot, mine

    def under(self, key: int) -> int:
        """The slot of a key, which is the current one from now on."""
        slot = self.slot_of[key]
        self.slots[slot].set_current_key(key)
        return slot

    def begin(self, checkpoint_id: int, job: JobStorage) -> list[SnapshotFuture]:
        return [slot.snapshot(checkpoint_id, job) for slot in self.slots]

    def completed(self, checkpoint_id: int) -> None:
        for slot in self.slots:
            slot.notify_checkpoint_complete(checkpoint_id)

    def tend(self) -> bool:
        """Whether all slots have room for more changes."""
        rooms = [slot.tend() for slot in self.slots]
        return all(rooms)

    def metric(self, name: str) -> int:
        """A number of the changelog, of all slots together."""
        return int(sum(slot.metrics().store[name] for slot in self.slots))

    def due(self, until_ms: int) -> set[tuple[int, int]]:
        """Take out the timers that are due."""
        return {
            (timer.timestamp, timer.key)
            for timers in self.timers
            for timer in timers.due_event_time(until_ms)
        }

    def close(self) -> None:
        for slot in self.slots:
            slot.close()


class Churn:
    """Changes slots and model alike, compares what it reads."""

    def __init__(self, seed: int, keys: int, clock: SteadyClock) -> None:
        self.chance = random.Random(seed)
        self.keys = keys
        self.clock = clock
        self.model = Content()
        self.rows = 0
        self._moved_s = clock.monotonic_s()

    def fill(self, slots: Slots) -> None:
        """Begin with lists as long as they are in the long run; the rest gets there soon."""
        for key in range(self.keys):
            elements = [f"element {number}" for number in range(self.chance.randrange(14))]
            if elements:
                slots.lists[slots.under(key)].update(elements)
                self.model.lists[key] = elements

    def round(self, slots: Slots) -> None:
        """Some changes of every kind, some readings, and all timers that are due."""
        self._move()
        now_ms, chance = self.clock.now_ms(), self.chance
        self._change_batches(slots, now_ms)
        for _ in range(_ROWS):
            key = chance.randrange(self.keys)
            slot, sort = slots.under(key), chance.random()
            if sort < 0.4:
                self._change_list(slots.lists[slot], key)
            elif sort < 0.8:
                self._change_map(slots.maps[slot], key, now_ms)
            elif sort < 0.95:
                moment = now_ms + chance.randrange(_TIMER_MS)
                slots.timers[slot].register_event_time_timer(moment)
                self.model.add_timer((moment, key))
            else:
                self._compare_rows(slots, [key], now_ms)
        for moment, key in list(islice(self.model.timers, 3)):
            slots.timers[slots.under(key)].delete_event_time_timer(moment)
            self.model.timers.remove((moment, key))
        expected = self.model.due(now_ms)
        assert slots.due(now_ms) == expected, "other timers fire than are due"
        self.rows += 3 * _BATCH + _ROWS

    def compare(self, slots: Slots) -> None:
        """Everything."""
        now_ms, keys = self.clock.now_ms(), range(self.keys)
        self._compare_batches(slots, keys, now_ms)
        self._compare_rows(slots, keys, now_ms)
        moments = [each.next_event_time() for each in slots.timers]
        first = min((moment for moment in moments if moment is not None), default=None)
        expected = self.model.next_timer()
        assert first == (expected and expected[0]), "another timer is the first"

    def compare_timers(self, slots: Slots) -> None:
        """All that are left, which fire."""
        until_ms = self.clock.now_ms() + _TIMER_MS
        assert slots.due(until_ms) == self.model.due(until_ms), "other timers are left"
        assert not self.model.timers

    def _move(self) -> None:
        """Let as much time pass as has, but not a long pause at once."""
        now_s = self.clock.monotonic_s()
        self.clock.advance(min(int((now_s - self._moved_s) * 1000), _SLOWEST_MS))
        self._moved_s = now_s
        if self.chance.random() < 0.01:
            self.model.drop_expired(self.clock.now_ms())

    def _change_batches(self, slots: Slots, now_ms: int) -> None:
        chance = self.chance
        for slot, keys in slots.divided(chance.choices(range(self.keys), k=_BATCH)):
            texts = [f"value {chance.getrandbits(40)}" for _ in keys]
            slots.values[slot].put_many(pa.array(keys), pa.array(texts))
            for key, text in zip(keys, texts, strict=True):
                self.model.values[key] = now_ms, text
        for slot, keys in slots.divided(chance.choices(range(self.keys), k=_BATCH)):
            slots.sums[slot].reduce_many(pa.array(keys), pa.array(np.ones(len(keys), np.int64)))
            for key in keys:
                self.model.sums[key] = self.model.sums.get(key, 0) + 1
        for slot, keys in slots.divided(chance.sample(range(self.keys), 10)):
            slots.values[slot].clear_many(keys)
            slots.sums[slot].clear_many(keys)
            for key in keys:
                self.model.values.pop(key, None)
                self.model.sums.pop(key, None)
        self._compare_batches(slots, chance.sample(range(self.keys), _BATCH), now_ms)

    def _change_list(self, state: Any, key: int) -> None:
        text = f"element {self.chance.getrandbits(40)}"
        sort = self.chance.random()
        if sort < 0.85:
            state.add(text)
            self.model.lists.setdefault(key, []).append(text)
        elif sort < 0.95:
            state.update([text, text])
            self.model.lists[key] = [text, text]
        else:
            state.clear()
            self.model.lists.pop(key, None)

    def _change_map(self, state: Any, key: int, now_ms: int) -> None:
        map_key, sort = self.chance.choice(_MAP_KEYS), self.chance.random()
        if sort < 0.75:
            state.put(map_key, self.rows)
            self.model.maps.setdefault(key, {})[map_key] = now_ms, self.rows
        elif sort < 0.95:
            state.remove(map_key)
            self.model.maps.get(key, {}).pop(map_key, None)
        else:
            state.clear()
            self.model.maps.pop(key, None)

    def _compare_batches(self, slots: Slots, keys: Sequence[int], now_ms: int) -> None:
        for slot, mine in slots.divided(keys):
            found = slots.values[slot].get_many(pa.array(mine)).to_pylist()
            _check("value", mine, found, [self.model.value(key, now_ms) for key in mine])
            found = slots.sums[slot].get_many(pa.array(mine)).to_pylist()
            _check("sum", mine, found, [self.model.sums.get(key) for key in mine])

    def _compare_rows(self, slots: Slots, keys: Sequence[int], now_ms: int) -> None:
        for key in keys:
            slot = slots.under(key)
            lists = [slots.lists[slot].get()], [self.model.lists.get(key, [])]
            _check("list", [key], *lists)
            _check("map", [key], [dict(slots.maps[slot].items())], [self.model.map(key, now_ms)])


def _check(what: str, keys: Sequence[int], found: Sequence[Any], expected: Sequence[Any]) -> None:
    for key, there, right in zip(keys, found, expected, strict=True):
        assert there == right, f"{what} of key {key}: expected {right!r}, found {there!r}"


def _meet(part: tuple[int, int], mine: Any) -> bool:
    return bool(part[0] <= mine.last and mine.first <= part[1])
