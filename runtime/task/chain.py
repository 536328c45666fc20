"""One chain of operators in one slot: from its gate, through its operators, to its edges.

Behind the barrier of a savepoint that stops the job nothing is processed: what came after the
snapshot would never be committed. If the savepoint fails the chain goes on, with not a row lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from holdfast.runtime.api.errors import NotOpened, OperatorFailed, operator_named
from holdfast.runtime.planning.job_plan import ChainPlan, JobPlan
from holdfast.runtime.protocol.elements import (
    Active,
    Barrier,
    EndOfInput,
    Idle,
    Watermark,
    size_bytes,
)
from holdfast.runtime.protocol.operator import Operator, Output
from holdfast.runtime.task.alignment import Aligned, Alignment, Rows
from holdfast.runtime.task.channel import Channel
from holdfast.runtime.task.fair_turns import Turns
from holdfast.runtime.task.gate import Awake, Ended, Event, Gate, Quiet, TimeAdvanced
from holdfast.runtime.task.routing import Router

__all__ = ["Chain", "ChainInput", "ChainOutput", "chain_inputs"]

_Rows = Callable[[pa.RecordBatch], None]


@dataclass(frozen=True, slots=True)
class ChainInput:
    """A channel that a chain reads, and to which input of its first operator that leads."""

    channel: Channel
    index: int = 0


def chain_inputs(
    plan: JobPlan, chain: ChainPlan, channels: Mapping[str, Sequence[Channel]]
) -> list[ChainInput]:
    """What a chain reads, of all channels by edge."""
    return [
        ChainInput(channel, plan.edge(edge).input_index)
        for edge in chain.inputs
        for channel in channels[edge]
    ]


@dataclass
class ChainOutput(Output):
    """Where the results of one operator go."""

    chain: Chain
    operator: int
    main: list[_Rows] = field(default_factory=list)
    sides: dict[str, list[_Rows]] = field(default_factory=dict)

    def emit(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            for target in self.main:
                target(batch)

    def emit_side(self, tag: str, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            for target in self.sides.get(tag, ()):
                target(batch)

    def advance(self, watermark: int) -> None:
        self.chain.pass_watermark(self.operator, watermark)

    def idle(self) -> None:
        self.chain.pass_idle(self.operator)

    def active(self) -> None:
        self.chain.pass_active(self.operator)


class Chain:
    """Operators in a row, or as a tree. Everything runs in the slot's thread.

    Making one raises `NotOpened` if an operator cannot be built here.

    `on_barrier` is told of each barrier that a channel brings, before anything follows from it.
    When `alignment` says that it cuts here, operators emit what belongs before it, the barrier goes
    on, and `on_aligned` takes the snapshot.

    What an element causes may be long: then a step does a part of it, and those that follow do the
    rest before another element is read. Only barriers are, and a snapshot may so be taken while
    timers below a watermark still wait. It is right: they are in the state, no row has overtaken
    them, and event time begins anew with a restore.
    """

    def __init__(
        self,
        plan: ChainPlan,
        inputs: Sequence[ChainInput],
        alignment: Alignment,
        routers: Mapping[str, Router],
        on_barrier: Callable[[Barrier], None],
        on_aligned: Callable[[Chain, int], None],
    ) -> None:
        self.plan = plan
        self.operators: list[Operator] = []
        for spec in plan.operators:
            with operator_named(spec.uid, NotOpened):
                self.operators.append(spec.build())
        self.has_ended = False
        self.inside: str | None = None
        """The uid of the operator that is at work. Any thread may look."""
        self.rows = 0
        self._can_take = True
        self._suspended_by: int | None = None
        self._channels = [each.channel for each in inputs]
        self._input_of = [each.index for each in inputs]
        self._gate = Gate(len(inputs), alignment)
        self._routers = routers
        self._on_barrier = on_barrier
        self._on_aligned = on_aligned
        self._turns = Turns(len(inputs))
        self._left: deque[Iterator[None]] = deque()
        """What elements that were read have caused, and is not done: in order, in parts."""
        self._links = [
            [link for link in plan.links if link.operator == place]
            for place in range(len(self.operators))
        ]
        self.outputs = [ChainOutput(self, place) for place in range(len(self.operators))]
        for link in plan.links:
            output = self.outputs[link.operator]
            target = (
                partial(self._process, link.target)
                if isinstance(link.target, int)
                else routers[link.target].rows
            )
            if link.tag is None:
                output.main.append(target)
            else:
                output.sides.setdefault(link.tag, []).append(target)

    @property
    def has_room(self) -> bool:
        """Whether its state may change, and those that it emits to can take what it emits."""
        may_change = self._can_take and self._suspended_by is None
        return may_change and all(router.has_room for router in self._routers.values())

    def suspend(self, checkpoint_id: int) -> None:
        """Do nothing more: the job is to end with this savepoint."""
        self._suspended_by = checkpoint_id

    def resume(self, checkpoint_id: int) -> None:
        """Go on, if it was this savepoint: it has failed."""
        if self._suspended_by == checkpoint_id:
            self._suspended_by = None

    def tend(self) -> None:
        """Let operators do what is due for their state."""
        can_take = True
        for operator in self.operators:
            try:
                can_take &= operator.tend()
            except Exception:
                with self.named(self.operators.index(operator)):
                    raise
        self._can_take = can_take

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._left) or next(self._readable(), None) is not None

    def step(self) -> bool:
        """Do a bounded amount: what is left of the last element, or else take the next one.

        False if there is nothing that may be done now. Channels share turns by bytes.
        """
        barriers = [place for place in self._readable() if self._is_at_barrier(place)]
        has_read = self._read(barriers) if self._left else self._read([*self._readable()])
        has_left = bool(self._left)
        while self._left and next(self._left[0], _DONE) is _DONE:
            self._left.popleft()
        return has_read or has_left

    def _readable(self) -> Iterator[int]:
        may_read, channels = self._gate.may_read, self._channels
        return (place for place, each in enumerate(channels) if len(each) and may_read(place))

    def _is_at_barrier(self, place: int) -> bool:
        return isinstance(self._channels[place].first, Barrier)

    def _read(self, places: Sequence[int]) -> bool:
        """Take an element of one of these channels."""
        if not places:
            return False
        place = self._turns.next(places)
        element = self._channels[place].take(self.operators[0].batch_bytes)
        if element is None:
            return False
        self._turns.charge(place, size_bytes(element))
        if isinstance(element, Barrier):
            self._on_barrier(element)
        for event in self._gate.receive(place, element):
            self._handle(event)
        return True

    def tick(self, now_ms: int) -> None:
        """Let operators do what is due by the clock, until the end: no row may follow it."""
        if self.has_ended:
            return
        for place, operator in enumerate(self.operators):
            with self.named(place):
                operator.tick(now_ms)

    def next_tick_ms(self) -> int | None:
        """When the first of them has something to do; in the past, if it had too much at once."""
        if self.has_ended:
            return None
        due = [operator.next_tick_ms() for operator in self.operators]
        return min((moment for moment in due if moment is not None), default=None)

    def is_due(self, now_ms: int) -> bool:
        """Whether `tick` has something to do."""
        due_ms = self.next_tick_ms()
        return due_ms is not None and due_ms <= now_ms

    def pass_watermark(self, operator: int, watermark: int) -> None:
        """Event time behind an operator has got to here: all of it, for rows follow at once."""
        for _ in self._watermark_passed(operator, watermark):
            pass

    def pass_idle(self, operator: int) -> None:
        """Nothing comes from an operator for a while."""
        for link in self._links[operator]:
            if isinstance(link.target, int):
                self._idle(link.target)
            else:
                self._routers[link.target].mark(Idle())

    def pass_active(self, operator: int) -> None:
        """An operator is waited for again."""
        for link in self._links[operator]:
            if isinstance(link.target, int):
                self._active(link.target)
            else:
                self._routers[link.target].mark(Active())

    def completed(self, checkpoint_id: int) -> None:
        """A checkpoint is complete."""
        for place, operator in enumerate(self.operators):
            with self.named(place):
                operator.completed(checkpoint_id)

    def aborted(self, checkpoint_id: int) -> None:
        """A checkpoint will not be completed."""
        for place, operator in enumerate(self.operators):
            with self.named(place):
                operator.aborted(checkpoint_id)

    def close(self) -> list[OperatorFailed]:
        """Close all operators, the last one first; answers the failures of those that cannot be."""
        failures: list[OperatorFailed] = []
        for place, operator in reversed([*enumerate(self.operators)]):
            try:
                with self.named(place):
                    operator.close()
            except OperatorFailed as failure:
                failures.append(failure)
        return failures

    def _handle(self, event: Event) -> None:
        match event:
            case Rows(channel, batch):
                self.rows += batch.num_rows
                self._process(0, batch, self._input_of[channel])
            case Aligned(barrier):
                self._align(barrier)
            case TimeAdvanced(timestamp):
                self._left.append(self._advance(0, timestamp))
            case Quiet():
                self._left.append(_once(partial(self._idle, 0)))
            case Awake():
                self._left.append(_once(partial(self._active, 0)))
            case Ended():
                self._left.append(_once(self._end))

    def _process(self, place: int, batch: pa.RecordBatch, input_index: int = 0) -> None:
        with self.named(place):
            self.operators[place].process(batch, input_index)

    @contextmanager
    def named(self, place: int, kind: type[OperatorFailed] = OperatorFailed) -> Iterator[None]:
        """What is done inside is done by this operator, and so are failures its own."""
        before, self.inside = self.inside, self.plan.operators[place].uid
        try:
            with operator_named(self.inside, kind):
                yield
        finally:
            self.inside = before

    def _advance(self, place: int, watermark: int) -> Iterator[None]:
        """In parts; the watermark goes on when all that it causes here is done."""
        operator, has_more = self.operators[place], True
        while has_more:
            with self.named(place):
                has_more = operator.advance(watermark)
            if has_more:
                yield
        if not operator.makes_event_time:
            yield from self._watermark_passed(place, watermark)

    def _watermark_passed(self, place: int, watermark: int) -> Iterator[None]:
        for link in self._links[place]:
            if isinstance(link.target, int):
                yield from self._advance(link.target, watermark)
            else:
                self._routers[link.target].mark(Watermark(watermark))

    def _idle(self, place: int) -> None:
        operator = self.operators[place]
        with self.named(place):
            operator.idle()
        if not operator.makes_event_time:
            self.pass_idle(place)

    def _active(self, place: int) -> None:
        operator = self.operators[place]
        with self.named(place):
            operator.active()
        if not operator.makes_event_time:
            self.pass_active(place)

    def _align(self, barrier: Barrier) -> None:
        for place, operator in enumerate(self.operators):
            with self.named(place):
                operator.prepare(barrier.checkpoint_id)
        for router in self._routers.values():
            router.mark(barrier)
        self._on_aligned(self, barrier.checkpoint_id)

    def _end(self) -> None:
        for place, operator in enumerate(self.operators):
            with self.named(place):
                operator.finish()
        for router in self._routers.values():
            router.mark(EndOfInput())
        self.has_ended = True


_DONE = object()


def _once(act: Callable[[], None]) -> Iterator[None]:
    """Something short, in one part."""
    act()
    yield from ()
