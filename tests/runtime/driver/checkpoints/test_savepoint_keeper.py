"""Savepoints as a run keeps them: what is stored where, claimed, deleted, and waited for."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest

from holdfast.runtime.checkpoint.commands import Store, Trigger
from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder, SavepointPurpose
from holdfast.runtime.driver.checkpoints import savepoint_keeper
from holdfast.runtime.driver.checkpoints.savepoint_requests import not_completed
from holdfast.runtime.driver.events import (
    CheckpointStored,
    StoreFailed,
)
from holdfast.runtime.driver.restoring import LATEST, find_restore_point
from holdfast.runtime.driver.startup.take_over import Beginning, begin
from holdfast.storage import (
    CheckpointStorage,
    JobStorage,
    NotFound,
    SavepointFolder,
    StateSnapshot,
    SystemClock,
    Unavailable,
)
from holdfast.storage.jobs.metadata import SAVED_AT
from holdfast.storage.restore_points import RestorePoint
from holdfast.storage.testing.watched_storage import Call, WatchedStorage
from support.jobs.attempt_with_played_slots import an_order
from support.jobs.claimed_checkpoints import Run
from support.waiting import wait_until

STOP = SavepointPurpose.STOP


def run_of(job: JobStorage, restore: str | None = None) -> Run:
    return Run(job, restore, None)


def saved(run: Run, order: SavepointOrder) -> CheckpointStored | StoreFailed:
    """Have it stored with the state of a source; its answer."""
    run.keeper.store(store_of(run, order), run.events, order)
    answer = run.events.next(30)
    assert isinstance(answer, CheckpointStored | StoreFailed)
    return answer


def store_of(run: Run, order: SavepointOrder) -> Store:
    with order.folder.segments(1, "slot-0") as writer:
        handle = writer.add(b"x" * 100_000)
    return Store(
        checkpoint_id=run.keeper.next_checkpoint_id,
        triggered_ms=1,
        trigger=Trigger.SAVEPOINT,
        operators={},
        sources={"in": StateSnapshot(kind="t/1", handles={"all": handle})},
        savepoint=order.request,
    )


def test_a_savepoint_of_a_running_job_leaves_no_trace_in_its_folder(
    storage: CheckpointStorage,
) -> None:
    run, order = run_of(storage.job("job")), an_order(storage)
    run.complete()
    assert isinstance(saved(run, order), CheckpointStored)
    assert order.is_stored
    assert not order.is_decided, "the run says so, when it knows of it itself"
    assert run.keeper.last is not None
    assert run.keeper.point is not None
    assert run.keeper.point.metadata.checkpoint_id == run.keeper.last.checkpoint_id == 1
    assert storage.job("job").completed() == (1,)
    metadata = order.folder.load()
    assert (metadata.kind, metadata.job_id) == ("savepoint", "job")
    assert metadata.properties["format"] == "native"
    run.keeper.close()


def test_a_run_that_was_taken_over_has_no_savepoints_any_more(storage: CheckpointStorage) -> None:
    """What its sinks have prepared may be gone by then, and others have gone on with the job."""
    run, order = run_of(storage.job("job")), an_order(storage)
    run.complete()
    newer = run_of(storage.job("job"), LATEST)
    answer = saved(run, order)
    assert isinstance(answer, StoreFailed)
    assert answer.is_fatal
    assert not order.is_stored
    run.keeper.close()
    with pytest.raises(NotFound):
        order.folder.load()
    newer.keeper.close()


def test_a_restart_after_a_stop_restores_the_savepoint(storage: CheckpointStorage) -> None:
    """Also if its driver died before the end was recorded: older checkpoints are too old."""
    job = storage.job("job")
    run, order = run_of(job), an_order(storage, STOP)
    run.complete()
    stored = saved(run, order)
    assert isinstance(stored, CheckpointStored)
    assert order.is_needed
    number = stored.metadata.checkpoint_id
    assert job.load(number).properties[SAVED_AT] == order.folder.url
    assert job.load(number).files() == frozenset()
    assert run.keeper.point is not None
    assert run.keeper.point.folder.url == order.folder.url, "the next attempt of this run"
    run.keeper.close()

    for restore in (LATEST, f"{job.url}/chk-{number:020}"):
        point = find_restore_point(job, restore)
        assert point is not None
        assert point.is_savepoint
        assert point.metadata.sources["in"].handles
        assert point.number_in(job) is None, "nothing may build on it"
    again = run_of(job, LATEST)
    assert again.beginning.notes == (f"restored from the savepoint at {order.folder.url}",)
    again.complete()
    assert job.completed() == (number + 1,)
    assert order.folder.load().kind == "savepoint"
    again.keeper.close()

    order.folder.discard()
    third, second = run_of(job, LATEST), an_order(storage, STOP)
    assert isinstance(saved(third, second), CheckpointStored)
    third.keeper.close()
    second.folder.discard()
    for restore in (LATEST, f"{job.url}/chk-{job.completed()[-1]:020}"):
        with pytest.raises(NotFound, match="was stopped with a savepoint, and that is not there"):
            find_restore_point(job, restore)


def test_a_fenced_driver_does_not_stop_the_job(storage: CheckpointStorage) -> None:
    job = storage.job("job")
    run, order = run_of(job), an_order(storage, STOP)
    job.take_over()
    answer = saved(run, order)
    assert isinstance(answer, StoreFailed)
    assert answer.is_fatal
    assert not order.is_needed
    assert not order.is_decided, "the run answers when it has ended"
    run.keeper.discard(order, answer.checkpoint_id)
    run.keeper.close()
    assert [*storage.list(order.folder.folder)] == []


def test_a_savepoint_restored_by_the_new_owner_is_not_deleted(
    storage: CheckpointStorage,
) -> None:
    """The check after a commit comes too late to say that it was not seen."""
    other: list[RestorePoint | None] = []

    def takes_over(call: Call) -> None:
        if call.verb == "create" and "/chk-" in call.name and not other:
            begun = begin(storage.job("job"), LATEST, lambda _: None)
            assert isinstance(begun, Beginning)
            other.append(begun.point)

    watched = WatchedStorage(storage, after=takes_over)
    run, order = run_of(watched.job("job")), an_order(storage, STOP)
    answer = saved(run, order)
    assert isinstance(answer, StoreFailed)
    assert answer.is_fatal
    run.keeper.discard(order, answer.checkpoint_id)
    run.keeper.close()
    (point,) = other
    assert point is not None
    assert point.folder.url == order.folder.url
    assert order.folder.load() == point.metadata
    assert "is complete, and it is not known" in str(
        not_completed(order, answer.reason, attempt_is_over=True)
    )


def test_the_next_attempt_does_not_wait_for_unresponsive_savepoints(
    storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that has failed is followed by the next, whatever has become of them."""
    monkeypatch.setattr(savepoint_keeper, "_PATIENCE_S", 0.05)
    is_quick = threading.Event()

    def waits(call: Call) -> None:
        if call.verb == "create":
            assert is_quick.wait(30)

    run = run_of(storage.job("job"))
    order = an_order(storage)
    order.folder = SavepointFolder(WatchedStorage(storage, before=waits), order.folder.folder)
    run.keeper.store(store_of(run, order), run.events, order)
    run.keeper.settle()
    assert not order.is_decided
    assert run.keeper.what_became_of(1) is None
    order.fail(Unavailable("the request has expired"))
    run.keeper.discard(order, 1)
    run.complete()
    is_quick.set()
    run.keeper.close()
    assert [*storage.list(order.folder.folder)] == []


def test_a_run_ends_though_a_place_never_answers(
    storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even with an error, as a mount whose server has gone."""
    monkeypatch.setattr(savepoint_keeper, "_PLACE_TIMEOUT_S", 0.3)
    monkeypatch.setattr(savepoint_keeper, "_PATIENCE_S", 0.2)
    is_over = threading.Event()
    hanging: list[str] = []

    def hangs(call: Call) -> None:
        if call.verb in ("create", "list", "delete") and not is_over.is_set():
            hanging.append(call.verb)
            assert is_over.wait(60)

    run = run_of(storage.job("job"))
    order, stop = an_order(storage), an_order(storage, STOP)
    for each in (order, stop):
        each.folder = SavepointFolder(WatchedStorage(storage, before=hangs), each.folder.folder)
    run.keeper.store(store_of(run, order), run.events, order)
    failed = run.events.next(20)
    assert isinstance(failed, StoreFailed)
    assert "the place of a savepoint does not answer" in failed.reason
    run.keeper.discard(order, failed.checkpoint_id)
    for _ in range(20):
        run.complete()  # no checkpoint waits for it
    stopped = saved(run, stop)
    assert isinstance(stopped, StoreFailed)
    assert not stopped.is_fatal
    run.keeper.discard(stop, stopped.checkpoint_id)
    began_s = SystemClock().monotonic_s()
    run.keeper.close()
    assert SystemClock().monotonic_s() - began_s < 5
    assert len(hanging) == 2, "of a call that has not returned no other is made"
    is_over.set()
    for each in (order, stop):  # the commits that come about now belong to no request
        wait_until(partial(is_gone, storage, each.folder.folder))


def is_gone(storage: CheckpointStorage, folder: str) -> bool:
    return not [*storage.list(folder)]


def test_a_failed_savepoint_is_deleted_again_after_late_writes(
    storage: CheckpointStorage,
) -> None:
    run, order = run_of(storage.job("job")), an_order(storage)
    folder = order.folder.folder
    with order.folder.shared_segments(1) as writer:
        writer.add(b"early")
    run.keeper.discard(order, 1)
    run.keeper.settle()
    assert [*storage.list(folder)] == []
    for number in (2, 3, 5, 9):  # ever more rarely
        with order.folder.shared_segments(1) as writer:
            writer.add(b"late: a slot had not heard of it")
        run.keeper.skip_to(number)
        run.complete()
        run.keeper.settle()
        assert [*storage.list(folder)] == [], number
    with order.folder.shared_segments(1) as writer:
        writer.add(b"very late: its storage was slow")
    run.keeper.close()
    assert [*storage.list(folder)] == []


def test_a_savepoint_that_is_claimed_goes_when_newer_checkpoints_are_there(
    storage: CheckpointStorage,
) -> None:
    first, order = run_of(storage.job("first")), an_order(storage)
    saved(first, order)
    assert order.is_stored
    storage.write(f"{order.folder.folder}/notes", b"ann's")
    first.keeper.close()
    job = storage.job("job")
    run = Run(job, order.folder.url, "claim", retained=2)
    assert run.beginning.notes[1].startswith(f"the savepoint at {order.folder.url} is this job's")
    properties = run.complete().properties
    assert properties["claimed_savepoints"] == [order.folder.url]
    assert order.folder.load().kind == "savepoint"
    run.keeper.close()  # killed, and gone on with: it remembers
    run = Run(job, LATEST, None, retained=2)
    run.complete()
    run.keeper.finish_deleting()
    assert [info.name for info in storage.list(order.folder.folder)] == [
        f"{order.folder.folder}/notes"
    ]
    assert "claimed_savepoints" not in run.complete().properties
    run.keeper.close()


@pytest.mark.parametrize("claim_mode", [None, "no-claim"])
def test_an_unclaimed_savepoint_is_never_deleted(
    storage: CheckpointStorage, claim_mode: str | None
) -> None:
    first, order = run_of(storage.job("first")), an_order(storage)
    saved(first, order)
    assert order.is_stored
    first.keeper.close()
    run = Run(storage.job("job"), f"{order.folder.url}/_metadata", claim_mode)
    for _ in range(3):
        assert "claimed_savepoints" not in run.complete().properties
    run.keeper.delete_all()
    run.keeper.close()
    assert order.folder.load().kind == "savepoint"


def test_a_path_without_a_savepoint_is_refused_before_any_change(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    job, half = storage.job("job"), an_order(storage)
    with half.folder.shared_segments(1) as writer:
        writer.add(b"half of it")
    for path, what in (
        (half.folder.url, "there is no whole savepoint"),
        (str(tmp_path / "nowhere"), "there is no savepoint"),
        (f"file://{tmp_path}/nowhere/_metadata", "there is no savepoint"),
    ):
        with pytest.raises(NotFound, match=what):
            begin(job, path, lambda _: None)
    assert [*job.owner_records()] == []
    assert isinstance(begin(job, None, lambda _: None), Beginning)
