"""Queues of timers compared with a plain set; and internals of the byte queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from holdfast.backends import ByteTableStore, KeyGroupRange, StateBackend, TableStore, Timer
from holdfast.backends.blocks.block import Block
from holdfast.backends.byte_tables.keys import group_prefixes
from holdfast.backends.byte_tables.timers import ByteTimerQueue, TimeLayout, TimerPages
from holdfast.backends.hashmap.tables import ObjectTableStore
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_group
from holdfast.backends.state.timers import timer_queue, timer_specs
from holdfast.backends.tables.contract import NO_NAMESPACE, StateKind, TableSpec
from holdfast.backends.tables.timer_queues import TimerQueue
from holdfast.backends.testing.machine import StateBackendMachine
from holdfast.backends.testing.samples import KEYS
from holdfast.backends.values.codec import value_codec_for
from support.states.counting_byte_store import MemoryStore

ENDS = (-(2**63), -(2**63) + 1, -1, 0, 1, 255, 256, 2**63 - 2, 2**63 - 1)
SPACES = ("", "a", "a\0", "b")
GROUPS = 4


def spec_of(keys: Any = int, namespaces: Any = None, name: str = "t") -> TableSpec:
    codec, known = None if namespaces is None else key_codec_for(namespaces), key_codec_for(keys)
    return timer_specs(name, lambda: known, codec)[0]


def order_of(spec: TableSpec, groups: int = GROUPS) -> Callable[[Timer], Any]:
    """How a byte queue orders timers."""

    def order(timer: Timer) -> Any:
        key = spec.keys.encode(timer.key)
        space = b"" if spec.namespaces is None else spec.namespaces.encode(timer.namespace)
        return timer.timestamp, key_group(spec.keys.hash(timer.key), groups), key, space

    return order


def stored(pages: TimerPages | None, groups: int = GROUPS) -> ByteTableStore:
    return ByteTableStore(MemoryStore(), KeyGroupRange(0, groups - 1), groups, timers=pages)


def blocks_of(store: TableStore, spec: TableSpec) -> list[Block]:
    frozen = store.freeze()
    try:
        return list(frozen.blocks(spec, None))
    finally:
        frozen.release()


def timers_in(blocks: list[Block], spec: TableSpec) -> Iterator[Timer]:
    """What a snapshot has, by the codecs alone."""
    assert spec.map_keys is not None
    for block in blocks:
        assert list(block.group_array) == sorted(block.group_array)
        assert block.map_keys is not None
        keys = map(spec.keys.decode, block.keys.to_list(block.count))
        moments = map(spec.map_keys.decode, block.map_keys.to_list(block.count))
        spaces: Any = [NO_NAMESPACE] * block.count
        if spec.namespaces is not None:
            assert block.namespaces is not None
            spaces = map(spec.namespaces.decode, block.namespaces.to_list(block.count))
        yield from map(Timer, moments, keys, spaces)


MOMENTS = st.integers(-6, 6) | st.sampled_from(ENDS)
TIMERS = st.builds(Timer, MOMENTS, st.integers(0, 11), st.sampled_from(SPACES))
FEW = st.lists(TIMERS, max_size=4)
STORES: dict[str, Callable[[], TableStore]] = {
    "objects": lambda: ObjectTableStore(GROUPS),
    "bytes on the heap": lambda: stored(None),
    "bytes, one by one": lambda: stored(TimerPages(read=1, write=1)),
    "bytes, few at once": lambda: stored(TimerPages(read=2, write=5)),
    "bytes, many at once": lambda: stored(TimerPages()),
}


class QueueMachine(RuleBasedStateMachine):
    """A queue, and the set of the timers that are in it."""

    @initialize(kind=st.sampled_from(sorted(STORES)))
    def start(self, kind: str) -> None:
        self.spec = spec_of(namespaces=str)
        self.model: set[Timer] = set()
        self.open(kind)

    def open(self, kind: str) -> None:
        self.is_ordered = kind.startswith("bytes,")
        self.store = STORES[kind]()
        self.queue: TimerQueue = timer_queue(self.store, self.spec)
        assert isinstance(self.queue, ByteTimerQueue) == self.is_ordered

    @rule(timers=st.lists(TIMERS, min_size=1, max_size=12))
    def add(self, timers: list[Timer]) -> None:
        for timer in timers:
            self.queue.add(timer.timestamp, timer.key, timer.namespace)
            self.model.add(timer)

    @rule(timers=FEW, pick=st.integers(0, 100))
    def remove(self, timers: list[Timer], pick: int) -> None:
        there = sorted(self.model, key=order_of(self.spec))
        for timer in (*timers, *there[pick % 7 :: pick % 5 + 1]):
            self.queue.remove(timer.timestamp, timer.key, timer.namespace)
            self.model.discard(timer)

    @rule(timers=TIMERS, key=st.integers(0, 11), count=st.integers(1, 40))
    def add_many_of_a_key(self, timers: Timer, key: int, count: int) -> None:
        for number in range(count):
            self.add([Timer(number * 7 % count - 20, key, timers.namespace)])

    @rule(until=MOMENTS, steps=st.integers(0, 60), added=FEW, removed=FEW, looks=st.booleans())
    def walk(
        self, until: int, steps: int, added: list[Timer], removed: list[Timer], *, looks: bool
    ) -> None:
        """Through the timers that are due, of which each may add and remove others."""
        walk = self.queue.due(until)
        for step in range(steps):
            due = [timer for timer in self.model if timer.timestamp <= until]
            found = next(walk, None)
            if not due:
                assert found is None
                return
            assert found is not None
            assert found in due
            assert found.timestamp == min(timer.timestamp for timer in due)
            if self.is_ordered:
                assert found == min(due, key=order_of(self.spec))
            self.model.remove(found)
            self.add(added[step : step + 1])
            self.remove(removed[step : step + 1], pick=5)
            if step == 3:
                later = [Timer(min(found.timestamp + 1, 2**63 - 1), found.key, found.namespace)]
                self.add(later)
            if looks and step % 4 == 1:
                self.is_in_snapshots()

    @rule()
    def first_moment(self) -> None:
        moments = (timer.timestamp for timer in self.model)
        assert self.queue.first_moment() == min(moments, default=None)

    @rule(kind=st.sampled_from(sorted(STORES)), parts=st.integers(1, 3))
    def move(self, kind: str, parts: int) -> None:
        """To another store, which has some of the timers already."""
        blocks = blocks_of(self.store, self.spec)
        self.store.close()
        self.open(kind)
        for block in blocks:
            size = -(-block.count // parts)
            for first in range(0, block.count, size):
                self.queue.load(block.rows(first, min(first + size, block.count)))

    @rule()
    def drop(self) -> None:
        self.store.drop_table(self.spec)
        self.queue = timer_queue(self.store, self.spec)
        self.model.clear()

    @rule()
    def is_in_snapshots(self) -> None:
        found = list(timers_in(blocks_of(self.store, self.spec), self.spec))
        assert (len(found), set(found)) == (len(self.model), self.model)

    @invariant()
    def memory_is_bounded(self) -> None:
        queue = getattr(self, "queue", None)
        if isinstance(queue, ByteTimerQueue):
            assert all(len(each.cached) <= 2 * queue._page for each in queue._groups.values())
            assert len(queue._noted) <= queue._most
            assert len(queue._unwritten) <= 2 * queue._most
            assert len(queue._marks) <= 2 * GROUPS + 65


def test_queues_are_sets_in_order_of_time() -> None:
    usual = settings(
        max_examples=120,
        stateful_step_count=25,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(QueueMachine, settings=usual)


@pytest.mark.soak
def test_queues_are_sets_in_order_of_time_in_long_runs() -> None:
    long = settings(
        max_examples=4000,
        stateful_step_count=60,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(QueueMachine, settings=long)


class FewInMemory(StateBackend):
    """Keeps state in bytes, and two timers of each key group in memory."""

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        pages = TimerPages(read=1, write=3)
        return ByteTableStore(MemoryStore(), key_groups, max_parallelism, timers=pages)


class FewInMemoryMachine(StateBackendMachine):
    def open_backend(self) -> StateBackend:
        return FewInMemory()


@pytest.mark.slow
def test_a_backend_with_few_timers_in_memory_behaves_like_a_dict_that_survives_restores() -> None:
    searching = settings(
        max_examples=60,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    run_state_machine_as_test(FewInMemoryMachine, settings=searching)


def opened(
    pages: TimerPages | None = None, groups: int = GROUPS
) -> tuple[ByteTimerQueue, MemoryStore]:
    memory = MemoryStore()
    store = ByteTableStore(
        memory, KeyGroupRange(0, groups - 1), groups, timers=pages or TimerPages()
    )
    queue = store.timer_queue(spec_of())
    assert isinstance(queue, ByteTimerQueue)
    return queue, memory


def moments(walk: Iterator[Timer]) -> list[int]:
    return [timer.timestamp for timer in walk]


@pytest.mark.parametrize("name", KEYS)
def test_a_timer_has_one_key_by_the_row_and_by_the_column(name: str) -> None:
    keys = [spec_of(KEYS[name].annotation).keys.canonical(key) for key in KEYS[name].instances]
    spec = spec_of(KEYS[name].annotation, str)
    layout = TimeLayout(spec, group_prefixes(128))
    timers = [(moment, key, space) for moment in ENDS for key in keys for space in SPACES]
    found = layout.stored_many(timers)
    assert found == [layout.stored(*timer) for timer in timers]
    assert sorted(found) == [
        layout.stored(timer.timestamp, timer.key, timer.namespace)
        for timer in sorted(
            (Timer(*timer) for timer in timers),
            key=lambda timer: (
                key_group(spec.keys.hash(timer.key), 128),
                timer.timestamp,
                spec.keys.encode(timer.key),
                timer.namespace,
            ),
        )
    ]
    assert list(map(layout.timer, found)) == [Timer(*timer) for timer in timers]


def test_removed_timers_are_not_scanned_repeatedly() -> None:
    queue, memory = opened(TimerPages(read=8, write=16))
    for moment in range(4000):
        queue.add(moment, 1, NO_NAMESPACE)
    memory.calls.clear()
    fired = []
    for until in range(0, 4000, 10):
        fired += moments(queue.due(until))
        queue.add(until + 1, 2, NO_NAMESPACE)  # of another group, and in front of all
        queue.add(until, 1, NO_NAMESPACE)
        queue.remove(until, 1, NO_NAMESPACE)
        assert queue.first_moment() == until + 1
    assert len(fired) == 3991 + 399
    assert memory.calls["key passed"] < 6000
    assert memory.calls["page"] < 900


def test_an_earlier_timer_moves_the_read_position_back() -> None:
    queue, memory = opened(TimerPages(read=8, write=16))
    for moment in range(2000, 0, -1):
        queue.add(moment, 1, NO_NAMESPACE)
        assert queue.first_moment() == moment
    assert memory.calls["page"] == 1
    assert moments(queue.due(2000)) == list(range(1, 2001))


def test_changes_are_written_many_at_a_time() -> None:
    queue, memory = opened()
    for key in range(10_000):
        queue.add(key * 7919 % 10_007, key, NO_NAMESPACE)
    assert memory.calls["put_many"] < 25
    assert len(moments(queue.due(10_007))) == 10_000
    queue.flush()
    assert memory.calls["remove_many"] < 120
    assert memory.calls["key written"] <= 20_000


def test_an_unchanged_timer_is_not_written_again() -> None:
    queue, memory = opened()
    for _ in range(5):
        for key in range(100):
            queue.add(1, key, NO_NAMESPACE)
            queue.remove(2, key, NO_NAMESPACE)
        queue.flush()
    assert memory.calls["key written"] == 100


def test_timers_far_away_cost_no_memory_each_time_a_near_one_fires() -> None:
    queue, _ = opened()
    queue.add(2**63 - 1, 1, NO_NAMESPACE)
    for moment in range(2000):
        queue.add(moment, 1, NO_NAMESPACE)
        assert moments(queue.due(moment)) == [moment]
    assert len(queue._marks) < 80


def test_with_many_key_groups_fewer_timers_of_each_are_in_memory() -> None:
    queue, _ = opened(groups=2048)
    for moment in range(50):
        for key in range(4000):
            queue.add(moment, key, NO_NAMESPACE)
    queue.flush()
    assert len(queue._groups) > 1500
    assert sum(len(group.cached) for group in queue._groups.values()) < 2 * 32 * 1024
    assert moments(queue.due(0)) == [0] * 4000
    assert queue.first_moment() == 1


def test_a_byte_store_says_how_it_lays_tables_out() -> None:
    plain = TableSpec(
        name="m",
        kind=StateKind.MAP,
        key_type=lambda: key_codec_for(int),
        namespaces=None,
        map_keys=key_codec_for(int),
        values=value_codec_for(bool),
        stamped=False,
    )
    for pages, word in ((TimerPages(), "by-time"), (None, "by-key")):
        store = stored(pages)
        assert (store.layout_of(spec_of()), store.layout_of(plain)) == (word, "by-key")
