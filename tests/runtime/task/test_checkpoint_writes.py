"""How many objects a checkpoint writes: few, however many operators there are."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest

from holdfast.backends import KeyedStateBackend, KeyGroupRange, StateBackend, ValueStateDescriptor
from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.checkpoint.commands import Begin, Store
from holdfast.runtime.checkpoint.coordinator import CheckpointCoordinator
from holdfast.runtime.driver.checkpoints.checkpoint_keeper import CheckpointKeeper
from holdfast.runtime.driver.events import CheckpointStored, EventQueue
from holdfast.runtime.protocol.messages import Acknowledge
from holdfast.runtime.spark.sources.positions import QUERY_KIND, LogKeeper
from holdfast.runtime.task.slot_checkpoint import SlotCheckpoint
from holdfast.storage import JobStorage, StateSnapshot, SystemClock
from support.states.tried_backends import backend_named
from support.storages.counting_storage import CountingStorage

SLOTS = 4
MAX_PARALLELISM = 128
KEYS = 50


class Slot:
    """One slot with so many keyed operators."""

    def __init__(self, number: int, operators: int, backend: StateBackend, job: JobStorage) -> None:
        self.number = number
        self.job = job
        self.states: dict[str, KeyedStateBackend] = {
            f"operator-{each}": backend.open(
                uid=f"operator-{each}",
                key_groups=KeyGroupRange(0, MAX_PARALLELISM - 1),
                max_parallelism=MAX_PARALLELISM,
            )
            for each in range(operators)
        }

    def change(self, value: int) -> None:
        for state in self.states.values():
            totals = state.get_state(ValueStateDescriptor("total", int))
            for key in range(KEYS):
                state.set_current_key(f"key-{key}")
                totals.update(value + key)

    def answer(self, checkpoint_id: int) -> Acknowledge:
        """What the slot does between the barrier and its acknowledgement."""
        is_written = threading.Event()
        checkpoint = SlotCheckpoint(
            checkpoint_id,
            self.number,
            self.job,
            SystemClock(),
            chains=1,
            on_written=lambda _: is_written.set(),
        )

        def snapshot(state: KeyedStateBackend) -> list[Future[StateSnapshot]]:
            return [state.snapshot(checkpoint_id, checkpoint)]

        checkpoint.take([(uid, partial(snapshot, state)) for uid, state in self.states.items()])
        assert is_written.wait(60)
        return checkpoint.finish()

    def close(self) -> None:
        for state in self.states.values():
            state.close()


def take_checkpoints(
    storage: CountingStorage, operators: int, backend: StateBackend, count: int
) -> list[int]:
    """How many objects each of so many checkpoints has written."""
    job = storage.job("job")
    owner = job.take_over()
    clock = SystemClock()
    config = CheckpointConfig(interval="1h")
    keeper = CheckpointKeeper(
        job, owner, retained=2, parallelism=SLOTS, max_parallelism=MAX_PARALLELISM, clock=clock
    )
    coordinator = CheckpointCoordinator(
        config, slots=SLOTS, sources=["source"], next_id=1, now_ms=0
    )
    source, events = LogKeeper("source", job), EventQueue()
    slots = [Slot(number, operators, backend, job) for number in range(SLOTS)]
    written: list[int] = []
    try:
        for turn in range(count):
            for slot in slots:
                slot.change(turn)
            before = storage.calls["writer"] + storage.calls["create"]
            (begun,) = coordinator.request(turn)
            assert isinstance(begun, Begin)
            number = begun.checkpoint_id
            log = {f"offsets/{turn}": b"{}", f"commits/{turn}": b"{}"}
            position = StateSnapshot(
                kind=QUERY_KIND,
                handles=source.keep(number, log, completed=begun.base),
                attributes={"batch": turn},
            )
            commands = coordinator.source_position(turn, number, uid="source", position=position)
            for slot in slots:
                part = slot.answer(number)
                commands = coordinator.acknowledged(
                    turn, number, slot=slot.number, parts=part.parts, statistics=part.statistics
                )
            (store,) = commands
            assert isinstance(store, Store)
            keeper.store(store, events)
            told = events.next(60)
            assert isinstance(told, CheckpointStored)
            assert len(told.metadata.operators) == operators
            assert all(len(each.parts) == SLOTS for each in told.metadata.operators.values())
            written.append(storage.calls["writer"] + storage.calls["create"] - before)
            coordinator.stored(turn, number)
            for slot in slots:
                for state in slot.states.values():
                    state.notify_checkpoint_complete(number)
            keeper.retain(number)
        keeper.finish_deleting()
        assert job.completed() == (count - 1, count)
    finally:
        for slot in slots:
            slot.close()
        keeper.close()
    return written


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("hashmap", 50),
        pytest.param("hashmap", 200, marks=pytest.mark.slow),
        pytest.param("rocksdb", 25, marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_of_many_operators_writes_a_file_a_slot(
    name: str, operators: int, tmp_path: Path
) -> None:
    """One for each slot, one for the source's new log, and the commit point."""
    storage = CountingStorage()
    written = take_checkpoints(storage, operators, backend_named(name, tmp_path), 4)
    assert written == [SLOTS + 2] * 4


def test_small_state_of_few_operators_writes_only_the_commit_point() -> None:
    storage = CountingStorage()
    storage.inline_limit_bytes = 20 * 1024
    written = take_checkpoints(storage, 2, backend_named("hashmap", Path()), 2)
    assert written == [2, 2], "and the source's new log"
