"""What is known of the checkpoints, while they are under way and afterwards."""

from functools import partial

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.checkpoint.commands import Abort, AbortReason, Begin, Trigger
from holdfast.runtime.checkpoint.coordinator import CheckpointCoordinator
from holdfast.runtime.checkpoint.statistics import CheckpointHistory, CheckpointStatus
from holdfast.runtime.protocol.checkpoints import OperatorStatistics, SlotStatistics
from holdfast.storage import FileHandle, Handle, InlineHandle, StateSnapshot, names
from support.simulations.coordinator_driver import SLOTS, START_MS, Driver, part


def test_the_history_has_the_particulars() -> None:
    driver = Driver(sources=["orders"])
    driver.after(1_000)
    times = {
        slot: SlotStatistics(alignment_ms=slot, sync_ms=10 + slot, async_ms=20 + slot)
        for slot in range(SLOTS)
    }
    overviews = [driver.coordinator.history.overview()]
    for slot, statistics in times.items():
        driver.now_ms += 30
        driver.coordinator.acknowledged(
            driver.now_ms,
            1,
            slot=slot,
            parts={"sum": [part(slot, 100), part(slot, 20)]},
            statistics=statistics,
        )
        overviews.append(driver.coordinator.history.overview())
    driver.coordinator.source_position(driver.now_ms, 1, uid="orders", position=part(size_bytes=3))
    overviews.append(driver.coordinator.history.overview())
    driver.now_ms += 15
    driver.stored(1)
    overviews.append(driver.coordinator.history.overview())

    seen = [overview.recent[0] for overview in overviews]
    progress, storing = CheckpointStatus.IN_PROGRESS, CheckpointStatus.STORING
    assert [each.status for each in seen] == [progress] * 3 + [storing, CheckpointStatus.COMPLETED]
    assert [each.size_bytes for each in seen] == [0, 120, 240, 243, 243]
    assert [each.written_bytes for each in seen] == [0, 120, 240, 243, 243]
    assert [len(each.slots) for each in seen] == [0, 1, 2, 2, 2]
    assert [each.duration_ms for each in seen] == [None] * 4 + [75]
    for slot, measured in times.items():
        known = seen[-1].slots[slot]
        assert (known.alignment_ms, known.sync_ms, known.async_ms) == (slot, 10 + slot, 20 + slot)
        assert measured.size_bytes == 0, "what the slot has sent does not change"
    assert [each.counts.in_progress for each in overviews] == [1, 1, 1, 1, 0]
    assert overviews[-1].last_completed == seen[-1]
    assert overviews[-1].last_failed is None


def test_a_slot_and_its_operators_have_particulars() -> None:
    driver = Driver(next_id=7)
    driver.after(1_000)
    shared: dict[str, Handle] = {
        "all": FileHandle(names.shared_file(5, "slot", "aa"), 0, 1_000, "00")
    }
    written: dict[str, Handle] = {
        "all": FileHandle(names.exclusive_file(7, "slot", "aa"), 0, 30, "00")
    }
    incremental = [StateSnapshot(kind="t", handles=each) for each in (shared, written)]
    overtaken = StateSnapshot(kind="t", handles={"all": InlineHandle(data=b"12345")})
    took = OperatorStatistics(sync_ms=4, async_ms=50)
    for slot, delay_ms in ((0, 100), (1, 40)):
        driver.now_ms += delay_ms
        driver.coordinator.acknowledged(
            driver.now_ms,
            7,
            slot=slot,
            parts={"sum": incremental, "sink": [part(slot, 8)]},
            statistics=SlotStatistics(
                alignment_ms=20,
                sync_ms=6,
                async_ms=60,
                operators={"sum": took, "sink": OperatorStatistics(sync_ms=slot)},
            ),
            in_flight=[overtaken] * slot,
        )
    (known,) = driver.coordinator.history.overview().recent
    assert known.slots[1] == SlotStatistics(
        alignment_ms=20,
        sync_ms=6,
        async_ms=60,
        start_delay_ms=60,
        end_to_end_ms=140,
        size_bytes=1_043,
        written_bytes=43,
        persisted_in_flight_bytes=5,
        operators={
            "sum": OperatorStatistics(sync_ms=4, async_ms=50, size_bytes=1_030, written_bytes=30),
            "sink": OperatorStatistics(sync_ms=1, size_bytes=8, written_bytes=8),
        },
    )
    assert (known.slots[0].start_delay_ms, known.slots[0].persisted_in_flight_bytes) == (20, 0)
    assert known.operators == {
        "sink": OperatorStatistics(sync_ms=1, size_bytes=16, written_bytes=16),
        "sum": OperatorStatistics(sync_ms=4, async_ms=50, size_bytes=2_060, written_bytes=60),
    }
    assert (known.size_bytes, known.written_bytes) == (2_081, 81)


def test_newly_written_bytes_are_told_apart_from_shared_ones() -> None:
    driver = Driver(sources=["orders"], next_id=7)
    driver.after(1_000)
    files = {
        names.shared_file(5, "slot", "aa"): 1_000,
        names.shared_file(7, "slot", "aa"): 200,
        names.exclusive_file(7, "slot", "aa"): 30,
        names.shared_file(70, "slot", "aa"): 4_000,
    }
    handles: dict[str, Handle] = {
        str(size): FileHandle(file, 0, size, "00") for file, size in files.items()
    }
    handles["inline"] = InlineHandle(data=b"1234")
    incremental = StateSnapshot(kind="test/1", handles=handles)
    driver.coordinator.source_position(driver.now_ms, 7, uid="orders", position=incremental)
    (known,) = driver.coordinator.history.overview().recent
    assert (known.size_bytes, known.written_bytes) == (5_234, 234)
    for slot in range(SLOTS):
        driver.coordinator.acknowledged(
            driver.now_ms,
            7,
            slot=slot,
            parts={"sum": [incremental, part(slot, 100)], "sink": []},
            statistics=SlotStatistics(),
        )
    driver.stored(7)
    completed = driver.coordinator.history.overview().last_completed
    assert completed is not None
    assert (completed.size_bytes, completed.written_bytes) == (3 * 5_234 + 200, 3 * 234 + 200)


def test_the_history_keeps_the_last_ten_and_counts_all() -> None:
    driver = Driver(interval=None, tolerable_failures=100)
    for number in range(1, 40):
        driver.request()
        if number % 3:
            driver.complete(number)
        else:
            driver.decline(number)
    driver.request()
    overview = driver.coordinator.history.overview()
    assert [each.checkpoint_id for each in overview.recent] == list(range(30, 41))
    counts = overview.counts
    assert (counts.begun, counts.completed, counts.failed, counts.aborted) == (40, 26, 13, 0)
    assert counts.in_progress == 1
    assert overview.last_failed is not None
    assert (overview.last_failed.checkpoint_id, overview.last_failed.reason) == (
        39,
        AbortReason.DECLINED,
    )
    assert overview.last_completed is not None
    assert overview.last_completed.checkpoint_id == 38
    driver.shutdown()
    counts = driver.coordinator.history.overview().counts
    assert (counts.failed, counts.aborted, counts.in_progress) == (13, 1, 0), "no failure"


def test_the_history_goes_on_in_the_next_attempt() -> None:
    history = CheckpointHistory()
    for number in (1, 2):
        coordinator = CheckpointCoordinator(
            CheckpointConfig(),
            slots=1,
            sources=(),
            next_id=number,
            now_ms=START_MS,
            history=history,
        )
        coordinator.request(START_MS)
        coordinator.shutdown(START_MS)
    assert history.overview().counts.begun == 2
    assert [each.checkpoint_id for each in history.overview().recent] == [1, 2]


def test_a_history_shows_itself_as_a_table() -> None:
    history = CheckpointHistory()
    assert repr(history) == "checkpoints: 0 completed"
    assert "<table>" in history._repr_html_()
    begin = partial(Begin, trigger=Trigger.PERIODIC, triggered_ms=START_MS, base=None)
    history.begun(begin(checkpoint_id=1))
    history.answered(1, size_bytes=3 << 20, written_bytes=100, slots={})
    history.completed(1, START_MS + 1_250)
    history.begun(begin(checkpoint_id=2))
    detail = "<b>no & room</b>\n\x1b[2J"
    history.aborted(Abort(checkpoint_id=2, reason=AbortReason.IO, detail=detail), START_MS + 30)
    history.begun(begin(checkpoint_id=3))
    counts, columns, *lines = repr(history).splitlines()
    assert counts == "checkpoints: 1 completed, 1 failed, 1 in progress"
    assert [columns.index(each) for each in ("took", "size", "written")] == [
        lines[0].index(each) for each in ("1.2 s", "3.0 MiB", "100 B")
    ]
    assert lines[0].split()[:3] == ["1", "checkpoint", "completed"]
    assert lines[0].endswith("1.2 s  3.0 MiB  100 B")
    assert lines[1].endswith(r"i/o failed: <b>no & room</b>\n\x1b[2J")
    assert "in progress" in lines[2]
    assert repr(history.overview()) == repr(history)
    shown = history._repr_html_()
    assert "&lt;b&gt;no &amp; room&lt;/b&gt;" in shown
    assert "<b>" not in shown
    assert shown.count("<tr>") == 4
