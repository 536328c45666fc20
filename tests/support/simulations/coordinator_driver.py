"""A coordinator of checkpoints and a driver that feeds it events, for tests."""

from collections.abc import Sequence
from typing import Any

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.checkpoint.commands import (
    Abort,
    AbortReason,
    Begin,
    Command,
    FailJob,
    Notify,
    Retain,
    Trigger,
)
from holdfast.runtime.checkpoint.coordinator import CheckpointCoordinator
from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder, SavepointPurpose
from holdfast.runtime.protocol.checkpoints import SavepointFormat, SlotStatistics
from holdfast.storage import InlineHandle, SavepointFolder, StateSnapshot, load_storage

START_MS = 1_000_000
SLOTS = 2
COUNTED = (AbortReason.DECLINED, AbortReason.EXPIRED, AbortReason.IO, AbortReason.FINALIZE)


def part(slot: int | None = None, size_bytes: int = 1) -> StateSnapshot:
    handle = InlineHandle(data=b"x" * size_bytes)
    return StateSnapshot(kind="test/1", handles={"all": handle}, slot=slot)


def an_order(
    purpose: SavepointPurpose = SavepointPurpose.KEEP_RUNNING, name: str = "savepoint-0"
) -> SavepointOrder:
    """An order for a savepoint somewhere."""
    folder = SavepointFolder(load_storage("memory://savepoints"), name)
    return SavepointOrder(folder, SavepointFormat.NATIVE, purpose)


class Driver:
    """A coordinator, and what it was told and has answered in short."""

    def __init__(
        self,
        *,
        sources: Sequence[str] = (),
        next_id: int = 1,
        restored: int | None = None,
        **settings: Any,
    ) -> None:
        config = CheckpointConfig(**{"interval": "1s", **settings})
        self.coordinator = CheckpointCoordinator(
            config,
            slots=SLOTS,
            sources=sources,
            next_id=next_id,
            now_ms=START_MS,
            restored=restored,
        )
        self.now_ms = START_MS

    def after(self, milliseconds: int) -> Sequence[Command]:
        self.now_ms += milliseconds
        return self.coordinator.tick(self.now_ms)

    def acknowledge(self, number: int, *slots: int) -> Sequence[Command]:
        """All slots unless some are named; answers what the last one was answered."""
        answered: Sequence[Command] = ()
        for slot in slots or range(SLOTS):
            answered = self.coordinator.acknowledged(
                self.now_ms,
                number,
                slot=slot,
                parts={"sum": [part(slot)]},
                statistics=SlotStatistics(),
            )
        return answered

    def decline(self, number: int, slot: int = 0) -> Sequence[Command]:
        return self.coordinator.declined(self.now_ms, number, slot=slot, reason="no disk")

    def stored(self, number: int) -> Sequence[Command]:
        return self.coordinator.stored(self.now_ms, number)

    def store_failed(self, number: int) -> Sequence[Command]:
        return self.coordinator.store_failed(self.now_ms, number, reason="no answer")

    def complete(self, number: int) -> Sequence[Command]:
        self.acknowledge(number)
        return self.stored(number)

    def request(self) -> Sequence[Command]:
        return self.coordinator.request(self.now_ms)

    def request_savepoint(
        self, purpose: SavepointPurpose = SavepointPurpose.KEEP_RUNNING
    ) -> Sequence[Command]:
        return self.coordinator.request_savepoint(self.now_ms, an_order(purpose).request)

    def drained(self) -> Sequence[Command]:
        return self.coordinator.drained(self.now_ms)

    def request_final(self) -> Sequence[Command]:
        return self.coordinator.request_final(self.now_ms)

    def shutdown(self) -> Sequence[Command]:
        return self.coordinator.shutdown(self.now_ms)


def brief(commands: Sequence[Command]) -> list[tuple[Any, ...]]:
    """Commands without their particulars."""
    told: list[tuple[Any, ...]] = []
    for command in commands:
        match command:
            case FailJob():
                told.append((FailJob,))
            case Abort(checkpoint_id=number, reason=reason):
                told.append((Abort, number, reason))
            case Begin(checkpoint_id=number, trigger=trigger):
                told.append((Begin, number, trigger))
            case Retain(since):
                told.append((Retain, since))
            case _:
                told.append((type(command), command.checkpoint_id))
    return told


def begin(number: int, trigger: Trigger = Trigger.PERIODIC) -> tuple[Any, ...]:
    return Begin, number, trigger


def completed(number: int, *aborts: tuple[Any, ...], since: int = 0) -> list[tuple[Any, ...]]:
    """What follows from a checkpoint that is complete; all before it may go, unless `since`."""
    return [(Notify, number), *aborts, (Retain, since or number)]


def abort(number: int, reason: AbortReason) -> tuple[Any, ...]:
    return Abort, number, reason
