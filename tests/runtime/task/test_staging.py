"""Only the attempts that the driver names enter the job, once, whole and in order."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from holdfast.runtime.protocol.elements import Barrier, Element, EndOfInput, Idle, Watermark
from holdfast.runtime.protocol.messages import PushKey, Winner
from holdfast.runtime.task.channel import Bell, Channel, Closed
from holdfast.runtime.task.spill import Spill
from holdfast.runtime.task.staging import Staging, Superseded
from holdfast.storage import Invalid, NotFound


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"a": np.array(values, np.int64)})


class Scene:
    """A source with two edges, and another with one."""

    def __init__(self, capacity_bytes: int = 1 << 20, spill: Spill | None = None) -> None:
        """With a `spill` all rows go to disk: there is no memory for them."""
        self.bell = Bell()
        self.channels = {name: Channel(capacity_bytes, self.bell) for name in ("x", "y", "z")}
        of = self.channels
        sources = {"s": {"x": of["x"], "y": of["y"]}, "t": {"z": of["z"]}}
        self.staging = Staging(sources, spill=spill)

    def push(self, batch: int, split: int, attempt: int, *values: int, edges: str = "xy") -> None:
        for edge in edges:
            push = self.staging.open(PushKey("s", edge, batch, split, attempt))
            self.staging.add(push, rows(*values))
            self.staging.complete(push)

    def taken(self, edge: str) -> list[object]:
        """Values of rows, and marks."""
        elements = list(iter(self.channels[edge].take, None))
        return [value for element in elements for value in values_of(element)]


def values_of(element: Element) -> list[object]:
    return element.column(0).to_pylist() if isinstance(element, pa.RecordBatch) else [element]


@pytest.fixture(params=["in memory", "on disk", "in full channels"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """Whether rows wait in memory, on disk or in the channel makes no difference."""
    spill = Spill([str(tmp_path)]) if request.param != "in memory" else None
    yield Scene(1 if request.param == "in full channels" else 1 << 20, spill)
    if spill is not None:
        spill.close()
    assert not list(tmp_path.iterdir())


def test_winners_enter_in_order_of_split_with_the_watermark_after_them(scene: Scene) -> None:
    scene.push(0, 1, 11, 3, 4)
    scene.push(0, 0, 10, 1, 2)
    assert scene.taken("x") == []
    assert scene.staging.admit(
        "s", 1, batch=0, winners=[Winner(1, 11), Winner(0, 10)], watermark=99
    )
    assert scene.taken("x") == [1, 2, 3, 4, Watermark(99)]
    assert scene.taken("y") == [1, 2, 3, 4, Watermark(99)]
    assert scene.taken("z") == []
    assert scene.bell.wait(0)


def test_losers_are_dropped_and_those_that_still_push_are_told(scene: Scene) -> None:
    slow = scene.staging.open(PushKey("s", "x", 0, 0, 9))
    scene.staging.add(slow, rows(7))
    scene.push(0, 0, 10, 1)
    scene.push(0, 0, 12, 2)
    scene.staging.admit("s", 1, batch=0, winners=[Winner(0, 10)])
    assert scene.taken("x") == [1]
    assert scene.staging.backlog_bytes("s") == 8
    lates: list[Callable[[], None]] = [
        lambda: scene.staging.add(slow, rows(8)),
        lambda: scene.staging.complete(slow),
        lambda: scene.push(0, 1, 13, 5),
    ]
    for late in lates:
        with pytest.raises(Superseded, match="source 's', edge 'x', batch 0"):
            late()
    scene.staging.abandon(slow)
    assert scene.taken("y") == [1]
    assert scene.staging.backlog_bytes("s") == 0


def test_pushes_of_earlier_batches_are_dropped(scene: Scene) -> None:
    scene.push(3, 0, 1, 1)
    scene.push(5, 0, 2, 2)
    scene.staging.admit("s", 1, batch=4, winners=[])
    scene.staging.admit("s", 2, batch=5, winners=[Winner(0, 2)])
    assert scene.taken("x") == [2]
    with pytest.raises(Superseded):
        scene.push(3, 0, 9, 1)


def test_a_winner_that_is_missing_on_one_edge_is_named(scene: Scene) -> None:
    scene.push(0, 0, 10, 1)
    scene.push(0, 1, 11, 2, edges="x")
    winners = [Winner(0, 10), Winner(1, 11)]
    with pytest.raises(NotFound, match="edge 'y', batch 0, split 1, attempt 11"):
        scene.staging.admit("s", 1, batch=0, winners=winners)
    assert scene.taken("x") == []
    scene.push(0, 1, 11, 2, edges="y")
    assert scene.staging.admit("s", 1, batch=0, winners=winners), "nothing was done before"
    assert scene.taken("x") == [1, 2]


def test_a_winner_whose_stream_did_not_end_is_named(scene: Scene) -> None:
    push = scene.staging.open(PushKey("t", "z", 0, 0, 10))
    scene.staging.add(push, rows(1))
    with pytest.raises(NotFound, match=r"attempt 10\]: .*found 1 batches and no end"):
        scene.staging.admit("t", 1, batch=0, winners=[Winner(0, 10)])
    scene.staging.abandon(push)
    with pytest.raises(NotFound, match="found none"):
        scene.staging.admit("t", 1, batch=0, winners=[Winner(0, 10)])


def test_a_push_that_begins_anew_replaces_itself(scene: Scene) -> None:
    key = PushKey("t", "z", 0, 0, 10)
    first = scene.staging.open(key)
    scene.staging.add(first, rows(1))
    second = scene.staging.open(key)
    scene.staging.add(second, rows(2))
    with pytest.raises(Superseded):
        scene.staging.add(first, rows(1))
    scene.staging.abandon(first)
    scene.staging.complete(second)
    scene.staging.abandon(second)
    scene.staging.admit("t", 1, batch=0, winners=[Winner(0, 10)])
    assert scene.taken("z") == [2]


def test_marks_go_to_all_channels_of_the_source_in_order(scene: Scene) -> None:
    staging = scene.staging
    scene.push(0, 0, 1, 1)
    staging.mark("s", 1, Barrier(7))
    staging.admit("s", 2, batch=0, winners=[Winner(0, 1)], watermark=5)
    staging.mark("s", 3, Idle())
    staging.mark("s", 4, EndOfInput())
    staging.mark("s", 5, Barrier(8))
    expected = [Barrier(7), 1, Watermark(5), Idle(), EndOfInput(), Barrier(8)]
    assert scene.taken("x") == expected
    assert scene.taken("y") == expected
    assert scene.taken("z") == []


def test_a_command_that_comes_again_is_not_done_again(scene: Scene) -> None:
    scene.push(0, 0, 1, 1)
    for expected in (True, False, False):
        assert scene.staging.admit("s", 1, batch=0, winners=[Winner(0, 1)]) is expected
    assert scene.staging.mark("s", 2, Barrier(1))
    assert not scene.staging.mark("s", 2, Barrier(1))
    assert not scene.staging.admit("s", 1, batch=0, winners=[Winner(0, 1)])
    assert scene.taken("x") == [1, Barrier(1)]
    assert scene.staging.mark("t", 1, Barrier(1)), "each source counts for itself"


def test_commands_out_of_order_are_refused(scene: Scene) -> None:
    with pytest.raises(Invalid, match="expected command 1, found command 2"):
        scene.staging.mark("s", 2, Barrier(1))
    scene.staging.admit("s", 1, batch=4, winners=[])
    for batch in (4, 3):
        with pytest.raises(Invalid, match="what may follow batch 4"):
            scene.staging.admit("s", 2, batch=batch, winners=[])
    scene.staging.mark("s", 2, EndOfInput())
    with pytest.raises(Invalid, match="what may follow the end"):
        scene.staging.admit("s", 3, batch=5, winners=[])
    for mark in (Idle(), EndOfInput()):
        with pytest.raises(Invalid, match="only barriers"):
            scene.staging.mark("s", 3, mark)
    with pytest.raises(Superseded):
        scene.push(9, 0, 1, 1)
    assert scene.taken("x") == [EndOfInput()]


def test_unknown_sources_and_edges_are_named(scene: Scene) -> None:
    with pytest.raises(Invalid, match="expected 's', 't', found 'q'"):
        scene.staging.mark("q", 1, Barrier(1))
    with pytest.raises(Invalid, match="source 's' has no such edge: expected 'x', 'y', found 'z'"):
        scene.staging.open(PushKey("s", "z", 0, 0, 0))
    with pytest.raises(Invalid, match="none: this slot has no sources"):
        Staging({}).backlog_bytes("s")


def test_the_backlog_is_what_is_staged_and_what_waits(scene: Scene) -> None:
    scene.push(0, 0, 1, 1, 2)
    scene.push(1, 0, 2, 3)
    assert scene.staging.backlog_bytes("s") == 48
    scene.staging.admit("s", 1, batch=0, winners=[Winner(0, 1)])
    assert scene.staging.backlog_bytes("s") == 48
    assert scene.staging.backlog_bytes("t") == 0
    scene.taken("x")
    assert scene.staging.backlog_bytes("s") == 32


def test_room_is_awaited(scene: Scene) -> None:
    scene.push(0, 0, 1, 1, 2)
    scene.staging.admit("s", 1, batch=0, winners=[Winner(0, 1)])
    assert scene.staging.await_room("s", 32, 0)
    assert not scene.staging.await_room("s", 16, 0.02)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(scene.staging.await_room, "s", 16, 30.0)
        with pytest.raises(TimeoutError):
            waiting.result(0.02)
        scene.taken("y")
        assert waiting.result(5)


def test_closing_wakes_waiting_callers_and_refuses_new_ones(scene: Scene) -> None:
    scene.push(0, 0, 1, 1)
    push = scene.staging.open(PushKey("t", "z", 0, 0, 1))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(scene.staging.await_room, "s", 0, 30.0)
        with pytest.raises(TimeoutError):
            waiting.result(0.02)
        scene.staging.close()
        with pytest.raises(Closed):
            waiting.result(5)
    for late in (
        lambda: scene.staging.add(push, rows(1)),
        lambda: scene.staging.complete(push),
        lambda: scene.push(1, 0, 2, 1),
        lambda: scene.staging.admit("s", 1, batch=0, winners=[]),
        lambda: scene.staging.mark("s", 1, Barrier(1)),
    ):
        with pytest.raises(Closed):
            late()
    scene.staging.abandon(push)
    assert scene.staging.backlog_bytes("s") == 0


def test_a_split_has_one_winner(scene: Scene) -> None:
    scene.push(0, 0, 1, 1)
    scene.push(0, 0, 2, 1)
    with pytest.raises(Invalid, match="two winners"):
        scene.staging.admit("s", 1, batch=0, winners=[Winner(0, 1), Winner(0, 2)])


class Tasks:
    """Splits with retried, broken and zombie attempts, while batches are admitted one by one."""

    BATCHES, SPLITS = 6, 4

    def __init__(self, scene: Scene, seed: int) -> None:
        chance = random.Random(seed)
        self.scene = scene
        self.in_step = threading.Barrier(self.SPLITS)
        self.breaks, self.haunts = (
            {
                (batch, split): chance.random() < 0.4
                for batch in range(self.BATCHES)
                for split in range(self.SPLITS)
            }
            for _ in range(2)
        )

    def run_split(self, split: int) -> None:
        for batch in range(self.BATCHES):
            self.in_step.wait(10)
            if self.breaks[batch, split]:
                self.attempt(batch, split, 1000 + batch, breaks=True)
            self.attempt(batch, split, 2000 + batch)
            if batch and self.haunts[batch, split]:
                with pytest.raises(Superseded):
                    self.attempt(batch - 1, split, 3000 + batch)
            if self.in_step.wait(10) == 0:
                winners = [Winner(each, 2000 + batch) for each in range(self.SPLITS)]
                self.scene.staging.admit("s", batch + 1, batch=batch, winners=winners)

    def attempt(self, batch: int, split: int, number: int, *, breaks: bool = False) -> None:
        for edge in "xy":
            push = self.scene.staging.open(PushKey("s", edge, batch, split, number))
            self.scene.staging.add(push, rows(batch * 100 + split))
            if breaks:
                self.scene.staging.abandon(push)
            else:
                self.scene.staging.complete(push)


@pytest.mark.parametrize("seed", range(5))
def test_many_attempts_at_once_leave_each_row_once(seed: int, scene: Scene) -> None:
    tasks = Tasks(scene, seed)
    with ThreadPoolExecutor(tasks.SPLITS) as pool:
        for future in [pool.submit(tasks.run_split, split) for split in range(tasks.SPLITS)]:
            future.result(30)
    expected = [
        batch * 100 + split for batch in range(tasks.BATCHES) for split in range(tasks.SPLITS)
    ]
    assert scene.taken("x") == expected
    assert scene.taken("y") == expected
    assert scene.staging.backlog_bytes("s") == 0
