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
from typing import NamedTuple

import pyarrow as pa

from holdfast.runtime.api.errors import NotOpened, OperatorFailed, operator_named
from holdfast.runtime.planning.job_plan import ChainPlan, EdgeKind, JobPlan
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
from holdfast.runtime.task.channel import Channel, WaitingRows
from holdfast.runtime.task.fair_turns import Turns
from holdfast.runtime.task.gate import Event, Gate
from holdfast.runtime.task.in_flight import OvertakenRows
from holdfast.runtime.task.routing import Router

__all__ = ["Chain", "ChainInput", "ChainOutput", "chain_inputs"]

_Rows = Callable[[pa.RecordBatch], None]


@dataclass(frozen=True, slots=True)
class ChainInput:
    """A channel that a chain reads, and which input of its first operator it feeds.

    `edge` and `sender` name it in checkpoints. A barrier that has waited for `overtakes_after_ms`
    behind rows overtakes them; None: it waits until they are processed.
    """

    channel: Channel
    index: int = 0
    edge: str = ""
    sender: int = 0
    overtakes_after_ms: int | None = None


def chain_inputs(
    plan: JobPlan,
    chain: ChainPlan,
    channels: Mapping[str, Sequence[Channel]],
    source_alignment_ms: int | None,
) -> list[ChainInput]:
    """The inputs of a chain, from all channels by edge."""
    return [
        ChainInput(
            channel,
            edge.input_index,
            edge.edge_id,
            sender,
            source_alignment_ms if edge.kind is EdgeKind.SOURCE else None,
        )
        for edge in map(plan.edge, chain.inputs)
        for sender, channel in enumerate(channels[edge.edge_id])
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


class _Overtaken(NamedTuple):
    """Rows that a barrier has overtaken, and how many rows had been taken from the channel then."""

    its: ChainInput
    waiting: Sequence[WaitingRows]
    taken: int

    def at_the_cut(self) -> OvertakenRows:
        # At least once, some of them are processed before the cut: they are in the state by then.
        first = self.its.channel.rows_taken
        return OvertakenRows(
            self.its.edge, self.its.sender, self.waiting, first - self.taken, first
        )


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
        on_aligned: Callable[[Chain, int, Sequence[OvertakenRows]], None],
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
        self._inputs = inputs
        self._channels = [each.channel for each in inputs]
        self._overtaking = [
            place for place, each in enumerate(inputs) if each.overtakes_after_ms is not None
        ]
        self._overtaken: dict[int, list[_Overtaken]] = {}
        """Rows that barriers have overtaken, by checkpoint, until that cuts."""
        self._given_up: set[int] = set()
        """Aborted checkpoints; their barriers may still come."""
        self._restored_first: list[list[int]] = []
        """Channels of one edge each, of which some have restored rows left."""
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
    def watermark(self) -> int:
        """How far event time has got where its inputs meet; see `Gate.watermark`."""
        return self._gate.watermark

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

    def read_restored_first(self, edge: str) -> None:
        """Take restored rows of an edge before all others of it, as it has several channels.

        A key may have rows in one channel then that are older than those in another.
        """
        channels = [place for place, each in enumerate(self._inputs) if each.edge == edge]
        self._restored_first.append(channels)

    def next_overtaking_ms(self) -> int | None:
        """When the first barrier overtakes the rows before it, unless they are processed sooner.

        On the clock by which its channels time barriers.
        """
        if not self._overtaking or self._suspended_by is not None:
            return None
        due = map(self._overtaking_ms, self._overtaking)
        return min((moment for moment in due if moment is not None), default=None)

    def overtake(self, now_ms: int) -> None:
        """Hand in the barriers that have waited long enough, whether there is room or not."""
        due_ms = self.next_overtaking_ms()
        if due_ms is None or due_ms > now_ms:
            return
        for place in self._overtaking:
            due_ms = self._overtaking_ms(place)
            if due_ms is not None and due_ms <= now_ms:
                self._overtake_in(place)

    def _overtake_in(self, place: int) -> None:
        channel = self._channels[place]
        barrier, waiting = channel.overtake()
        overtaken = self._overtaken.setdefault(barrier.checkpoint_id, [])
        overtaken.append(_Overtaken(self._inputs[place], waiting, channel.rows_taken))
        self._barrier(place, barrier)

    def _overtaking_ms(self, place: int) -> int | None:
        waits = self._channels[place].first_barrier
        limit_ms = self._inputs[place].overtakes_after_ms
        if waits is None or limit_ms is None or not self._gate.may_read(place):
            return None
        barrier, since_ms = waits
        if barrier.checkpoint_id in self._given_up:
            return since_ms  # at once: nothing is written, and later checkpoints are behind it
        return None if barrier.is_savepoint else since_ms + limit_ms

    def _held_back(self) -> set[int]:
        """Channels that wait until others of their edge have no restored rows left."""
        # Their barriers wait behind all rows. A channel in which one may overtake holds back no
        # other: it may be waiting for the barriers of those.
        channels = self._channels
        self._restored_first = [
            places
            for places in self._restored_first
            if any(channels[place].has_restored for place in places)
        ]
        return {
            place
            for places in self._restored_first
            for place in places
            if not channels[place].has_restored
        }

    def _readable(self) -> Iterator[int]:
        may_read, held_back = self._gate.may_read, self._held_back()
        return (
            place
            for place, each in enumerate(self._channels)
            if len(each) and may_read(place) and place not in held_back
        )

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
            self._barrier(place, element)
        else:
            for event in self._gate.receive(place, element):
                self._handle(event)
        return True

    def _barrier(self, place: int, barrier: Barrier) -> None:
        self._on_barrier(barrier)
        for event in self._gate.receive(place, barrier):
            self._handle(event)

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
        self._given_up = {number for number in self._given_up if number > checkpoint_id}
        self._each(lambda operator: operator.completed(checkpoint_id))

    def aborted(self, checkpoint_id: int) -> None:
        """A checkpoint will not be completed."""
        self._given_up.add(checkpoint_id)
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
                self._unfinished.append(self._end())

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
        number = barrier.checkpoint_id
        self._given_up.discard(number)
        overtaken = [each.at_the_cut() for each in self._overtaken.pop(number, ())]
        self._on_aligned(self, number, overtaken)

    def _end(self) -> Iterator[None]:
        """The steps of the end of input: each operator finishes before the next one does."""
        for place, operator in enumerate(self.operators):
            has_more = True
            while has_more:
                with self.named(place):
                    has_more = operator.finish()
                if has_more:
                    yield
        for router in self._routers.values():
            router.mark(EndOfInput())
        # The chain stays: it passes on barriers, its state is in each checkpoint, union state too,
        # and its sinks commit by those, as long as other sources have not ended.
        self.has_ended = True


_DONE = object()


def _once(act: Callable[[], None]) -> Iterator[None]:
    """One step."""
    act()
    yield from ()
