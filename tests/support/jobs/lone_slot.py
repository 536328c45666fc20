"""One slot without a network, for tests: rows in, acknowledgements out, step by step."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from holdfast.backends import StateBackend, load_backend
from holdfast.runtime.protocol.elements import Barrier
from holdfast.runtime.protocol.messages import Acknowledge, ToDriver
from holdfast.runtime.task.channel import Bell, Channel
from holdfast.runtime.task.slot import Slot
from holdfast.runtime.task.slot_assignment import SlotAssignment
from holdfast.runtime.task.spill import Spill
from holdfast.storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    HoldfastError,
    JobStorage,
    ManualClock,
    StateSnapshot,
    load_storage,
)
from holdfast.storage.registry import OpenStorage
from support.simulations.jobs import Order, Shelf, job_plan
from support.simulations.world import World

ORDERS = [Order("1", 95, 1_000), Order("2", 5, 1_010), Order("1", 7, 1_250)]


class PlayedDriver:
    """Writes down what it is told, and lets a test wait for it."""

    def __init__(self) -> None:
        self.told: list[ToDriver] = []
        self.error: HoldfastError | None = None
        self._changed = threading.Condition()

    def call(self, message: ToDriver) -> bool:
        with self._changed:
            if self.error is not None:
                raise self.error
            self.told.append(message)
            self._changed.notify_all()
        return True

    def wait(self, kind: type) -> Any:
        """The first message of this kind."""
        return self.wait_for(kind, 1)

    def wait_for(self, kind: type, count: int) -> Any:
        """The message of this kind before which there were that many but one."""

        def found() -> list[ToDriver]:
            return [each for each in self.told if isinstance(each, kind)]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, 10), f"no {kind.__name__}"
            return found()[count - 1]


class Stage:
    """The only slot of the job that is simulated elsewhere, here with real threads and files."""

    capacity_bytes = 1 << 20
    spill: Spill | None = None

    def __init__(
        self,
        url: str,
        restored_from: JobStorage | None = None,
        backend: StateBackend | None = None,
        open_storage: OpenStorage = load_storage,
        mode: str = "exactly-once",
        sync_timeout_s: float = 0.0,
        in_flight: Sequence[StateSnapshot] = (),
        *,
        keeps_no_files: bool = False,
        **restored: list[StateSnapshot],
    ) -> None:
        storage: CheckpointStorage = FileSystemCheckpointStorage(url, inline_limit_bytes=0)
        if keeps_no_files:
            storage = load_storage("memory://lone-slot")
        storage.prepare()
        self.job = storage.job("job")
        self.world = World(0, faults=0)
        self.shelf = Shelf(self.world, lambda _uid, _part: None)
        self.plan = job_plan(self.shelf, 1)
        self.driver = PlayedDriver()
        self.clock = ManualClock()
        bell = Bell()
        self.channels = {
            edge.edge_id: [Channel(self.capacity_bytes, bell)] for edge in self.plan.edges
        }
        self.slot = Slot(
            SlotAssignment(
                plan=self.plan,
                epoch=1,
                attempt=1,
                backend=backend or load_backend("hashmap"),
                job=self.job,
                restored=restored,
                restored_from=restored_from,
                in_flight=in_flight,
                open_storage=open_storage,
                checkpoint_mode=mode,
                sync_timeout_s=sync_timeout_s,
                first_checkpoint_id=1,
            ),
            0,
            self.channels,
            self._no_outlet,
            self.driver.call,
            bell,
            self.clock,
            spill=self.spill,
        )

    def _no_outlet(self, edge: Any, slot: int, bell: Any) -> Any:
        raise AssertionError("a single slot sends nothing to others")

    @property
    def sources(self) -> list[Channel]:
        return [self.channels[edge][0] for edge in ("spend/0", "spend/1")]

    def offer(self, *elements: Any) -> None:
        for channel in self.sources:
            for element in elements:
                channel.offer(element)

    def orders(self, *orders: Order) -> None:
        schema = self.plan.edge("spend/0").schema
        columns = zip(*orders, strict=True)
        arrays = [pa.array(each, kind) for each, kind in zip(columns, schema.types, strict=True)]
        self.sources[0].offer(pa.RecordBatch.from_arrays(arrays, schema=schema))

    def work(self) -> None:
        """All that there is to do, also beside the slot's thread."""
        while self.slot.step() or not self.slot.has_committed:
            pass

    def checkpoint(self, number: int, completed: int | None = None) -> Acknowledge:
        """Its answer to the first checkpoint."""
        self.offer(Barrier(number, completed))
        self.work()
        acknowledged: Acknowledge = self.driver.wait(Acknowledge)
        return acknowledged

    def files(self) -> list[str]:
        return [info.name for info in self.job.storage.list("job/chk-")]
