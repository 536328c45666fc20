"""A slot whose snapshots fail: in the background it declines, in the synchronous part it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import StateBackend
from holdfast.runtime.operators.function_operator import FunctionOperator
from holdfast.runtime.protocol.elements import Barrier
from holdfast.runtime.protocol.messages import Acknowledge, Decline
from holdfast.storage import FileSystemCheckpointStorage, Unavailable
from support.jobs.lone_slot import ORDERS, Stage


def test_a_snapshot_that_fails_is_declined_and_the_slot_goes_on(
    tmp_path: Path, backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(f"file://{tmp_path}", backend=backend)
    stage.slot.open()
    stage.orders(*ORDERS)

    def writer(_self: Any, _name: str) -> Any:
        raise Unavailable("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(FileSystemCheckpointStorage, "writer", writer)
        stage.offer(Barrier(1))
        stage.work()
        declined = stage.driver.wait(Decline)
    assert (declined.checkpoint_id, declined.slot) == (1, 0)
    assert "disk full" in declined.reason
    assert stage.checkpoint(2).checkpoint_id == 2
    stage.slot.close()


def test_a_failure_in_the_synchronous_part_of_a_snapshot_fails_the_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that follow would change what is half frozen. Nothing of the checkpoint is left."""
    stage = Stage(f"file://{tmp_path}")
    stage.slot.open()
    stage.orders(*ORDERS)

    def raises(*_: Any, **__: Any) -> Any:
        raise MemoryError("no room for a snapshot")

    monkeypatch.setattr(FunctionOperator, "snapshot", raises)
    stage.offer(Barrier(1))
    with pytest.raises(MemoryError, match="no room for a snapshot"):
        stage.work()
    stage.slot.close()
    assert not any(isinstance(told, Acknowledge | Decline) for told in stage.driver.told)
    assert stage.files() == []
