"""An attempt of a job with everything around it played: slots, sources, the cluster, the storage.

A script says what happens, step by step; nothing happens in the background.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.checkpoint.commands import Store
from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder, SavepointPurpose
from holdfast.runtime.checkpoint.statistics import CheckpointHistory
from holdfast.runtime.driver.attempt import Attempt
from holdfast.runtime.driver.cluster_capacity import TaskSlotCount, TaskSlotWatch
from holdfast.runtime.driver.events import (
    AttemptEvent,
    CheckpointStored,
    EventQueue,
    SlotsEnded,
    TaskSlotsFound,
)
from holdfast.runtime.driver.outcomes import AttemptPhase, Outcome
from holdfast.runtime.driver.run_parts import AttemptParts
from holdfast.runtime.driver.source_feed import Feed, Source
from holdfast.runtime.protocol.checkpoints import SavepointFormat, SlotStatistics
from holdfast.runtime.protocol.elements import Barrier, EndOfInput, Idle
from holdfast.runtime.protocol.messages import (
    Acknowledge,
    CancelAttempt,
    CheckpointAborted,
    CheckpointCompleted,
    Finish,
    Finished,
    MarkSource,
    Ready,
    Register,
    Start,
    ToDriver,
    ToSlot,
)
from holdfast.storage import (
    CheckpointMetadata,
    CheckpointStorage,
    HoldfastError,
    ManualClock,
    SavepointFolder,
    StateSnapshot,
)
from holdfast.storage.processes import ProcessIdentity

VERSION = "1.2.3"
EXECUTORS = ("slot_lines", "source_feed", "source_thread")
"""Modules of `runtime.driver` that do something in the background for an attempt."""
_Mark = TypeVar("_Mark", Barrier, Idle, EndOfInput)
Step = AttemptEvent | int | None
"""Something that happens; or so many milliseconds that pass; or nothing."""
Script = Callable[["Stage"], Iterator[Step]]


class InlineExecutor:
    """Does at once what others do in the background."""

    def __init__(self, workers: int = 1, name: str = "") -> None:
        self._is_shut_down = False

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if not self._is_shut_down:
            try:
                future.set_result(call(*arguments))
            except Exception as error:  # noqa: BLE001 - as the real one
                future.set_exception(error)
        return future

    def shutdown(self, *, wait: bool = True, cancel_futures: bool = False) -> None:
        self._is_shut_down = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()


class PlayedQueue(EventQueue):
    """What is told comes first; then the script goes on, or time passes if it has ended."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._waiting: deque[AttemptEvent] = deque()
        self.script: Iterator[Step] = iter(())
        self.waits_s: list[float] = []

    def put(self, event: AttemptEvent) -> None:
        self._waiting.append(event)

    def next(self, timeout_s: float) -> AttemptEvent | None:
        self.waits_s.append(timeout_s)
        assert len(self.waits_s) < 10_000, "the attempt spins"
        if not self._waiting:
            step = next(self.script, round(timeout_s * 1_000))
            if isinstance(step, int):
                self._clock.advance(step)
            elif step is not None:
                return step
        return self._waiting.popleft() if self._waiting else None


def marks_of(told: Iterable[ToSlot], kind: type[_Mark]) -> list[_Mark]:
    """The marks of this kind, of those that a slot was to put into channels of its sources."""
    marks = [each.mark for each in told if isinstance(each, MarkSource)]
    return [mark for mark in marks if isinstance(mark, kind)]


@dataclass
class PlayedSlot:
    """A slot as the driver reaches it: it writes down what it is told."""

    told: list[ToSlot] = field(default_factory=list)
    error: HoldfastError | None = None
    """What a call raises."""
    fails_at: type | None = None
    """Only messages of this type raise; None: all."""
    refuses: type | None = None
    """Messages of this type are answered by No."""
    is_closed: bool = False
    on_lost: Callable[[HoldfastError], None] | None = None

    def call(self, message: ToSlot) -> bool:
        if self.error is not None and (self.fails_at is None or type(message) is self.fails_at):
            raise self.error
        self.told.append(message)
        return type(message) is not self.refuses

    def watch(self, on_lost: Callable[[HoldfastError], None]) -> None:
        self.on_lost = on_lost

    def close(self) -> None:
        self.is_closed = True

    def commands(self) -> list[str]:
        """What the slot itself was told, in short."""
        kinds = (Start, CheckpointCompleted, CheckpointAborted, Finish, CancelAttempt)
        return [type(each).__name__ for each in self.told if isinstance(each, kinds)]


class PlayedSource(Source):
    """A source that feeds nothing unless the script says so."""

    def __init__(self, uid: str, order: list[str]) -> None:
        self.uid = uid
        self.feed: Feed | None = None
        self.stopped = 0
        self.error: Exception | None = None
        """What `start` raises."""
        self.store_error: Exception | None = None
        self.stop_error: Exception | None = None
        self.hold: threading.Event | None = None
        """What `store` waits for."""
        self.at = 0
        self.bases: list[tuple[int, int | None]] = []
        """By checkpoint, which one was complete."""
        self._order = order

    def start(self, feed: Feed) -> None:
        self.feed = feed
        if self.error is not None:
            raise self.error

    def position(self) -> int:
        return self.at

    def store(
        self,
        position: Any,
        checkpoint_id: int,
        *,
        completed: int | None,
        savepoint: SavepointFolder | None = None,
    ) -> StateSnapshot:
        if self.hold is not None:
            assert self.hold.wait(30)
        self.bases.append((checkpoint_id, completed))
        if self.store_error is not None:
            raise self.store_error
        return StateSnapshot(kind="test/1", attributes={"at": position})

    def stop(self) -> None:
        self.stopped += 1
        self._order.append(f"stop {self.uid}")
        if self.stop_error is not None:
            raise self.stop_error


class Stage:
    """An attempt of two slots and two sources, with all that it needs."""

    def __init__(self, slots: int = 2, **settings: Any) -> None:
        self.clock = ManualClock(5_000_000)
        self.events = PlayedQueue(self.clock)
        self.order: list[str] = []
        self.slots = [PlayedSlot() for _ in range(slots)]
        self.sources = {uid: PlayedSource(uid, self.order) for uid in ("a", "b")}
        self.phases: list[AttemptPhase] = []
        self.stored: list[Store] = []
        self.retained: list[int] = []
        self.discarded: list[tuple[SavepointOrder, int]] = []
        self.stores_at_once = True
        self.room: TaskSlotCount | None = None
        self.cancelled = 0
        self.history = CheckpointHistory()
        self.parts = AttemptParts(
            slots=slots,
            version=VERSION,
            config=CheckpointConfig(**{"interval": None, **settings}),
            sources=self.sources,
            next_checkpoint_id=7,
            restored=5,
            history=self.history,
            deploy=self._deploy,
            link=lambda address: self.slots[int(address)],
            store=self._store,
            retain=self.retained.append,
            discard=lambda order, number: self.discarded.append((order, number)),
            on_phase=self.phases.append,
            clock=self.clock,
            room=TaskSlotWatch("job", lambda: self.room, self.clock),
            room_timeout_s=300.0,
        )
        self.attempt = Attempt(self.parts, self.events)

    def run(self, script: Script) -> Outcome:
        self.events.script = script(self)
        return self.attempt.run()

    def _deploy(self, events: EventQueue) -> Stage:
        if self.room is None or not self.room.lacks:
            events.put(TaskSlotsFound())
        return self

    def ending(self) -> None:
        assert not any(source.stopped for source in self.sources.values())

    def cancel(self) -> None:
        """The deployment is stopped."""
        self.cancelled += 1
        self.order.append("cancel")

    def tell(self, message: ToDriver) -> bool:
        """What a slot says by the network."""
        return self.attempt.handle(message)

    def register(
        self, slot: int, *, pid: int = 1, host: str = "here", version: str = VERSION
    ) -> Register:
        return Register(
            slot=slot,
            address=str(slot),
            holdfast_version=version,
            python_version="3",
            process=ProcessIdentity(pid=pid, host=host),
        )

    def opening(self) -> Iterator[Step]:
        """All slots come."""
        for slot in range(len(self.slots)):
            yield self.register(slot)

    def running(self) -> Iterator[Step]:
        """All slots come, and are ready."""
        yield from self.opening()
        for slot in range(len(self.slots)):
            yield Ready(slot)

    def acknowledged(self, number: int) -> Iterator[Step]:
        """All slots have done their part of a checkpoint."""
        for slot in range(len(self.slots)):
            yield Acknowledge(
                checkpoint_id=number,
                slot=slot,
                parts={"sum": [StateSnapshot(kind="test/1", slot=slot)]},
                statistics=SlotStatistics(),
            )

    def finishing(self) -> Iterator[Step]:
        """All slots have processed all that there is, and the final checkpoint is stored."""
        yield from self.running()
        for slot in range(len(self.slots)):
            yield Finished(slot)
        yield from self.acknowledged(7)

    def finished(self) -> Iterator[Step]:
        """The same, and the slots have ended."""
        yield from self.finishing()
        yield None
        yield SlotsEnded(None)

    def _store(self, command: Store, events: EventQueue, order: SavepointOrder | None) -> None:
        self.stored.append(command)
        if self.stores_at_once:
            events.put(CheckpointStored(metadata_of(command), order))


def metadata_of(command: Store) -> CheckpointMetadata:
    return CheckpointMetadata(
        job_id="job",
        checkpoint_id=command.checkpoint_id,
        triggered_ms=command.triggered_ms,
        completed_ms=0,
    )


def an_order(
    storage: CheckpointStorage, purpose: SavepointPurpose = SavepointPurpose.KEEP_RUNNING
) -> SavepointOrder:
    """One for a savepoint of job "job"."""
    return SavepointOrder(SavepointFolder.begin(storage, "job"), SavepointFormat.NATIVE, purpose)


def error_of(order: SavepointOrder) -> str:
    """Why there will be none."""
    return str(order.outcome.exception(0))
