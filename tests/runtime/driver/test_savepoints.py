"""Savepoints on the driver: what slots are told, what is stored where, and who is answered."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from attempt_stage import InlineExecutor, Stage, Step, an_order, error_of, metadata_of
from claim_stage import Run
from holdfast.runtime.checkpoint import (
    SavepointOrder,
    SavepointPurpose,
    Store,
    Trigger,
)
from holdfast.runtime.driver import savepoint_keeper
from holdfast.runtime.driver.events import (
    CancelWanted,
    SavepointWanted,
    SlotLost,
    SlotsEnded,
    Stored,
    StoreFailed,
)
from holdfast.runtime.driver.outcomes import Cancelled, Succeeded, Unsuccessful
from holdfast.runtime.driver.restoring import LATEST, SAVED_AT, RestorePoint, find_restore_point
from holdfast.runtime.driver.savepoints import never_decided
from holdfast.runtime.driver.starting import Beginning, begin
from holdfast.runtime.network import (
    CheckpointAborted,
    CheckpointCompleted,
    Decline,
    EndSource,
    Finish,
    Finished,
    InjectBarrier,
    ToSlot,
)
from holdfast.storage import (
    CheckpointStorage,
    JobStorage,
    NotFound,
    SavepointFolder,
    StateSnapshot,
    Unavailable,
)
from holdfast.storage.testing.watched import Call, WatchedStorage

KEEP, CANCEL, STOP, DRAIN = SavepointPurpose


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("attempt", "feed"):
        monkeypatch.setattr(f"holdfast.runtime.driver.{module}.ThreadPoolExecutor", InlineExecutor)


def told(stage: Stage, *kinds: type) -> list[ToSlot]:
    return [each for each in stage.slots[0].told if isinstance(each, kinds)]


@pytest.mark.usefixtures("inline")
def test_barriers_say_where_it_goes_and_nobody_commits(storage: CheckpointStorage) -> None:
    stage, order = Stage(), an_order(storage)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        yield from stage.acknowledged(7)
        yield None
        yield SlotLost(0, "the test is over")

    assert isinstance(stage.run(script), Unsuccessful)
    barriers = told(stage, InjectBarrier)
    assert len(barriers) == 2, "one for each source"
    marks = {each.savepoint for each in barriers if isinstance(each, InjectBarrier)}
    (mark,) = marks
    assert mark is not None
    assert pickle.loads(mark.folder).url == order.folder.url
    assert (mark.format, mark.ends_job) == ("native", False)
    assert order.folder.folder not in repr(barriers), "nor the secrets of its storage"
    (store,) = stage.stored
    assert (store.savepoint, store.trigger, store.is_final) == (order, Trigger.SAVEPOINT, False)
    assert told(stage, CheckpointCompleted, Finish) == []
    assert stage.retained == []


@pytest.mark.usefixtures("inline")
def test_a_job_is_stopped_when_it_is_complete(storage: CheckpointStorage) -> None:
    stage, order = Stage(), an_order(storage, STOP)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        feeds = stage.attempt.feeds.values()
        assert all(feed.is_held for feed in feeds), "nothing follows the barrier"
        yield from stage.acknowledged(7)
        yield None
        yield SlotsEnded(None)

    assert stage.run(script) == Succeeded()
    assert told(stage, CheckpointCompleted, Finish) == [CheckpointCompleted(7), Finish()]
    assert told(stage, EndSource) == []


@pytest.mark.usefixtures("inline")
def test_a_drained_job_ends_its_sources_first(storage: CheckpointStorage) -> None:
    stage, order = Stage(interval="1s"), an_order(storage, DRAIN)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        assert len(told(stage, EndSource)) == 2
        yield 5_000
        assert told(stage, InjectBarrier) == [], "no checkpoint of what is half drained"
        yield from (Finished(0), Finished(0), Finished(1), Finished(1))
        yield from stage.acknowledged(7)
        yield None
        yield SlotsEnded(None)

    assert stage.run(script) == Succeeded()
    (store,) = stage.stored
    assert store.savepoint is order
    assert all(each.attributes == {"at": 0} for each in store.sources.values()), "not at an end"
    assert told(stage, CheckpointCompleted, Finish) == [CheckpointCompleted(7), Finish()]


@pytest.mark.usefixtures("inline")
def test_an_attempt_is_cancelled_when_that_was_waited_for(storage: CheckpointStorage) -> None:
    stage, order = Stage(), an_order(storage, CANCEL)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        yield from stage.acknowledged(7)

    assert stage.run(script) == Cancelled()
    assert told(stage, CheckpointCompleted) == []


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("purpose", [KEEP, STOP])
def test_if_it_fails_the_job_goes_on_and_nothing_is_left(
    storage: CheckpointStorage, purpose: SavepointPurpose
) -> None:
    stage, order = Stage(), an_order(storage, purpose)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        yield Decline(checkpoint_id=7, slot=1, reason="the disk is full")
        assert not any(feed.is_held for feed in stage.attempt.feeds.values())
        yield from (Finished(0), Finished(1))
        yield from stage.acknowledged(8)
        yield None
        yield SlotsEnded(None)

    assert stage.run(script) == Succeeded()
    assert error_of(order) == (
        f"the savepoint was not completed, and nothing is left of it [{order.folder.url}]: found "
        "declined: slot 1: the disk is full. See to what that says, and ask for another one"
    )
    assert stage.discarded == [(order, 7)]
    assert told(stage, CheckpointAborted) == [CheckpointAborted(7)]
    assert [store.is_final for store in stage.stored] == [True]


@pytest.mark.usefixtures("inline")
def test_a_job_that_has_finished_does_not_fail_with_it(storage: CheckpointStorage) -> None:
    stage, order = Stage(max_concurrent=2), an_order(storage)
    stage.stores_at_once = False

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        yield from stage.acknowledged(7)
        yield from (Finished(0), Finished(1))
        yield from stage.acknowledged(8)
        yield Stored(metadata_of(stage.stored[-1]))
        stage.slots[0].error = Unavailable("it has ended")
        yield StoreFailed(7, "the disk is full", is_fatal=False)
        yield SlotsEnded(None)

    assert stage.run(script) == Succeeded()
    assert "the disk is full" in error_of(order)


@pytest.mark.usefixtures("inline")
def test_after_a_drain_there_is_no_way_on(storage: CheckpointStorage) -> None:
    stage, order = Stage(), an_order(storage, DRAIN)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        yield from (Finished(0), Finished(1))
        yield Decline(checkpoint_id=7, slot=1, reason="the disk is full")

    outcome = stage.run(script)
    assert isinstance(outcome, Unsuccessful)
    assert "the job was drained" in outcome.reason
    assert "the disk is full" in error_of(order)


@pytest.mark.usefixtures("inline")
def test_one_that_the_job_may_count_is_not_said_to_be_gone(storage: CheckpointStorage) -> None:
    stage, order = Stage(), an_order(storage, STOP)
    stage.stores_at_once = False

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.running()
        yield SavepointWanted(order)
        yield from stage.acknowledged(7)
        order.is_needed = True
        yield StoreFailed(7, "the job was cancelled meanwhile", is_fatal=False)
        yield CancelWanted()

    assert stage.run(script) == Cancelled()
    assert "is complete, and it is not known" in error_of(order)


@pytest.mark.usefixtures("inline")
def test_no_savepoint_is_begun_of_a_job_that_does_not_run(storage: CheckpointStorage) -> None:
    stage = Stage()
    early, late, second = an_order(storage), an_order(storage), an_order(storage, STOP)

    def script(stage: Stage) -> Iterator[Step]:
        yield from stage.opening()
        yield SavepointWanted(early)
        yield from stage.finishing()
        yield SavepointWanted(late)
        yield SavepointWanted(second)
        yield SlotsEnded(None)

    assert stage.run(script) == Succeeded()
    assert "found one that is opening" in error_of(early)
    assert "no savepoint can be taken now" in error_of(late)
    assert "no savepoint can be taken now" in error_of(second)


def run_of(job: JobStorage, restore: str | None = None) -> Run:
    return Run(job, restore, None)


def saved(run: Run, order: SavepointOrder) -> Stored | StoreFailed:
    """Have it stored with the state of a source; its answer."""
    run.keeper.store(store_of(run, order), run.events)
    answer = run.events.next(30)
    assert isinstance(answer, Stored | StoreFailed)
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
        savepoint=order,
    )


def test_one_beside_the_job_leaves_no_trace_in_its_folder(storage: CheckpointStorage) -> None:
    run, order = run_of(storage.job("job")), an_order(storage)
    run.complete()
    assert isinstance(saved(run, order), Stored)
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


def test_who_comes_after_a_stop_goes_on_from_the_savepoint(storage: CheckpointStorage) -> None:
    """Also if its driver died before the end was recorded: older checkpoints are too old."""
    job = storage.job("job")
    run, order = run_of(job), an_order(storage, STOP)
    run.complete()
    stored = saved(run, order)
    assert isinstance(stored, Stored)
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
    assert isinstance(saved(third, second), Stored)
    third.keeper.close()
    second.folder.discard()
    for restore in (LATEST, f"{job.url}/chk-{job.completed()[-1]:020}"):
        with pytest.raises(NotFound, match="was stopped with a savepoint, and that is not there"):
            find_restore_point(job, restore)


def test_who_has_lost_the_job_does_not_stop_it(storage: CheckpointStorage) -> None:
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


def test_a_savepoint_that_who_took_over_goes_on_from_is_not_deleted(
    storage: CheckpointStorage,
) -> None:
    """The look after a commit comes too late to say that nobody has seen it."""
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
    assert "is complete, and it is not known" in str(never_decided(order, answer.reason))


def test_nobody_waits_for_savepoints_whose_place_does_not_answer(
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
    run.keeper.store(store_of(run, order), run.events)
    run.keeper.settle()
    assert not order.is_decided
    assert run.keeper.what_became_of(1) is None
    order.fail(Unavailable("nobody waits for it"))
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

    def hangs(call: Call) -> None:
        if call.verb in ("create", "list", "delete"):
            assert is_over.wait(60)

    run = run_of(storage.job("job"))
    order, stop = an_order(storage), an_order(storage, STOP)
    for each in (order, stop):
        each.folder = SavepointFolder(WatchedStorage(storage, before=hangs), each.folder.folder)
    run.keeper.store(store_of(run, order), run.events)
    failed = run.events.next(20)
    assert isinstance(failed, StoreFailed)
    assert "the place of a savepoint does not answer" in failed.reason
    run.keeper.discard(order, failed.checkpoint_id)
    run.complete()  # no checkpoint waits for it
    stopped = saved(run, stop)
    assert isinstance(stopped, StoreFailed)
    assert not stopped.is_fatal
    run.keeper.discard(stop, stopped.checkpoint_id)
    run.keeper.give_up()
    run.keeper.close()
    is_over.set()


def test_what_fails_is_deleted_and_once_more_when_nobody_writes(
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
def test_one_that_is_not_claimed_stays_whatever_happens(
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


def test_what_is_no_savepoint_is_refused_before_anything_is_changed(
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
