"""Barriers overtake rows that wait: what is left of them is in the checkpoint, and comes first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pytest

from holdfast.backends import StateBackend
from holdfast.backends.snapshots.in_flight import in_flight_parts
from holdfast.runtime.planning.job_plan import ChainPlan, Link
from holdfast.runtime.protocol.elements import Barrier, Element, EndOfInput, Watermark
from holdfast.runtime.protocol.messages import (
    Acknowledge,
    BeginSavepoint,
    CheckpointAborted,
    CheckpointCompleted,
    Decline,
)
from holdfast.runtime.protocol.operator import Operator, OperatorContext, OperatorSpec
from holdfast.runtime.task.alignment import alignment_of
from holdfast.runtime.task.chain import Chain, ChainInput
from holdfast.runtime.task.channel import Bell, Channel
from holdfast.runtime.task.in_flight import OvertakenRows
from holdfast.runtime.task.routing import ChannelOutlet, Router
from holdfast.runtime.task.spill import Spill
from support.jobs.lone_slot import ORDERS, Stage
from support.simulations.jobs import expected

TIMEOUT_MS = 200


@pytest.fixture
def make(tmp_path: Any) -> Callable[..., Stage]:
    return lambda **restored: Stage(f"file://{tmp_path}", **restored)


def overtaken(stage: Stage) -> Acknowledge:
    """The first checkpoint, whose barriers overtake all that waits."""
    stage.offer(Barrier(1))
    stage.clock.advance(TIMEOUT_MS)
    assert stage.slot.step()
    stage.work()
    answer: Acknowledge = stage.driver.wait(Acknowledge)
    return answer


def savepoint_of(number: int, place: Any) -> BeginSavepoint:
    return BeginSavepoint(
        checkpoint_id=number,
        directory=f"file://{place}/saved",
        folder="savepoint-0123ab-0123456789ab",
        format="native",
        ends_job=False,
    )


def test_a_barrier_waits_behind_rows_of_a_source_only_so_long(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.slot.open()
    for order in ORDERS:
        stage.orders(order)
    stage.offer(Watermark(1_005))
    answer = overtaken(stage)
    (found,) = in_flight_parts(answer.in_flight)
    assert (found.about.edge, found.about.rows) == ("spend/0", {"0": len(ORDERS)})
    assert stage.slot.rows() > 0, "and processed afterwards"
    stage.slot.close()


def test_a_clock_that_is_set_back_does_not_delay_barriers(make: Callable[..., Stage]) -> None:
    stage = make()
    with patch.object(stage.clock, "now_ms", lambda: 3_600_000):
        stage.slot.open()
        stage.orders(*ORDERS)
        stage.offer(Barrier(1))
    stage.clock.advance(TIMEOUT_MS)
    stage.work()
    (found,) = in_flight_parts(stage.driver.wait(Acknowledge).in_flight)
    assert found.about.rows == {"0": len(ORDERS)}
    stage.slot.close()


def test_rows_that_are_processed_in_time_are_not_in_flight(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.slot.open()
    stage.orders(*ORDERS)
    stage.offer(Barrier(1))
    stage.clock.advance(TIMEOUT_MS - 1)
    stage.work()
    assert stage.driver.wait(Acknowledge).in_flight == []
    stage.slot.close()


def test_a_slot_goes_on_with_rows_in_flight(
    make: Callable[..., Stage], backend: StateBackend
) -> None:
    """Twice: the second checkpoint is taken before the restored rows are processed."""
    before = make(backend=backend)
    before.slot.open()
    before.orders(*ORDERS[:1])
    before.work()
    before.orders(*ORDERS[1:])
    first = overtaken(before)
    before.slot.close()
    again = make(
        backend=backend, restored_from=before.job, in_flight=first.in_flight, **first.parts
    )
    again.shelf.prepared |= before.shelf.prepared
    again.slot.open()
    second = overtaken(again)
    rows = [each.rows for each in in_flight_parts(second.in_flight)]
    assert rows == [len(ORDERS) - 1]
    again.slot.close()
    after = make(
        backend=backend, restored_from=again.job, in_flight=second.in_flight, **second.parts
    )
    after.shelf.prepared |= again.shelf.prepared
    after.slot.open()
    after.offer(EndOfInput())
    after.work()
    after.checkpoint(2)
    after.slot.command(CheckpointCompleted(2))
    after.work()
    after.slot.close()
    seen = {uid: rows + again.shelf.seen[uid] for uid, rows in after.shelf.seen.items()}
    assert seen == expected({"web": [[ORDERS]]})


def test_barriers_overtake_restored_rows_that_were_cut_anew(make: Callable[..., Stage]) -> None:
    before = make()
    before.slot.open()
    before.orders(*ORDERS)
    (part,) = overtaken(before).in_flight
    before.slot.close()
    of_two = {**part.attributes, "parallelism": 2}
    again = make(
        restored_from=before.job,
        in_flight=[msgspec.structs.replace(part, attributes=of_two)],
    )
    again.slot.open()
    (found,) = in_flight_parts(overtaken(again).in_flight)
    assert found.about.rows == {"0": len(ORDERS)}
    again.slot.close()


def test_restored_rows_beyond_a_channel_wait_on_local_disk(
    make: Callable[..., Stage], tmp_path: Any
) -> None:
    before = make()
    before.slot.open()
    before.orders(*ORDERS)
    first = overtaken(before)
    before.slot.close()

    class SmallStage(Stage):
        capacity_bytes = 1
        spill = Spill([str(tmp_path / "spill")])

    small: Callable[..., Stage] = SmallStage
    after = small(
        f"file://{tmp_path}",
        restored_from=before.job,
        in_flight=first.in_flight,
        **first.parts,
    )
    after.slot.open()
    assert [*tmp_path.rglob("*.arrows")]
    after.work()
    assert after.slot.rows() >= len(ORDERS)
    after.slot.close()
    SmallStage.spill.close()


def test_barriers_of_savepoints_wait_for_all_rows(
    make: Callable[..., Stage], tmp_path: Any
) -> None:
    stage = make()
    stage.slot.open()
    stage.orders(*ORDERS)
    assert stage.slot.begin_savepoint(savepoint_of(1, tmp_path))
    stage.offer(Barrier(1, is_savepoint=True))
    stage.clock.advance(10 * TIMEOUT_MS)
    stage.work()
    assert stage.slot.rows() > 0
    assert stage.driver.wait(Acknowledge).in_flight == []
    stage.slot.close()


@pytest.mark.parametrize("is_known_before", [False, True])
def test_barriers_of_an_aborted_savepoint_do_not_wait(
    make: Callable[..., Stage],
    tmp_path: Any,
    is_known_before: bool,  # noqa: FBT001
) -> None:
    stage = make()
    stage.slot.open()
    stage.orders(*ORDERS)
    assert stage.slot.begin_savepoint(savepoint_of(1, tmp_path))
    if is_known_before:
        stage.slot.command(CheckpointAborted(1))
        assert stage.slot.step()
    stage.offer(Barrier(1, is_savepoint=True))
    if not is_known_before:
        stage.slot.command(CheckpointAborted(1))
        assert stage.slot.step()
    stage.slot.step()
    assert all(each.first_barrier is None for each in stage.sources)
    stage.work()
    assert stage.checkpoint(2).checkpoint_id == 2, "the first answer"
    assert not [told for told in stage.driver.told if isinstance(told, Decline)]
    stage.slot.close()


def test_rows_wait_nowhere_in_a_storage_without_files(make: Callable[..., Stage]) -> None:
    """They would travel with the acknowledgement, which is small: the barrier waits instead."""
    stage = make(keeps_no_files=True)
    stage.slot.open()
    stage.orders(*ORDERS)
    stage.offer(Barrier(1))
    stage.clock.advance(10 * TIMEOUT_MS)
    stage.work()
    assert stage.driver.wait(Acknowledge).in_flight == []
    assert stage.slot.rows() > 0
    stage.slot.close()


def test_an_aborted_checkpoint_leaves_no_rows_behind(make: Callable[..., Stage]) -> None:
    stage = make()
    stage.slot.open()
    stage.orders(*ORDERS)
    stage.slot.command(CheckpointAborted(1))
    assert stage.slot.step()
    stage.offer(Barrier(1))
    stage.clock.advance(TIMEOUT_MS)
    stage.work()
    assert stage.checkpoint(2).in_flight == []
    assert not [told for told in stage.driver.told if isinstance(told, Decline)]
    stage.slot.close()


class _Plain(Operator):
    """Passes rows on."""

    def open(self, context: OperatorContext) -> None:
        """There is nothing to open."""

    def process(self, batch: pa.RecordBatch, input_index: int) -> None:
        self.out.emit(batch)

    def close(self) -> None:
        """There is nothing to close."""

    out: Any = None


class _PlainSpec(OperatorSpec):
    def build(self) -> Operator:
        return _Plain()


SCHEMA = pa.schema([("number", pa.int64())])


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)


class ChainStage:
    """A chain with a source's channel and those of other slots, and an edge that is soon full."""

    def __init__(self, exchanges: int = 1, mode: str = "exactly-once") -> None:
        bell = Bell()
        self.now_ms = 0
        self.source, *self.exchanges = (Channel(10_000, bell) for _ in range(1 + exchanges))
        self.exchange = self.exchanges[0]
        for channel in (self.source, *self.exchanges):
            channel.time_barriers(lambda: self.now_ms)
        self.out = Channel(1, bell)
        spec = _PlainSpec(uid="a", name="plain", input_schema=SCHEMA, output_schema=SCHEMA)
        self.cuts: list[tuple[int, list[tuple[str, int, list[Any]]]]] = []
        self.chain = Chain(
            ChainPlan(
                chain_id="a", operators=(spec,), inputs=("s", "e"), links=(Link(0, None, "out"),)
            ),
            [
                ChainInput(self.source, 0, "s", 0, overtakes_after_ms=TIMEOUT_MS),
                *(ChainInput(each, 0, "e", 3 + place) for place, each in enumerate(self.exchanges)),
            ],
            alignment_of(mode, 1 + exchanges),
            {"out": Router([ChannelOutlet(self.out, bell)])},
            lambda _barrier: None,
            self._cut,
        )
        self.chain.operators[0].out = self.chain.outputs[0]  # type: ignore[attr-defined]

    def _cut(self, _chain: Chain, number: int, overtaken: Sequence[OvertakenRows]) -> None:
        found = [
            (each.edge, each.sender, [value for row in each.batches() for value in values(row)])
            for each in overtaken
        ]
        self.cuts.append((number, found))

    def look(self, after_ms: int) -> None:
        self.now_ms += after_ms
        self.chain.overtake(self.now_ms)

    def sent(self) -> list[Any]:
        found: list[Any] = []
        while (element := self.out.take()) is not None:
            found.append(values(element) if isinstance(element, pa.RecordBatch) else element)
        return found


def values(element: Any) -> list[int]:
    found: list[int] = element.column(0).to_pylist()
    return found


def offer(channel: Channel, *elements: Element) -> None:
    for element in elements:
        channel.offer(element)


def test_a_barrier_overtakes_also_where_there_is_no_room() -> None:
    stage = ChainStage()
    offer(stage.out, rows(9))
    offer(stage.source, rows(1), Watermark(5), rows(2), Barrier(1), rows(3))
    offer(stage.exchange, Barrier(1))
    assert not stage.chain.has_room
    assert stage.chain.next_overtaking_ms() == TIMEOUT_MS
    stage.look(TIMEOUT_MS - 1)
    assert stage.cuts == []
    stage.look(1)
    stage.chain.step()
    assert stage.cuts == [(1, [("s", 0, [1, 2])])]
    assert stage.sent() == [[9], Barrier(1)]
    while stage.chain.step():
        pass
    assert [each for each in stage.sent() if not isinstance(each, Watermark)] == [[1], [2], [3]]


def test_only_channels_of_sources_are_overtaken_in() -> None:
    stage = ChainStage()
    offer(stage.exchange, rows(1), Barrier(1))
    assert stage.chain.next_overtaking_ms() is None
    stage.look(10 * TIMEOUT_MS)
    assert stage.cuts == []


def test_a_channel_that_waits_for_others_is_not_overtaken_in_again() -> None:
    """The rows behind the first barrier are not of the first checkpoint, but of the second."""
    stage = ChainStage()
    offer(stage.source, rows(1), Barrier(1), rows(2), Barrier(2))
    stage.look(TIMEOUT_MS)
    assert stage.chain.next_overtaking_ms() is None
    assert not stage.chain.step()
    offer(stage.exchange, Barrier(1), Barrier(2))
    stage.chain.step()
    assert stage.cuts == [(1, [("s", 0, [1])])]
    stage.look(0)
    stage.chain.step()
    assert stage.cuts[1:] == [(2, [("s", 0, [1, 2])])]


def test_a_savepoint_that_is_given_up_does_not_hold_up_later_checkpoints() -> None:
    stage = ChainStage()
    offer(stage.out, rows(9))
    saved = Barrier(1, is_savepoint=True)
    offer(stage.source, rows(0), rows(1), saved, rows(2), Barrier(2))
    offer(stage.exchange, saved, Barrier(2))
    stage.look(10 * TIMEOUT_MS)
    stage.chain.step()
    assert stage.cuts == []
    stage.chain.aborted(1)
    for _ in range(2):
        stage.look(0)
        stage.chain.step()
    assert stage.cuts == [(1, [("s", 0, [1])]), (2, [("s", 0, [1, 2])])]


def test_rows_that_are_processed_before_the_cut_are_not_in_flight() -> None:
    """At least once, a channel is read on while the chain waits for the barriers of others."""
    stage = ChainStage(mode="at-least-once")
    offer(stage.source, rows(1), rows(2, 3), rows(4), Barrier(1), rows(5))
    stage.look(TIMEOUT_MS)
    stage.chain.step()
    stage.chain.step()
    assert stage.sent() == [[1], [2, 3]]
    offer(stage.exchange, Barrier(1))
    stage.chain.step()
    assert stage.cuts == [(1, [("s", 0, [4])])]
    while stage.chain.step():
        pass
    assert stage.sent() == [Barrier(1), [4], [5]]


def test_rows_that_were_cut_anew_are_read_before_all_others() -> None:
    """A key may have older rows among those of another channel now, and order is kept."""
    stage = ChainStage(exchanges=2)
    first, second = stage.exchanges
    offer(first, rows(7), Barrier(1))
    offer(second, rows(8))
    second.restore([rows(1), rows(2)])
    stage.chain.read_restored_first("e")
    stage.chain.step()
    stage.chain.step()
    assert stage.sent() == [[1], [2]]
    while stage.chain.step():
        pass
    assert sorted(stage.sent()) == [[7], [8]]


def test_restored_rows_do_not_keep_barriers_from_overtaking() -> None:
    """If they took longer than a checkpoint may, none would ever be complete."""
    stage = ChainStage(exchanges=2)
    stage.chain.read_restored_first("e")
    offer(stage.source, rows(7), Barrier(1))
    stage.source.restore([rows(5), rows(6)])
    first, second = stage.exchanges
    offer(first, rows(8), Barrier(1))
    second.restore([rows(1), rows(2)])
    offer(second, Barrier(1))
    stage.look(TIMEOUT_MS)
    while stage.chain.step():
        pass
    assert stage.cuts == [(1, [("s", 0, [5, 6, 7])])]
    assert stage.sent() == [[1], [2], [8], Barrier(1), [5], [6], [7]]


def test_restored_rows_come_before_what_has_come_already() -> None:
    stage = ChainStage()
    offer(stage.source, rows(3), Watermark(9))
    stage.source.restore([rows(1), rows(2)])
    while stage.chain.step():
        pass
    assert not stage.source.has_restored
    assert [each for each in stage.sent() if not isinstance(each, Watermark)] == [[1], [2], [3]]
