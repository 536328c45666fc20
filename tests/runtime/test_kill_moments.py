"""A slot or the driver is killed at each moment of a checkpoint and of a life, in simulated jobs.

`Simulation` itself looks at what is left: every row is seen once, no file of a completed checkpoint
is missing, and no file of a backend stays on the disk. The seeded runs of `test_simulation.py` meet
such moments by chance; here each has a name. `docs/flink-scenarios.md` lists them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest

from holdfast.runtime.operators.function_operator import FunctionOperator
from holdfast.runtime.operators.sink_operator import SinkOperator
from holdfast.runtime.protocol.messages import Acknowledge, CheckpointCompleted
from holdfast.runtime.task.slot import Slot
from holdfast.storage import Unavailable
from holdfast.storage.jobs.metadata import METADATA
from holdfast.storage.segments.writer import SegmentStream, SegmentWriter
from support.simulations.cluster import SimulatedLink, SimulatedServer, SimulatedSlot
from support.simulations.faulty_storage import SimulatedStorage
from support.simulations.jobs import ShelfSink, Spend
from support.simulations.runs import Simulation
from support.simulations.world import Broken, Killed
from support.states.tried_backends import TRIED

pytestmark = pytest.mark.slow

SEEDS = (6, 10)
"""Jobs of two slots and of three, with four checkpoints when nothing fails. They take turns."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def _always(*_: Any) -> bool:
    return True


@dataclass(frozen=True)
class Moment:
    """A call that is not survived; the counts are of calls in the whole job."""

    name: str
    owner: type
    method: str
    is_meant: Callable[..., bool] = _always
    count: int = 1
    other: bool = False
    """Whether a slot dies, though the call is the driver's."""


def _is_restored(_operator: Any, context: Any) -> bool:
    return bool(context.restored)


def _of_metadata(_storage: Any, name: str, _data: Any) -> bool:
    return name.endswith("/_metadata")


def _of_half_the_end(_storage: Any, name: str, data: Any) -> bool:
    """A commit when one of two sources has ended."""
    if not name.endswith("/_metadata"):
        return False
    sources = METADATA.unseal(bytes(data), where=name).sources
    return len({source.attributes["has_ended"] for source in sources.values()}) == 2


def _of_claim(_storage: Any, name: str, _data: Any) -> bool:
    return "/owner-" in name


def _of_result(_storage: Any, name: str, _data: Any) -> bool:
    return ".result-" in name


def _acknowledges(_server: Any, _attempt: Any, message: Any) -> bool:
    return isinstance(message, Acknowledge)


def _notifies(_link: Any, message: Any) -> bool:
    return isinstance(message, CheckpointCompleted)


LOST_DRIVER = Moment("the commit", SimulatedStorage, "create", _of_metadata)
SLOT_DIES = (
    Moment("a row of a function", Spend, "process_element", count=9),
    Moment("a timer of a function", Spend, "on_timer", count=4),
    Moment("the sink prepares", SinkOperator, "prepare", count=5),
    Moment("the synchronous part of a snapshot", FunctionOperator, "snapshot", count=5),
    Moment("the asynchronous part writes", SegmentStream, "end", count=5),
    Moment("the asynchronous part closes its file", SegmentWriter, "close", count=2),
    Moment("the acknowledgement", SimulatedServer, "answer", _acknowledges, count=2),
    Moment("the commit, by the driver", SimulatedStorage, "create", _of_metadata, 2, other=True),
    Moment("the notification", SimulatedSlot, "_command", _notifies, count=2),
    Moment("the sink commits", ShelfSink, "commit", count=2),
    Moment("the function is closed", Spend, "close"),
    Moment("the slot is closed", Slot, "close"),
)
SLOT_DIES_AGAIN = (
    Moment("state is restored", FunctionOperator, "open", _is_restored, count=2),
    Moment("a sink opens", SinkOperator, "open", _is_restored, count=2),
    Moment("a sink commits again", ShelfSink, "commit"),
    Moment("a sink removes what is left", ShelfSink, "clean"),
    Moment("all operators are open", Slot, "open"),
)
DRIVER_DIES = (
    Moment("the claim", SimulatedStorage, "create", _of_claim),
    Moment("the commit", SimulatedStorage, "create", _of_metadata, count=2),
    Moment("the notification", SimulatedLink, "call", _notifies, count=2),
    Moment("the record of the end", SimulatedStorage, "create", _of_result),
)


class Story:
    """One job, in which processes die at moments, one after the other."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed, faults=0, backend=TRIED[0])
        self.died: list[str] = []

    @contextmanager
    def death(self, moment: Moment, *, is_done: bool, after: int = 0) -> Iterator[None]:
        """The process of the call dies before it or after it, once so many have died."""
        real = getattr(moment.owner, moment.method)
        met = 0

        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal met
            if len(self.died) == after and moment.is_meant(*arguments):
                met += 1
            else:
                return real(*arguments, **options)
            if met != moment.count:
                return real(*arguments, **options)
            if moment.other:
                self._die(self.simulation.cluster.slots()[-1])
                return real(*arguments, **options)
            if is_done:
                real(*arguments, **options)
            self._die_here()
            raise Killed

        with patch.object(moment.owner, moment.method, call):
            yield

    def _die_here(self) -> None:
        world = self.simulation.world
        for slot in self.simulation.cluster.slots():
            if slot.process is world.process:
                self._die(slot)
                return
        self.died.append(world.process.name)
        world.kill(world.process)

    def _die(self, slot: SimulatedSlot) -> None:
        self.died.append(slot.process.name)
        slot.stop()


def _named(value: object) -> str | None:
    return value.name if isinstance(value, Moment) else None


def _by_turns(moments: Sequence[Moment]) -> pytest.MarkDecorator:
    """Each moment before and after the call, by turns in one job and the other."""
    cases = [
        (moment, is_done, SEEDS[(number + is_done) % len(SEEDS)])
        for number, moment in enumerate(moments)
        for is_done in (False, True)
    ]
    return pytest.mark.parametrize(("moment", "is_done", "seed"), cases, ids=_named)


@_by_turns(SLOT_DIES)
def test_a_slot_dies_at_a_moment(
    moment: Moment,
    is_done: bool,  # noqa: FBT001
    seed: int,
) -> None:
    story = Story(seed)
    with story.death(moment, is_done=is_done):
        story.simulation.run()
    assert story.died == [f"slot {story.died[0].split()[1]} of 1.1"]


@_by_turns(SLOT_DIES_AGAIN)
def test_a_slot_dies_again_while_it_recovers(
    moment: Moment,
    is_done: bool,  # noqa: FBT001
    seed: int,
) -> None:
    story = Story(seed)
    with story.death(LOST_DRIVER, is_done=True), story.death(moment, is_done=is_done, after=1):
        story.simulation.run()
    assert [name.split()[0] for name in story.died] == ["driver", "slot"]
    assert len(story.simulation.cluster.deployments) >= 3


@_by_turns(DRIVER_DIES)
def test_a_driver_dies_at_a_moment(
    moment: Moment,
    is_done: bool,  # noqa: FBT001
    seed: int,
) -> None:
    story = Story(seed)
    with story.death(moment, is_done=is_done):
        story.simulation.run()
    assert story.died == ["driver 0"]


@_by_turns(DRIVER_DIES[:1])
def test_a_driver_dies_again_while_it_takes_over(
    moment: Moment,
    is_done: bool,  # noqa: FBT001
    seed: int,
) -> None:
    story = Story(seed)
    with story.death(LOST_DRIVER, is_done=True), story.death(moment, is_done=is_done, after=1):
        story.simulation.run()
    assert story.died == ["driver 0", "driver 1"]


@pytest.mark.parametrize("is_done", [False, True])
def test_a_driver_dies_after_the_end_of_one_source(is_done: bool) -> None:  # noqa: FBT001
    """What is restored has one source that has ended, and one that goes on."""
    moment = Moment("", SimulatedStorage, "create", _of_half_the_end)
    for seed in range(5, 25):
        story = Story(seed)
        with story.death(moment, is_done=is_done):
            story.simulation.run()
        if story.died:
            return
    pytest.fail("no checkpoint was taken between the ends of both sources")


@pytest.mark.parametrize("is_heard", [False, True])
def test_a_notification_is_lost(is_heard: bool) -> None:  # noqa: FBT001
    """The driver cannot tell whether the slot has heard of it, and the slot lives on."""
    real = SimulatedLink.call
    lost: list[Any] = []

    def call(link: SimulatedLink, message: Any) -> bool:
        if not isinstance(message, CheckpointCompleted) or lost:
            return real(link, message)
        lost.append(message)
        if is_heard:
            real(link, message)
        raise Unavailable("the line is dead")

    with patch.object(SimulatedLink, "call", call):
        Simulation(SEEDS[is_heard], faults=0, backend=TRIED[0]).run()
    assert lost


def _commits_when_it_prepares() -> AbstractContextManager[Any]:
    prepare = SinkOperator.prepare

    def too_early(operator: SinkOperator, checkpoint_id: int) -> None:
        prepare(operator, checkpoint_id)
        operator.completed(checkpoint_id)

    return patch.object(SinkOperator, "prepare", too_early)


def _does_not_commit_again() -> AbstractContextManager[Any]:
    commit = SinkOperator._commit

    def only_later(operator: SinkOperator, due: Any, context: Any) -> None:
        if operator._writer is not None:
            commit(operator, due, context)

    return patch.object(SinkOperator, "_commit", only_later)


@pytest.mark.parametrize(
    ("broken", "moment", "is_done"),
    [
        (_commits_when_it_prepares, SLOT_DIES[6], False),
        (_does_not_commit_again, DRIVER_DIES[1], True),
    ],
)
def test_a_planted_bug_is_found_at_its_moment(
    broken: Any,
    moment: Moment,
    is_done: bool,  # noqa: FBT001
) -> None:
    story = Story(SEEDS[0])
    with broken(), story.death(moment, is_done=is_done), pytest.raises(Broken):
        story.simulation.run()
