"""Bugs for the simulation to find: each breaks one promise of the house, while it is planted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from holdfast.runtime.checkpoint.coordinator import CheckpointCoordinator
from holdfast.runtime.checkpoint.pending_checkpoint import PendingCheckpoint
from holdfast.runtime.driver.checkpoints.checkpoint_keeper import CheckpointKeeper
from holdfast.runtime.driver.source_feed import Feed
from holdfast.runtime.operators.sink_operator import SinkOperator
from holdfast.runtime.protocol.checkpoints import SlotStatistics
from holdfast.runtime.protocol.elements import Barrier, Element, Watermark
from holdfast.runtime.protocol.messages import Acknowledge
from holdfast.runtime.task.alignment import AlignmentEvent, AtLeastOnce
from holdfast.runtime.task.chain import Chain, _Overtaken
from holdfast.runtime.task.channel import Channel
from holdfast.runtime.task.fair_turns import Turns
from holdfast.runtime.task.gate import Gate
from holdfast.runtime.task.in_flight import OvertakenRows
from holdfast.runtime.task.inlet import Inlet
from holdfast.runtime.task.loop import ChainBell
from holdfast.runtime.task.slot import Slot
from holdfast.runtime.task.slot_checkpoint import SlotCheckpoint
from holdfast.storage import JobOwner
from holdfast.storage.jobs.deletion import Sweeper
from support.simulations.jobs import Shelf
from support.simulations.shared_files import SharedFiles
from support.simulations.world import SimulatedExecutor

Planted = AbstractContextManager[Any]


def without_alignment() -> Planted:
    return patch.object(Gate, "may_read", lambda _gate, _channel: True)


def committed_when_prepared() -> Planted:
    prepare = SinkOperator.prepare

    def too_early(operator: SinkOperator, checkpoint_id: int) -> None:
        prepare(operator, checkpoint_id)
        operator.completed(checkpoint_id)

    return patch.object(SinkOperator, "prepare", too_early)


def only_the_last_committed() -> Planted:
    """What was prepared for a checkpoint that was aborted then is forgotten."""

    def forgetful(operator: SinkOperator, checkpoint_id: int) -> None:
        due = [each for each in operator._pending if each[0] == checkpoint_id]
        operator._commit(due, operator._context)
        operator._pending = [each for each in operator._pending if each[0] > checkpoint_id]

    return patch.object(SinkOperator, "completed", forgetful)


def not_committed_again() -> Planted:
    """What a restored checkpoint lists is taken to be committed."""
    commit = SinkOperator._commit

    def only_later(operator: SinkOperator, due: Any, context: Any) -> None:
        if operator._writer is not None:
            commit(operator, due, context)

    return patch.object(SinkOperator, "_commit", only_later)


def stored_when_half_has_come() -> Planted:
    def is_ready(pending: PendingCheckpoint) -> bool:
        return not pending._missing_slots or not pending._missing_sources

    return patch.object(PendingCheckpoint, "is_ready", property(is_ready))


def told_by_commands_only() -> Planted:
    """A slot that has not heard the news yet builds on a checkpoint that is gone."""

    def see(slot: Slot, barrier: Barrier) -> None:
        slot._checkpoint(barrier)

    return patch.object(Slot, "_barrier_arrived", see)


def built_on_what_is_not_complete() -> Planted:
    write = SharedFiles.write

    def rash(files: SharedFiles, number: int, *rest: Any) -> None:
        write(files, number, *rest)
        files._base = files._written[number]

    return patch.object(SharedFiles, "write", rash)


def retained_whatever_is_under_way() -> Planted:
    def retain(keeper: CheckpointKeeper, _since: int) -> None:
        keeper._thread.submit(keeper._retain, None)

    return patch.object(CheckpointKeeper, "retain", retain)


def cleaned_while_it_is_written() -> Planted:
    release = JobOwner.release_orphans

    def all_of_them(owner: JobOwner, **_in_flight: object) -> None:
        release(owner)

    return patch.object(JobOwner, "release_orphans", all_of_them)


def time_that_does_not_wait_for_its_timers() -> Planted:
    """A watermark goes on after the first slice of the timers that it makes due."""
    advance = Chain._advance

    def hasty(chain: Chain, place: int, watermark: int) -> Iterator[None]:
        operator, first = chain.operators[place], chain.operators[place].advance
        with patch.object(operator, "advance", lambda at: first(at) and False):
            yield from advance(chain, place, watermark)

    return patch.object(Chain, "_advance", hasty)


@contextmanager
def snapshot_behind_its_barrier() -> Iterator[None]:
    """The barrier is passed on, and the snapshot is taken after the rows that follow, if any do."""
    take, step = Slot._take_snapshot, Chain.step
    waiting: dict[Chain, Callable[[], None]] = {}

    def passed_on(slot: Slot, chain: Chain, *what: Any) -> None:
        waiting[chain] = lambda: take(slot, chain, *what)

    def stepped(chain: Chain) -> bool:
        late = waiting.pop(chain, lambda: None)
        has_done = step(chain)
        late()
        if not chain.has_work:
            waiting.pop(chain, lambda: None)()
        return has_done

    with patch.object(Slot, "_take_snapshot", passed_on), patch.object(Chain, "step", stepped):
        yield


def watermark_that_overtakes_rows() -> Planted:
    append = Channel._append

    def appended(channel: Channel, element: Element, size: int) -> None:
        append(channel, element, size)
        if isinstance(element, Watermark):
            channel._elements.rotate(1)

    return patch.object(Channel, "_append", appended)


def declines_taken_for_answers() -> Planted:
    def taken(coordinator: CheckpointCoordinator, now_ms: int, number: int, **of: Any) -> Any:
        return coordinator.acknowledged(
            now_ms, number, slot=of["slot"], parts={}, statistics=SlotStatistics()
        )

    return patch.object(CheckpointCoordinator, "declined", taken)


def commits_that_add_up() -> Planted:
    """A completion that is heard twice, or a commit that is repeated, shows the rows once more."""
    commit = Shelf.commit

    def added(shelf: Shelf, uid: str, part: str) -> None:
        if part in shelf.committed:
            shelf.seen[uid].update(shelf.committed[part])
        else:
            commit(shelf, uid, part)

    return patch.object(Shelf, "commit", added)


def position_of_the_time_when_it_is_stored() -> Planted:
    store = Feed._store

    def later(feed: Feed, _position: Any, *rest: Any) -> None:
        store(feed, feed._source.position(), *rest)

    return patch.object(Feed, "_store", later)


@contextmanager
def position_in_front_of_a_batch_that_counts() -> Iterator[None]:
    """It is read when the cut is ordered, and a batch is admitted before the barrier."""
    order, cut = Feed.cut, Feed._cut
    early: dict[tuple[Feed, int], Any] = {}

    def ordered(feed: Feed, number: int, *rest: Any) -> None:
        early[feed, number] = feed._source.position()
        order(feed, number, *rest)

    def made(feed: Feed, number: int, *rest: Any) -> None:
        with patch.object(feed._source, "position", lambda: early[feed, number]):
            cut(feed, number, *rest)

    with patch.object(Feed, "cut", ordered), patch.object(Feed, "_cut", made):
        yield


def void_numbers_not_recorded() -> Planted:
    """A commit point that is created late, after it was deleted, counts again."""
    return patch.object(Sweeper, "void", lambda _sweeper, _numbers: None)


def fenced_drivers_go_on() -> Planted:
    return patch.object(JobOwner, "check", lambda _owner: None)


def acknowledged_before_it_is_written() -> Planted:
    finish = SlotCheckpoint.finish

    def hasty(checkpoint: SlotCheckpoint) -> Acknowledge:
        late, close = SimulatedExecutor(1, "late files"), checkpoint.writer.close
        with patch.object(checkpoint.writer, "close", lambda: late.submit(close)):
            return finish(checkpoint)

    return patch.object(SlotCheckpoint, "finish", hasty)


@contextmanager
def cut_at_the_first_barrier() -> Iterator[None]:
    """Rows in front of the other barriers are in neither the checkpoint nor the replay."""
    count = AtLeastOnce.barrier

    def first(counting: AtLeastOnce, channel: int, barrier: Barrier) -> Sequence[AlignmentEvent]:
        is_first = barrier not in counting._under_way
        count(counting, channel, barrier)
        return (barrier,) if is_first else ()

    with patch.object(AtLeastOnce, "barrier", first):
        yield


def barriers_counted_whatever_their_number() -> Planted:
    def counted(counting: AtLeastOnce, _channel: int, barrier: Barrier) -> Sequence[AlignmentEvent]:
        counting._under_way.append(barrier)
        if len(counting._under_way) < len(counting._came):
            return ()
        oldest = counting._under_way[0]
        counting._under_way.clear()
        return (oldest,)

    return patch.object(AtLeastOnce, "barrier", counted)


def rows_in_flight_lost() -> Planted:
    return patch.object(Slot, "_restore_in_flight", lambda _slot: None)


def rows_overtaken_and_taken_out() -> Planted:
    """What is in the checkpoint is not processed in this attempt any more."""
    overtake = Channel.overtake

    def emptying(channel: Channel) -> Any:
        found = overtake(channel)
        channel._elements.clear()
        return found

    return patch.object(Channel, "overtake", emptying)


def rows_left_out_that_were_not_processed() -> Planted:
    """Of those that a barrier has overtaken; all that the channel ever brought are left out."""
    at_the_cut = _Overtaken.at_the_cut

    def too_few(overtaken: _Overtaken) -> OvertakenRows:
        found = at_the_cut(overtaken)
        return replace(found, skipped=found.first if found.skipped else 0)

    return patch.object(_Overtaken, "at_the_cut", too_few)


def barriers_that_overtake_only_in_the_channel() -> Planted:
    """Rows that wait for room in it are behind the position, and in no checkpoint."""
    overtake = Inlet.overtake

    def forgetful(inlet: Inlet, barrier: Barrier) -> Any:
        overtake(inlet, barrier)
        return []

    return patch.object(Inlet, "overtake", forgetful)


def furthest_downstream_first() -> Planted:
    def furthest(turns: Turns) -> int | None:
        for party in reversed(range(len(turns._is_waiting))):
            if turns._is_waiting[party]:
                turns._is_waiting[party] = False
                return party
        return None

    return patch.object(Turns, "next", furthest)


def turns_of_one_element_each() -> Planted:
    charge = Turns.charge
    return patch.object(Turns, "charge", lambda turns, party, _cost: charge(turns, party, 1))


def chains_that_are_not_woken() -> Planted:
    return patch.object(ChainBell, "ring", lambda _bell: None)
