"""A slot, step by step: rows in, acknowledgements out, and what it does at each command."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.backends import StateBackend
from holdfast.runtime.api.errors import OperatorFailed
from holdfast.runtime.operators.process_operator import KeyedProcessSpec
from holdfast.runtime.operators.sink_operator import SinkOperator
from holdfast.runtime.protocol.elements import EVENT_TIME, Barrier, EndOfInput, Watermark
from holdfast.runtime.protocol.messages import (
    Acknowledge,
    BeginSavepoint,
    CancelAttempt,
    CheckpointAborted,
    CheckpointCompleted,
    Finish,
    Finished,
    Ready,
)
from holdfast.runtime.task.slot import Slot
from holdfast.storage import (
    CheckpointStorage,
    Fenced,
    FileSystemCheckpointStorage,
    Invalid,
    SavepointFolder,
    Unavailable,
    load_storage,
)
from support.jobs.lone_slot import ORDERS, Stage
from support.simulations.jobs import SINKS, expected


@pytest.fixture
def make(tmp_path: Any) -> Callable[..., Stage]:
    return lambda **restored: Stage(f"file://{tmp_path}", **restored)


def test_a_slot_has_finished_also_where_barriers_keep_it_busy(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.slot.open()
    stage.offer(EndOfInput())
    barrier = 0
    while stage.driver.told[1:] != [Finished(0)]:
        assert barrier < 100
        barrier += 1
        stage.offer(Barrier(barrier))
        stage.slot.step()


def test_a_slot_from_its_first_row_to_its_end(
    make: Callable[..., Stage], backend: StateBackend
) -> None:
    stage = make(backend=backend)
    stage.slot.open()
    assert stage.driver.told == [Ready(0)]
    stage.orders(*ORDERS)
    stage.offer(EndOfInput())
    stage.work()
    assert stage.driver.told[1:] == [Finished(0)]
    stage.work()
    assert stage.driver.told[1:] == [Finished(0)], "said once"
    acknowledged = stage.checkpoint(1)
    assert {*acknowledged.parts} == {"spend", "towns", *SINKS}
    assert stage.shelf.committed == {}
    stage.slot.command(CheckpointCompleted(1))
    stage.slot.command(Finish())
    stage.slot.step()
    assert not stage.slot.is_done
    stage.work()
    stage.slot.close()
    assert stage.shelf.seen == expected({"web": [[ORDERS]]})
    assert stage.slot.rows() > 0
    assert len(stage.files()) == 1, "one file for all operators"


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_slot_continues_from_a_checkpoint(
    make: Callable[..., Stage],
    backend: StateBackend,
    tmp_path: Any,
    is_elsewhere: bool,  # noqa: FBT001
) -> None:
    place = tmp_path / "elsewhere" if is_elsewhere else tmp_path
    before = Stage(f"file://{place}", backend=backend)
    before.slot.open()
    before.orders(*ORDERS[:2])
    before.offer(Watermark(1_005))
    parts = before.checkpoint(1).parts
    before.orders(*ORDERS[2:])
    before.work()
    before.slot.close()
    after = make(backend=backend, restored_from=before.job if is_elsewhere else None, **parts)
    after.shelf.prepared |= before.shelf.prepared
    after.slot.open()
    after.orders(*ORDERS[2:])
    after.offer(EndOfInput())
    after.work()
    after.checkpoint(2)
    after.slot.command(CheckpointCompleted(2))
    after.work()
    after.slot.close()
    assert after.shelf.seen == expected({"web": [[ORDERS]]})


def test_the_loop_ends_by_finish(make: Callable[..., Stage]) -> None:
    stage = make()
    running = threading.Thread(target=stage.slot.run)
    running.start()
    stage.driver.wait(Ready)
    stage.offer(EndOfInput())
    stage.driver.wait(Finished)
    stage.slot.command(Finish())
    running.join(10)
    assert not running.is_alive()


def test_a_cancelled_slot_is_fenced(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.slot.command(CancelAttempt("enough"))
    with pytest.raises(Fenced, match="cancelled this attempt"):
        stage.slot.run()


@pytest.mark.parametrize(
    "stop",
    [lambda slot: slot.command(CancelAttempt("enough")), lambda slot: slot.fail(Fenced("gone"))],
    ids=["cancelled", "failed"],
)
def test_a_slot_that_is_not_wanted_opens_nothing(
    make: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch, stop: Callable[[Slot], None]
) -> None:
    opened: list[str] = []
    real = SinkOperator.open

    def opening(operator: SinkOperator, context: Any) -> None:
        opened.append(context.uid)
        real(operator, context)
        stop(stage.slot)

    monkeypatch.setattr(SinkOperator, "open", opening)
    stage = make()
    stop(stage.slot)
    with pytest.raises(Fenced):
        stage.slot.run()
    assert opened == []
    stage = make()
    with pytest.raises(Fenced):
        stage.slot.run()
    assert len(opened) == 1, "it stops also between two"


def test_the_first_error_from_elsewhere_stops_the_slot(
    make: Callable[..., Stage],
) -> None:
    stage = make()
    stage.slot.fail(Unavailable("a stream broke"))
    stage.slot.fail(Unavailable("another one"))
    with pytest.raises(Unavailable, match="a stream broke"):
        stage.slot.run()


def test_an_error_of_closing_does_not_hide_what_went_wrong(
    make: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(_: SinkOperator) -> None:
        raise ValueError("cannot be closed")

    monkeypatch.setattr(SinkOperator, "close", close)
    stage = make()
    stage.slot.fail(Unavailable("a stream broke"))
    with pytest.raises(Unavailable, match="a stream broke"):
        stage.slot.run()


def test_an_operator_that_cannot_be_closed_does_not_fail_a_job_that_is_complete(
    make: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def close(_: SinkOperator) -> None:
        raise ValueError("cannot be closed")

    monkeypatch.setattr(SinkOperator, "close", close)
    stage = make()
    stage.slot.command(Finish())
    stage.slot.run()
    assert [record.levelname for record in caplog.records] == ["WARNING"] * len(SINKS)
    for uid in SINKS:
        assert f"the job is complete, but operator {uid!r} failed" in caplog.text
    assert "cannot be closed" in caplog.text


def test_an_operator_that_cannot_be_opened_is_named(
    make: Callable[..., Stage], backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(spec: KeyedProcessSpec) -> Any:
        operator = real(spec)
        if spec.uid == "towns":
            monkeypatch.setattr(operator, "open", lambda _: 1 / 0)
        return operator

    real = KeyedProcessSpec.build
    monkeypatch.setattr(KeyedProcessSpec, "build", build)
    stage = make(backend=backend)
    with pytest.raises(OperatorFailed, match="operator 'towns' failed"):
        stage.slot.run()
    assert stage.driver.told == [], "it is not ready"


def check_only_the_second_is_there(stage: Stage) -> None:
    assert stage.driver.wait(Acknowledge).checkpoint_id == 2
    stage.slot.close()
    assert [name.split("/")[1] for name in stage.files()] == [f"chk-{2:020d}"]


def test_a_checkpoint_that_was_called_off_before_its_barrier_is_not_answered(
    make: Callable[..., Stage],
    backend: StateBackend,
) -> None:
    stage = make(backend=backend)
    stage.slot.open()
    stage.orders(*ORDERS)
    stage.slot.command(CheckpointAborted(1))
    stage.offer(Barrier(1), Barrier(2))
    stage.work()
    check_only_the_second_is_there(stage)


@pytest.mark.parametrize("mode", ["exactly-once", "at-least-once"])
def test_a_checkpoint_aborted_during_alignment_leaves_no_file(
    make: Callable[..., Stage], backend: StateBackend, mode: str
) -> None:
    stage = make(backend=backend, mode=mode)
    stage.slot.open()
    stage.orders(*ORDERS)
    stage.sources[0].offer(Barrier(1))
    stage.work()
    stage.slot.command(CheckpointAborted(1))
    stage.work()
    stage.sources[1].offer(Barrier(1))
    stage.offer(Barrier(2))
    stage.work()
    check_only_the_second_is_there(stage)


def test_rows_behind_a_barrier_are_in_a_checkpoint_at_least_once(
    make: Callable[..., Stage], backend: StateBackend
) -> None:
    """Two are under way: a channel has brought both barriers, and rows behind each."""
    stage = make(backend=backend, mode="at-least-once")
    stage.slot.open()
    large = ORDERS[0]
    for element in (Barrier(1), large, Barrier(2), large):
        if element is large:
            stage.orders(large)
        else:
            stage.sources[0].offer(element)
    stage.work()
    for number in (1, 2):
        stage.sources[1].offer(Barrier(number))
        stage.work()
        assert stage.driver.wait_for(Acknowledge, number).checkpoint_id == number
    rows = [len(rows) for part, rows in stage.shelf.prepared.items() if part.startswith("large/")]
    assert rows == [2], "both are in the first one"
    stage.slot.close()


def test_a_slot_that_stops_in_the_middle_of_a_checkpoint_leaves_no_file(
    make: Callable[..., Stage],
    backend: StateBackend,
) -> None:
    stage = make(backend=backend)
    stage.slot.open()
    stage.orders(*ORDERS)
    stage.sources[0].offer(Barrier(1))
    stage.work()
    stage.slot.close()
    assert stage.files() == []
    assert list(stage.job.storage.unfinished("")) == []
    assert [type(each) for each in stage.driver.told] == [Ready]


def test_a_snapshot_for_which_rows_wait_too_long_fails_the_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure is told while the slot's thread is stuck, and ends the slot if it comes back."""
    stage = Stage(f"file://{tmp_path}", sync_timeout_s=0.02)
    told: list[Exception] = []
    is_told = threading.Event()
    take = SinkOperator.snapshot

    def snapshot(*given: Any, **named: Any) -> Any:
        assert is_told.wait(30), "the thread is stuck until the failure is told"
        return take(*given, **named)

    def tell(error: Exception) -> None:
        told.append(error)
        is_told.set()

    monkeypatch.setattr(SinkOperator, "snapshot", snapshot)
    stage.offer(Barrier(1, None))
    late = r"synchronous part of checkpoint 1 takes too long \[operators .*0\.02 s"
    with pytest.raises(Unavailable, match=late):
        stage.slot.run(tell)
    assert told == [told[0], told[0]], "by the deadline, and by the slot"


def test_a_snapshot_in_time_is_no_failure(tmp_path: Path) -> None:
    stage = Stage(f"file://{tmp_path}", sync_timeout_s=60.0)
    stage.slot.open()
    assert stage.checkpoint(1).checkpoint_id == 1
    stage.slot.close()
    assert not any(isinstance(each, threading.Timer) for each in threading.enumerate())


@pytest.mark.parametrize("form", ["canonical", "native"])
def test_a_slow_savepoint_place_delays_no_checkpoint(
    make: Callable[..., Stage], backend: StateBackend, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    stage, is_quick = make(backend=backend), threading.Event()
    folder = SavepointFolder.begin(stage.job.storage, "job")
    begins_file = FileSystemCheckpointStorage.writer

    def writer(storage: FileSystemCheckpointStorage, name: str) -> Any:
        if name.startswith(folder.folder):
            assert is_quick.wait(30)
        return begins_file(storage, name)

    monkeypatch.setattr(FileSystemCheckpointStorage, "writer", writer)
    stage.slot.open()
    stage.orders(*ORDERS)
    told = a_savepoint(1, stage.job.storage.url, folder.folder, form)
    assert stage.slot.begin_savepoint(told)
    stage.offer(Barrier(1, is_savepoint=True))
    stage.work()
    assert stage.checkpoint(2).checkpoint_id == 2
    stage.slot.command(CheckpointCompleted(2))
    stage.orders(*ORDERS)
    stage.offer(Barrier(3, 2))
    stage.work()
    assert stage.driver.wait_for(Acknowledge, 2).checkpoint_id == 3
    is_quick.set()
    assert stage.driver.wait_for(Acknowledge, 3).checkpoint_id == 1
    stage.slot.close()
    there = {info.name for info in stage.job.storage.list(f"{folder.folder}/")}
    assert there


def test_the_place_of_a_savepoint_is_opened_by_what_came_with_the_task(
    make: Callable[..., Stage], tmp_path: Path
) -> None:
    """Over the network came its name, and nothing that opens anything."""
    asked: list[str] = []

    def opens(url: str) -> CheckpointStorage:
        asked.append(url)
        return load_storage(str(tmp_path / "elsewhere"), inline_limit_bytes=0)

    stage = make(open_storage=opens)
    stage.slot.open()
    secret = "sftp://user:password@host/savepoints"
    assert stage.slot.begin_savepoint(a_savepoint(1, secret, "savepoint-a-1"))
    assert secret not in repr(a_savepoint(1, secret, "savepoint-a-1"))
    stage.orders(*ORDERS)
    stage.offer(Barrier(1, is_savepoint=True))
    stage.work()
    assert stage.driver.wait(Acknowledge).checkpoint_id == 1
    assert asked == [secret]
    assert [*(tmp_path / "elsewhere" / "savepoint-a-1").iterdir()]
    stage.slot.close()


@pytest.mark.parametrize("is_savepoint", [True, False])
def test_a_barrier_that_does_not_fit_what_was_said_stops_the_slot(
    make: Callable[..., Stage], *, is_savepoint: bool
) -> None:
    """Else its state would be where no restore looks for it."""
    stage = make()
    stage.slot.open()
    if not is_savepoint:
        assert stage.slot.begin_savepoint(a_savepoint(1, stage.job.storage.url, "savepoint-a-1"))
    stage.offer(Barrier(1, is_savepoint=is_savepoint))
    with pytest.raises(Invalid, match="order whether it is of a savepoint"):
        stage.work()
    stage.slot.close()


def test_a_place_that_cannot_be_opened_is_answered_by_no(make: Callable[..., Stage]) -> None:
    stage = make()
    assert not stage.slot.begin_savepoint(a_savepoint(1, "nosuch://x/y", "savepoint-a-1"))


@pytest.mark.parametrize(
    "folder", ["../../etc", "savepoint-1/../..", "/etc", "", ".", "job", "savepoint-1/x", "a\0"]
)
def test_a_folder_that_is_none_of_a_savepoint_is_answered_by_no(
    make: Callable[..., Stage], tmp_path: Path, folder: str
) -> None:
    stage = make()
    place = tmp_path / "savepoints"
    stage.slot.open()
    assert not stage.slot.begin_savepoint(a_savepoint(1, str(place), folder))
    stage.offer(Barrier(1, is_savepoint=True))
    with pytest.raises(Invalid, match="order whether it is of a savepoint"):
        stage.work()
    stage.slot.close()
    assert not place.exists()


def a_savepoint(number: int, directory: str, folder: str, form: str = "native") -> BeginSavepoint:
    return BeginSavepoint(
        checkpoint_id=number, directory=directory, folder=folder, format=form, ends_job=False
    )


def test_a_slot_that_cannot_acknowledge_fails(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.slot.open()
    stage.driver.error = Unavailable("no driver")
    stage.offer(Barrier(1))
    with pytest.raises(Unavailable, match="no driver"):
        for _ in range(1_000):
            if not stage.slot.step():
                stage.slot._bell.wait(0.05)
    stage.slot.close()


def test_timers_by_the_clock_wait_for_room_as_rows_do(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.slot.open()
    chain, reader = (
        next(each for each in stage.slot.chains if each.plan.chain_id == chain_id)
        for chain_id in ("spend", "towns")
    )
    reader.suspend(1)
    towns = stage.channels["towns/0"][0]
    row = {"town": "a", "at": 1, "total": 1, EVENT_TIME: 1}
    batch = pa.RecordBatch.from_pylist([row], schema=stage.plan.edge("towns/0").schema)
    ticks: list[int] = []

    def tick(now_ms: int) -> None:
        ticks.append(now_ms)
        chain.outputs[0].emit(batch)

    (spend, *_) = chain.operators
    spend.tick = tick  # type: ignore[method-assign]
    spend.next_tick_ms = lambda: 0  # type: ignore[method-assign]
    towns.capacity_bytes = 1
    assert [stage.slot.step(), stage.slot.step()] == [True, False]
    assert len(ticks) == 1
    stage.slot._bell.wait(0)
    assert stage.slot.loop.wait_s() > 0.1, "it does not spin meanwhile"
    assert towns.take() is not None
    assert stage.slot._bell.wait(0), "it waits no longer"
    assert stage.slot.step()
    assert len(ticks) == 2
    stage.slot.close()
