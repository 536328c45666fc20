"""Whole runs of a coordinator of checkpoints, at random from a seed, watched by a second mind.

`CoordinatorRun` plays slots, sources, storage and users, which answer late, twice, or not at all.
`Watch` knows the rules, keeps books of its own, and fails when a command breaks one.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.checkpoint.commands import (
    Abort,
    AbortReason,
    Begin,
    Command,
    FailJob,
    Notify,
    Retain,
    Store,
    Trigger,
)
from holdfast.runtime.checkpoint.coordinator import CheckpointCoordinator
from holdfast.runtime.checkpoint.savepoint_orders import SavepointPurpose, SavepointRequest
from holdfast.runtime.protocol.checkpoints import SavepointFormat, SlotStatistics
from holdfast.storage import (
    InlineHandle,
    StateSnapshot,
    Unavailable,
)

START_MS = 1_000
Parts = dict[str, tuple[StateSnapshot, ...]]


@dataclass
class Book:
    """What the watch has seen of one checkpoint."""

    begun: Begin
    acks: dict[int, Parts] = field(default_factory=dict)
    positions: dict[str, StateSnapshot] = field(default_factory=dict)

    @property
    def order(self) -> SavepointRequest | None:
        return self.begun.savepoint

    @property
    def is_aside(self) -> bool:
        """Whether it is a savepoint with which the job goes on."""
        return self.order is not None and not self.order.purpose.ends_job


@dataclass
class Watch:
    """The rules, told what goes in and what comes out."""

    config: CheckpointConfig
    slots: int
    sources: Sequence[str]
    first_id: int
    completed: list[int]
    """In the job's own folder, the restored one first."""
    kept: set[int]
    """Those of them that are not deleted."""
    retaining: deque[int] = field(default_factory=deque)
    """What is to be carried out of `Retain`: a thread beside it does that later."""
    pending: dict[int, Book] = field(default_factory=dict)
    storing: int | None = None
    saving: set[int] = field(default_factory=set)
    """Those that are stored beside the others."""
    suspended_by: SavepointRequest | None = None
    has_drained: bool = False
    is_to_be_cancelled: bool = False
    last_id: int = 0
    last_trigger_ms: int = START_MS
    last_end_ms: int | None = None
    last_notified: int = 0
    failures: int = 0
    wants_final: bool = False
    is_finished: bool = False
    is_over: bool = False

    def saw(self, now_ms: int, commands: Sequence[Command]) -> None:
        for command in commands:
            assert not self.is_over, f"after the end: {command}"
            self._rule(now_ms, command)
        told = [type(each) for each in commands]
        assert told.count(Notify) == told.count(Retain), "does not say what is to be retained"
        self._nothing_is_missing()
        if self.failures > self.config.tolerable_failures:
            assert self.is_over, "too many failures, and the job goes on"

    def retain(self) -> None:
        """Do what was told, and is done late."""
        since = self.retaining.popleft()
        newest = sorted(self.kept)[-self.config.retained :]
        self.kept = {number for number in self.kept if number >= since or number in newest}
        self._nothing_is_missing()

    def _nothing_is_missing(self) -> None:
        """A slot builds on one that it may only come to know just before the barrier."""
        for number, book in self.pending.items():
            if book.order is not None:
                continue
            missing = {each for each in self.completed if each >= self._since(book)} - self.kept
            assert not missing, f"{number} may build on {missing}, which is deleted"

    def _since(self, book: Book) -> int:
        return self.first_id if book.begun.base is None else book.begun.base

    def may_act(self, now_ms: int) -> None:
        """After a tick: nothing that is due was left undone."""
        if self.is_over:
            return
        for number, book in self.pending.items():
            age_ms = now_ms - book.begun.triggered_ms
            is_stored = number == self.storing or number in self.saving
            assert age_ms < self.config.timeout_ms or is_stored, "did not expire"
            assert not self._is_ready(book) or self.storing is not None or is_stored, "no store"
        interval_ms = self.config.interval_ms
        has_room = len(self.pending) < self.config.max_concurrent
        is_quiet = self.wants_final or self.suspended_by is not None
        if has_room and interval_ms is not None and not is_quiet:
            paused_ms = self.config.min_pause_ms if self.last_end_ms is not None else 0
            rested_ms = (self.last_end_ms or 0) + paused_ms
            assert now_ms < max(self.last_trigger_ms + interval_ms, rested_ms), "did not begin"

    def _is_ready(self, book: Book) -> bool:
        return len(book.acks) == self.slots and len(book.positions) == len(self.sources)

    def _rule(self, now_ms: int, command: Command) -> None:
        match command:
            case Begin():
                self._begin(now_ms, command)
            case Store():
                self._store(command)
            case Notify(number):
                assert number == self.storing, "told before it was stored"
                assert number > self.last_notified, "told out of order"
                self.last_notified, self.storing = number, None
                book = self.pending.pop(number)
                assert not book.is_aside, "sinks would commit what no restart restores"
                self.is_finished = book.begun.is_final or book.order is not None
                self.failures, self.last_end_ms = 0, now_ms
                self.completed.append(number)
                self.kept.add(number)
            case Retain(since):
                checkpoints = [book for book in self.pending.values() if book.order is None]
                needed = min(map(self._since, checkpoints), default=self.last_notified)
                assert since >= needed, "keeps an unneeded checkpoint"
                self.retaining.append(since)
            case Abort():
                self._abort(now_ms, command)
            case FailJob():
                is_drained = self.has_drained and self.suspended_by is None
                has_reason = is_drained or self.failures > self.config.tolerable_failures
                assert has_reason, "fails without reason"
                self.is_over = True

    def _begin(self, now_ms: int, begin: Begin) -> None:
        assert begin.checkpoint_id > self.last_id, "numbers do not ascend"
        assert begin.triggered_ms == now_ms
        newest = self.completed[-1] if self.completed else None
        assert begin.base == newest, "does not build on the newest that is complete"
        assert not self.is_finished, "begins after the final one"
        if begin.savepoint is not None:
            self._begin_savepoint(begin)
            return
        assert begin.is_final == self.wants_final, "not the kind that is wanted"
        assert self.suspended_by is None, "begins though a savepoint is to be the last"
        assert len(self.pending) < self.config.max_concurrent, "too many at once"
        if begin.trigger is Trigger.PERIODIC:
            assert self.config.interval_ms is not None
            assert now_ms >= self.last_trigger_ms + self.config.interval_ms, "too early"
            rested_ms = now_ms - (now_ms if self.last_end_ms is None else self.last_end_ms)
            assert self.last_end_ms is None or rested_ms >= self.config.min_pause_ms, "no pause"
        assert not any(book.begun.is_final for book in self.pending.values())
        self.last_id, self.last_trigger_ms = begin.checkpoint_id, now_ms
        self.pending[begin.checkpoint_id] = Book(begin)

    def _begin_savepoint(self, begin: Begin) -> None:
        assert begin.trigger is Trigger.SAVEPOINT
        assert self.suspended_by in (None, begin.savepoint), "another is to be the last"
        self.last_id = begin.checkpoint_id
        self.pending[begin.checkpoint_id] = Book(begin)

    def saved(self, number: int) -> None:
        """A savepoint of a continuing job is stored: no slot has to be notified."""
        self.saving.discard(number)
        book = self.pending.pop(number)
        self.is_to_be_cancelled |= book.order == self.suspended_by

    def _store(self, store: Store) -> None:
        book = self.pending[store.checkpoint_id]
        assert book.is_aside or self.storing is None, "stores two at once"
        assert store.savepoint == book.order
        assert self._is_ready(book), "stores what is not whole"
        merged: Parts = {}
        for slot in range(self.slots):
            for uid, parts in book.acks[slot].items():
                merged[uid] = merged.get(uid, ()) + parts
        assert store.operators == merged
        assert store.sources == book.positions
        assert store.triggered_ms == book.begun.triggered_ms
        if book.is_aside:
            self.saving.add(store.checkpoint_id)
        else:
            self.storing = store.checkpoint_id

    def _abort(self, now_ms: int, abort: Abort) -> None:
        number = abort.checkpoint_id
        book = self.pending.pop(number)
        assert abort.savepoint == book.order
        if abort.reason is AbortReason.FINALIZE:
            assert number == self.storing or number in self.saving
            self.saving.discard(number)
            self.storing = None if number == self.storing else self.storing
        assert number != self.storing, "aborts what may be complete"
        assert number not in self.saving, "aborts what may be complete"
        if abort.reason is AbortReason.EXPIRED:
            assert now_ms - book.begun.triggered_ms >= self.config.timeout_ms
        if abort.reason is AbortReason.SUBSUMED:
            assert number < self.last_notified
            assert not book.is_aside, "a savepoint is never obsolete"
        if book.order is not None:
            if book.order == self.suspended_by:
                self.suspended_by, self.last_trigger_ms = None, now_ms
            return
        self.failures += abort.reason.counts
        self.last_end_ms = now_ms


class CoordinatorRun:
    """One run; the same seed gives the same trace."""

    def __init__(
        self, seed: int, kind: type[CheckpointCoordinator] = CheckpointCoordinator
    ) -> None:
        self._random = random.Random(seed)
        max_concurrent = self._random.choice((1, 1, 2, 3))
        self._config = CheckpointConfig(
            interval=self._random.choice((None, "100ms", "1s")),
            timeout=self._random.choice(("500ms", "3s")),
            min_pause=self._random.choice(("0s", "300ms")) if max_concurrent == 1 else 0,
            max_concurrent=max_concurrent,
            tolerable_failures=self._random.choice((0, 1, 3, 50)),
            retained=self._random.choice((1, 2)),
        )
        self._slots = self._random.randint(1, 3)
        self._sources = ("a", "b")[: self._random.randint(0, 2)]
        self._now_ms = START_MS
        self._orders = 0
        restored = self._random.choice((None, 3))
        first_id = 1 if restored is None else 5
        self._coordinator = kind(
            self._config,
            slots=self._slots,
            sources=self._sources,
            next_id=first_id,
            now_ms=START_MS,
            restored=restored,
        )
        there = [] if restored is None else [restored]
        self.watch = Watch(
            self._config,
            self._slots,
            self._sources,
            first_id,
            there,
            set(there),
            last_id=first_id - 1,
        )
        self.trace: list[tuple[int, Sequence[Command]]] = []
        acting: tuple[tuple[int, Callable[[], Sequence[Command]]], ...] = (
            (30, self._tick),
            (30, self._acknowledge),
            (15, self._locate),
            (12, self._finish_storing),
            (12, self._retain),
            (3, self._decline),
            (1, self._fail_trigger),
            (3, self._request),
            (self._random.choice((0, 0, 2)), self._request_savepoint),
            (2, self._drained),
            (self._random.choice((0, 1)), self._request_final),
            (self._random.choice((0, 0, 1)), self._shutdown),
        )
        self._weights = [weight for weight, _ in acting]
        self._actions = [action for _, action in acting]

    def play(self, steps: int = 300) -> CoordinatorRun:
        """Go on for so many steps, at random. At first all may be wanted that may be under way."""
        for _ in range(self._random.choice((0, 3))):
            self._saw(self._request())
        for _ in range(steps):
            if self._random.random() < 0.3:
                self._now_ms += self._random.choice((1, 20, 100, 400))
            (action,) = self._random.choices(self._actions, self._weights)
            self._saw(action())
        return self

    def settle(self) -> CoordinatorRun:
        """From now on all answer in time. What is asked for now must be completed."""
        before = self._coordinator.next_checkpoint_id
        self._saw(self._request())
        for _ in range(100):
            if self.watch.is_over or self.watch.is_finished or self.watch.last_notified >= before:
                return self
            if self.watch.is_to_be_cancelled:
                return self
            self._saw(self._drained())
            for number in tuple(self.watch.pending):
                for slot in range(self._slots):
                    self._saw(self._answer(number, slot))
                for uid in self._sources:
                    self._saw(self._answer_position(number, uid))
            for number in sorted(self.watch.saving):
                self._saw(self._end_storing(number, is_stored=True))
            while self.watch.storing is not None and not self.watch.is_over:
                self._saw(self._end_storing(self.watch.storing, is_stored=True))
            self._now_ms += 100
            self._saw(self._tick())
        raise AssertionError("a request was forgotten")

    def _saw(self, commands: Sequence[Command]) -> None:
        self.trace.append((self._now_ms, commands))
        self.watch.saw(self._now_ms, commands)

    def _some_checkpoint(self) -> int | None:
        """Mostly one that is under way, the first or any; now and then any that there has been."""
        if self.watch.pending and self._random.random() < 0.9:
            under_way = tuple(self.watch.pending)
            return self._random.choice((under_way[0], self._random.choice(under_way)))
        return self._random.randint(1, self.watch.last_id) if self.watch.last_id else None

    def _tick(self) -> Sequence[Command]:
        commands = self._coordinator.tick(self._now_ms)
        self._saw(commands)
        self.watch.may_act(self._now_ms)
        return ()

    def _acknowledge(self) -> Sequence[Command]:
        number = self._some_checkpoint()
        return () if number is None else self._answer(number, self._random.randrange(self._slots))

    def _answer(self, number: int, slot: int) -> Sequence[Command]:
        parts: Parts = {
            uid: tuple(self._snapshot() for _ in range(self._random.randint(0, 2)))
            for uid in self._random.sample(("sum", "join", "sink"), self._random.randint(0, 3))
        }
        if number in self.watch.pending:
            self.watch.pending[number].acks.setdefault(slot, parts)
        return self._coordinator.acknowledged(
            self._now_ms, number, slot=slot, parts=parts, statistics=SlotStatistics()
        )

    def _locate(self) -> Sequence[Command]:
        number = self._some_checkpoint()
        if number is None or not self._sources:
            return ()
        return self._answer_position(number, self._random.choice(self._sources))

    def _answer_position(self, number: int, uid: str) -> Sequence[Command]:
        position = self._snapshot()
        if number in self.watch.pending:
            self.watch.pending[number].positions.setdefault(uid, position)
        return self._coordinator.source_position(self._now_ms, number, uid=uid, position=position)

    def _snapshot(self) -> StateSnapshot:
        data = self._random.randbytes(self._random.randint(0, 4))
        return StateSnapshot(kind="test/1", handles={"all": InlineHandle(data=data)})

    def _retain(self) -> Sequence[Command]:
        if self.watch.retaining:
            self.watch.retain()
        return ()

    def _finish_storing(self) -> Sequence[Command]:
        stored = [*self.watch.saving]
        stored += [] if self.watch.storing is None else [self.watch.storing]
        if not stored:
            return ()
        number = self._random.choice(sorted(stored))
        return self._end_storing(number, is_stored=self._random.random() < 0.8)

    def _end_storing(self, number: int, *, is_stored: bool) -> Sequence[Command]:
        while self.watch.retaining:  # by the same thread, and told before
            self.watch.retain()
        if self.watch.is_over:
            self.watch.saving.discard(number)
            self.watch.storing = None if number == self.watch.storing else self.watch.storing
        if is_stored:
            if number in self.watch.saving:
                self.watch.saved(number)
            return self._coordinator.stored(self._now_ms, number)
        return self._coordinator.store_failed(self._now_ms, number, reason="no answer")

    def _decline(self) -> Sequence[Command]:
        number = self._some_checkpoint()
        if number is None:
            return ()
        slot = self._random.randrange(self._slots)
        return self._coordinator.declined(self._now_ms, number, slot=slot, reason="no")

    def _fail_trigger(self) -> Sequence[Command]:
        number = self._some_checkpoint()
        if number is None:
            return ()
        return self._coordinator.trigger_failed(self._now_ms, number, reason="no")

    def _request(self) -> Sequence[Command]:
        return self._coordinator.request(self._now_ms)

    def _request_savepoint(self) -> Sequence[Command]:
        self._orders += 1
        purposes = [SavepointPurpose.KEEP_RUNNING] * 4 + [*SavepointPurpose]
        request = SavepointRequest(
            url=f"memory://savepoints/savepoint-{self._orders}",
            format=SavepointFormat.NATIVE,
            purpose=self._random.choice(purposes),
        )
        is_open = not (self.watch.is_over or self.watch.wants_final or self.watch.suspended_by)
        try:
            commands = self._coordinator.request_savepoint(self._now_ms, request)
        except Unavailable:
            assert not is_open or self.watch.is_finished, "refused without reason"
            return ()
        assert is_open, "taken though another is to be the last"
        if request.purpose is not SavepointPurpose.KEEP_RUNNING:
            self.watch.suspended_by = request
        assert (not commands) == (request.purpose is SavepointPurpose.DRAIN)
        return commands

    def _drained(self) -> Sequence[Command]:
        request = self.watch.suspended_by
        if request is None or request.purpose is not SavepointPurpose.DRAIN:
            return ()
        if self.watch.is_over or self.watch.has_drained:
            return ()
        self.watch.has_drained = True
        return self._coordinator.drained(self._now_ms)

    def _request_final(self) -> Sequence[Command]:
        if self._random.random() < 0.9 or self.watch.suspended_by is not None:
            return ()
        self.watch.wants_final = True
        return self._coordinator.request_final(self._now_ms)

    def _shutdown(self) -> Sequence[Command]:
        if self._random.random() < 0.9:
            return ()
        commands = self._coordinator.shutdown(self._now_ms)
        self._saw(commands)
        self.watch.is_over = True
        return ()
