"""One chain of operators in one slot: from its gate, through its operators, to its edges.

After the barrier of a savepoint that stops the job, the chain is suspended: what it would emit
behind the snapshot would never be committed. If the savepoint fails, the chain goes on.
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
from holdfast.runtime.task.alignment import Alignment, Rows
from holdfast.runtime.task.channel import Channel
from holdfast.runtime.task.fair_turns import Turns
from holdfast.runtime.task.gate import Event, Gate
from holdfast.runtime.task.routing import Router

__all__ = ["Chain", "ChainInput", "ChainOutput", "chain_inputs"]

_Rows = Callable[[pa.RecordBatch], None]


@dataclass(frozen=True, slots=True)
class ChainInput:
    """A channel that a chain reads, and which input of its first operator it feeds."""

    channel: Channel
    index: int = 0


def chain_inputs(
    plan: JobPlan, chain: ChainPlan, channels: Mapping[str, Sequence[Channel]]
) -> list[ChainInput]:
    """The inputs of a chain, from all channels by edge."""
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
        self.chain.pass_mark(self.operator, Idle())

    def active(self) -> None:
        self.chain.pass_mark(self.operator, Active())


class Chain:
    """Operators in a row, or as a tree. Everything runs in the slot's thread.

    The constructor raises `NotOpened` if an operator cannot be built here.

    `on_barrier` is called with each barrier that a channel brings, before anything else is done.
    Where `alignment` cuts, operators emit what belongs before the barrier, the barrier is passed
    on, and `on_aligned` takes the snapshot.

    Processing of one element is split into bounded steps, and no other element is read before the
    last of them, except barriers. So a snapshot may be taken while timers below a watermark are
    still due. That is correct: the timers are in the state, no row has overtaken them, and event
    time begins anew with a restore.
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
        self.active_uid: str | None = None
        """The uid of the operator that runs now. Any thread may read it."""
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
        self._unfinished: deque[Iterator[None]] = deque()
        """Remaining steps of the elements that were read, in order."""
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
        """Whether operators may take rows, and all channels downstream have room."""
        may_change = self._can_take and self._suspended_by is None
        return may_change and all(router.has_room for router in self._routers.values())

    def suspend(self, checkpoint_id: int) -> None:
        """Stop processing: the job is to end with this savepoint."""
        self._suspended_by = checkpoint_id

    def resume(self, checkpoint_id: int) -> None:
        """Go on, if it was this savepoint that suspended the chain: it has failed."""
        if self._suspended_by == checkpoint_id:
            self._suspended_by = None

    def tend(self) -> bool:
        """Let operators do the maintenance of their state that is due; see `Operator.tend`.

        Returns whether all may take rows now.
        """
        can_take = True
        for operator in self.operators:
            try:
                can_take &= operator.tend()
            except Exception:
                with self.named(self.operators.index(operator)):
                    raise
        self._can_take = can_take
        return can_take

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._unfinished) or next(self._readable(), None) is not None

    def step(self) -> bool:
        """Do a bounded amount: of the last element, or else of the next one.

        False if nothing can be done now. Channels share turns by bytes.
        """
        places = [*self._readable()]
        if self._unfinished:
            places = [place for place in places if self._is_at_barrier(place)]
        has_read = self._read(places)
        has_left = bool(self._unfinished)
        while self._unfinished and next(self._unfinished[0], _DONE) is _DONE:
            self._unfinished.popleft()
        return has_read or has_left

    def _readable(self) -> Iterator[int]:
        may_read, channels = self._gate.may_read, self._channels
        return (place for place, each in enumerate(channels) if len(each) and may_read(place))

    def _is_at_barrier(self, place: int) -> bool:
        return isinstance(self._channels[place].first, Barrier)

    def _read(self, places: Sequence[int]) -> bool:
        """Take an element of one of these channels."""
        place = self._next_of(places)
        if place is None:
            return False
        element = self._channels[place].take(self.operators[0].batch_bytes)
        if element is None:
            return False
        self._turns.charge(place, size_bytes(element))
        if isinstance(element, Barrier):
            self._on_barrier(element)
        for event in self._gate.receive(place, element):
            self._handle(event)
        return True

    def _next_of(self, places: Sequence[int]) -> int | None:
        for place in places:
            self._turns.enter(place)
        # Of those that wait from before some may not be read now; they enter again when they may.
        found = self._turns.next()
        while found is not None and found not in places:
            found = self._turns.next()
        return found

    def tick(self, now_ms: int) -> None:
        """Let operators do what is due by the clock; after the end no row may follow."""
        if self.has_ended:
            return
        self._each(lambda operator: operator.tick(now_ms))

    def next_tick_ms(self) -> int | None:
        """When the first operator has something to do; in the past if it has not done all."""
        if self.has_ended:
            return None
        due = [operator.next_tick_ms() for operator in self.operators]
        return min((moment for moment in due if moment is not None), default=None)

    def is_due(self, now_ms: int) -> bool:
        """Whether `tick` has something to do."""
        due_ms = self.next_tick_ms()
        return due_ms is not None and due_ms <= now_ms

    def pass_watermark(self, operator: int, watermark: int) -> None:
        """Pass a watermark on at once, in one part: rows of the same operator follow it."""
        for _ in self._watermark_passed(operator, watermark):
            pass

    def pass_mark(self, operator: int, mark: Idle | Active) -> None:
        """Pass on that an operator is idle, or active again."""
        for link in self._links[operator]:
            if isinstance(link.target, int):
                self._mark(link.target, mark)
            else:
                self._routers[link.target].mark(mark)

    def completed(self, checkpoint_id: int) -> None:
        """A checkpoint is complete."""
        self._each(lambda operator: operator.completed(checkpoint_id))

    def aborted(self, checkpoint_id: int) -> None:
        """A checkpoint will not be completed."""
        self._each(lambda operator: operator.aborted(checkpoint_id))

    def close(self) -> list[OperatorFailed]:
        """Close all operators, the last one first; returns the failures."""
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
            case Barrier():
                self._align(event)
            case Watermark(timestamp):
                self._unfinished.append(self._advance(0, timestamp))
            case Idle() | Active():
                self._unfinished.append(_once(partial(self._mark, 0, event)))
            case EndOfInput():
                self._unfinished.append(_once(self._end))

    def _process(self, place: int, batch: pa.RecordBatch, input_index: int = 0) -> None:
        with self.named(place):
            self.operators[place].process(batch, input_index)

    def _each(self, act: Callable[[Operator], None]) -> None:
        for place, operator in enumerate(self.operators):
            with self.named(place):
                act(operator)

    @contextmanager
    def named(self, place: int, kind: type[OperatorFailed] = OperatorFailed) -> Iterator[None]:
        """Attribute what runs inside, and its failures, to this operator."""
        before, self.active_uid = self.active_uid, self.plan.operators[place].uid
        try:
            with operator_named(self.active_uid, kind):
                yield
        finally:
            self.active_uid = before

    def _advance(self, place: int, watermark: int) -> Iterator[None]:
        """The steps of a watermark; it is passed on after the last one of this operator."""
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

    def _mark(self, place: int, mark: Idle | Active) -> None:
        if not self.operators[place].makes_event_time:
            self.pass_mark(place, mark)

    def _align(self, barrier: Barrier) -> None:
        self._each(lambda operator: operator.prepare(barrier.checkpoint_id))
        for router in self._routers.values():
            router.mark(barrier)
        self._on_aligned(self, barrier.checkpoint_id)

    def _end(self) -> None:
        self._each(lambda operator: operator.finish())
        for router in self._routers.values():
            router.mark(EndOfInput())
        self.has_ended = True


_DONE = object()


def _once(act: Callable[[], None]) -> Iterator[None]:
    """One step."""
    act()
    yield from ()
