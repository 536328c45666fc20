"""A campaign over shared files: seeded lives of one operator whose checkpoints build on others.

The coordinator of the runtime decides, seats stand for slots, and a keeper commits, retains and
cleans behind a queue, as the driver's does. News come late, in another order, or never; snapshots
fail, are aborted, or are written when they are no longer wanted; slots and drivers die, and go on
from a checkpoint, not always the newest, at any parallelism. Beside it in each slot is another
operator, which begins files between snapshots. After each step every retained checkpoint is whole;
now and then one is restored beside what is live, and compared with a model.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.backends.snapshots.neutral import FILES_KIND, SnapshotForm
from holdfast.backends.testing.model.comparing import compare_fired, compare_states
from holdfast.backends.testing.model.fleet import UID, Fleet, Settings, comparable
from holdfast.backends.testing.model.model import Model, ModelTimer
from holdfast.backends.testing.model.subjects import (
    KEY_KINDS,
    SUBJECT_COUNT,
    TIMER_NAMESPACES,
    TTLS,
    Picks,
    action_of,
    subjects_of,
)
from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.checkpoint.commands import Abort, Begin, Command, Notify, Retain, Store
from holdfast.runtime.checkpoint.coordinator import CheckpointCoordinator
from holdfast.runtime.protocol.checkpoints import SlotStatistics
from holdfast.storage import (
    CheckpointMetadata,
    JobOwner,
    ManualClock,
    OperatorState,
    StateSnapshot,
    load_storage,
    names,
)
from holdfast.storage.jobs.decisions import open_from
from holdfast.storage.testing.example_jobs import clear, remove, retain
from support.simulations.file_slots import Seat
from support.storages.early_files import EarlyWriter, check_early

__all__ = ["Campaign", "Rules"]

START_MS = 1_000_000
_TIMEOUT_MS = 600_000
_ABOVE_ALL = 10**15
_EARLY = "early"
"""The operator that begins files before the checkpoint that refers to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the driver's side keeps to; a campaign without one of these must fail."""

    retains_since: bool = True
    """Retention spares what those under way may build on."""
    barriers_tell: bool = True
    """Barriers say what is complete."""
    spares_under_way: bool = True
    """Cleaning spares what those under way may be writing."""
    spares_begun: bool = True
    """Cleaning spares what was begun before its checkpoint."""


class Campaign:
    """One sequence; `run` goes through it, `tally` says what was in it."""

    def __init__(self, folder: Path, number: int, rules: Rules) -> None:
        self.chance = chance = random.Random(number)
        self.rules = rules
        self.tally: Counter[str] = Counter()
        self.state_folder = folder / "state"
        self.job_folder = folder / "job"
        storage = load_storage(str(folder), inline_limit_bytes=chance.choice((0, 300)))
        backend = RocksDBStateBackend(memory="16m", directories=[str(self.state_folder)])
        self.backends = {True: backend, False: replace(backend, incremental=False)}
        self.clock = ManualClock(START_MS)
        self.settings = Settings(
            backend=backend,
            key_kind=KEY_KINDS[chance.choice(sorted(KEY_KINDS))],
            max_parallelism=chance.choice((4, 128)),
            clock=self.clock,
            job=storage.job("job"),
            declares_keys=chance.random() < 0.5,
        )
        self.keys = self.settings.key_kind.keys
        every = subjects_of([chance.choice(TTLS) for _ in range(SUBJECT_COUNT)])
        self.subjects = dict(chance.sample(sorted(every.items()), chance.randrange(2, 4)))
        self.config = CheckpointConfig(
            timeout=f"{_TIMEOUT_MS}ms",
            max_concurrent=chance.choice((1, 2, 3)),
            tolerable_failures=10**6,
            retained=chance.choice((1, 1, 2, 3)),
        )
        self.now_ms = 0
        """Of the coordinator; of state it is the clock's."""
        self.owner: JobOwner = self.settings.job.take_over()
        self.models: dict[int, Model] = {}
        """Of all checkpoints that began, by number."""
        self.lineage: set[int | None] = set()
        """The completed checkpoints whose files what begins now may refer to."""
        self.first_id = 0
        """Of this attempt's checkpoints, and of the files that are begun before them."""
        self.seats: list[Seat] = []
        self.dying: list[Seat] = []
        """Slots that were given up and have not noticed."""
        self._start(None, Model(self.subjects, START_MS), own=True)

    def run(self, steps: int) -> None:
        """Go through it, and look at what is left in the end."""
        for _ in range(steps):
            acts = self._acts()
            (act,) = self.chance.choices(list(acts), list(acts.values()))
            self._begin_files()
            act()
            self._check_retained()
        self._end()

    def _acts(self) -> dict[Callable[[], None], float]:
        """What can happen now, and how likely that is."""
        seats = self.seats
        return {
            self._change: 2.5,
            self._fire: 0.5 * self.has_timers,
            self._let_time_pass: 0.5,
            self._trigger: 4 * (len(self.coordinator.pending) < self.config.max_concurrent),
            self._send_barrier: 4 * any(seat.barriers for seat in seats),
            self._answer: 8 * any(seat.unanswered() for seat in seats),
            self._bring_news: 2 * any(seat.news for seat in seats),
            self._lose_news: 0.7 * any(seat.news for seat in seats),
            self._keep: 4 * bool(self.keeper),
            self._tell_coordinator: 4 * bool(self.stored),
            self._expire: 0.06 * bool(self.coordinator.pending),
            self._bury: 0.7 * bool(self.dying),
            self._look: 0.15 * bool(self.owner.completed),
            self._crash: 0.2,
        }

    def _start(self, number: int | None, model: Model, *, own: bool) -> None:
        """Begin an attempt, from a checkpoint if there is one, which is the job's `own` or not."""
        chance = self.chance
        self.settings = replace(self.settings, backend=self.backends[chance.random() < 0.85])
        job = self.settings.job
        operators = {} if number is None else job.load(number).operators
        parts = operators[UID].parts if operators else ()
        early = operators[_EARLY].parts if operators and own else ()
        parallelism = chance.randrange(1, 5)
        self.tally["rescaled"] += number is not None and len(parts) != parallelism
        self.fleet = Fleet(self.settings, self.subjects, parallelism, parts, builds_on_restored=own)
        self.model = model
        self.asked = chance.sample(
            sorted(self.subjects), chance.randrange(1, len(self.subjects) + 1)
        )
        self.has_timers = chance.random() < 0.5
        self.first_id = self.next_id
        self.seats = [
            Seat(slot, job, EarlyWriter(job, chance, self.first_id, early[place::parallelism]))
            for place, slot in enumerate(self.fleet.slots)
        ]
        self.coordinator = CheckpointCoordinator(
            self.config,
            slots=parallelism,
            sources=(),
            next_id=self.first_id,
            now_ms=self.now_ms,
            restored=number if own else None,
        )
        self.lineage = {number} if own else set()
        self.referred: set[str] = set()
        if number is not None and own:
            restored = self.settings.job.load(number)
            self.lineage |= set(map(names.writer_of, restored.files()))
            self.referred |= restored.files()
        self.keeper: deque[Callable[[], None]] = deque()
        self.stored: deque[int] = deque()
        self.newest = self.first_id - 1

    @property
    def next_id(self) -> int:
        """A number that no checkpoint has had, and for which no file was begun."""
        begun = max(self.first_id, max(self.models, default=0) + 1)
        return max(self.owner.next_checkpoint_id, begun + 1)

    def _begin_files(self) -> None:
        """Let some slots write something between snapshots."""
        for seat in self.seats:
            if self.chance.random() < 0.3:
                seat.early.act()

    def _change(self) -> None:
        """Call methods of a state."""
        self._send_all_barriers()
        subject = self.subjects[self.chance.choice(self.asked)]
        if not self.model.is_declared(subject.name):
            self.fleet.declare(subject.name)
            self.model.declare(subject.name)
        for _ in range(self.chance.randrange(1, 7)):
            action = action_of(subject, self.keys, self._picks())
            answer, expected = self.fleet.do(action), self.model.do(action)
            assert answer == comparable(action.verb, expected), action
        if self.has_timers and self.chance.random() < 0.3:
            timer = ModelTimer(
                self.chance.choice(("event", "processing")),
                self.chance.randrange(20),
                self.chance.choice(self.keys),
                self.chance.choice(TIMER_NAMESPACES),
            )
            self.fleet.load_timers()
            self.fleet.register(timer)
            self.model.register(timer)

    def _fire(self) -> None:
        """Let a watermark and the clock reach a moment."""
        self._send_all_barriers()
        self.fleet.load_timers()
        until, again = self.chance.randrange(12), self.chance.choice((0, 3))
        compare_fired(self.fleet, self.model, until=until, again=again)

    def _let_time_pass(self) -> None:
        """Move the clock of state."""
        self._send_all_barriers()
        self.clock.advance(self.chance.choice((1, 400, 1000)))
        self.model.advance(self.clock.now_ms())

    def _trigger(self) -> None:
        """Ask for a checkpoint."""
        self._carry_out(self.coordinator.request(self._now()))

    def _send_barrier(self) -> None:
        """Let a barrier reach some slots, before others."""
        waiting = [seat for seat in self.seats if seat.barriers]
        for seat in self.chance.sample(waiting, (len(waiting) + 1) // 2):
            self._take(seat)

    def _send_all_barriers(self) -> None:
        """All that is before a barrier is in its snapshot, and nothing that comes after it."""
        for seat in self.seats:
            while seat.barriers:
                self._take(seat)

    def _take(self, seat: Seat) -> None:
        number = seat.barriers[0].checkpoint_id
        seat.take(
            tells=self.rules.barriers_tell,
            compression=("", "lz4")[number % 2],
            form=SnapshotForm.NEUTRAL if self._is_neutral(number) else SnapshotForm.OWN,
            files_left=self.chance.randrange(3) if self.chance.random() < 0.05 else None,
        )

    def _answer(self) -> None:
        """Have some slots write a snapshot, and tell of it."""
        seats = [(slot, seat) for slot, seat in enumerate(self.seats) if seat.unanswered()]
        for slot, seat in self.chance.sample(seats, (len(seats) + 1) // 2):
            self._answer_of(slot, seat)

    def _answer_of(self, slot: int, seat: Seat) -> None:
        number = self.chance.choice(seat.unanswered()[:2])
        found = seat.answer(number)
        now_ms = self._now()
        if isinstance(found, str):
            commands = self.coordinator.declined(now_ms, number, slot=slot, reason=found)
        else:
            self._weigh(number, found)
            early = seat.early_parts[number]
            self.tally["begun long before"] += (early.begun_from or 0) < number
            parts = {UID: [found], _EARLY: [early]}
            commands = self.coordinator.acknowledged(
                now_ms, number, slot=slot, parts=parts, statistics=SlotStatistics()
            )
        self._carry_out(commands)

    def _bring_news(self) -> None:
        """Let a slot hear something, maybe an old story."""
        seat = self.chance.choice([seat for seat in self.seats if seat.news])
        seat.hear(self.chance.randrange(len(seat.news)))

    def _lose_news(self) -> None:
        """A slot never hears it."""
        seat = self.chance.choice([seat for seat in self.seats if seat.news])
        seat.news.pop(self.chance.randrange(len(seat.news)))
        self.tally["lost"] += 1

    def _keep(self) -> None:
        """The keeper does the next thing that it was told."""
        self.keeper.popleft()()

    def _tell_coordinator(self) -> None:
        """The coordinator hears of a commit."""
        self._carry_out(self.coordinator.stored(self._now(), self.stored.popleft()))

    def _expire(self) -> None:
        """All that is under way takes too long."""
        self.now_ms += _TIMEOUT_MS
        self._carry_out(self.coordinator.tick(self.now_ms))

    def _bury(self) -> None:
        """A slot that was given up has written what it had to write, and ends."""
        self.dying.pop().end(writes=True)

    def _crash(self) -> None:
        """The attempt ends, or the driver dies; what comes next goes on from a checkpoint."""
        chance = self.chance
        self.tally["crashed"] += 1
        settles = chance.random() < 0.5
        while settles and self.keeper:
            self.keeper.popleft()()
        self._leave_slots()
        restored = None
        if settles:
            restored = max(self.owner.completed, default=None)
        else:
            self.owner = self.settings.job.take_over()
            completed = self.owner.completed
            if completed:
                restored = chance.choice((completed[-1], chance.choice(completed)))
                self.tally["rewound"] += bool(self.owner.rewind(restored))
        self._retain(None)
        self._clean(self.next_id)
        if restored is None:
            self._start(None, Model(self.subjects, self.clock.now_ms()), own=True)
            return
        self.clock.advance(chance.choice((0, 0, 900)))
        model = self.models[restored].restored(self.subjects, self.clock.now_ms())
        self._start(restored, model, own=chance.random() < 0.9)

    def _leave_slots(self) -> None:
        """Some write on for a while, some end at once."""
        for seat in self.seats:
            if self.chance.random() < 0.3:
                self.dying.append(seat)
            else:
                seat.end(writes=self.chance.random() < 0.5)
        self.seats = []

    def _look(self) -> None:
        """Restore a retained checkpoint beside what is live, and compare all of it."""
        self._compare(self.chance.choice(self.owner.completed))

    def _compare(self, number: int) -> None:
        self.tally["compared"] += 1
        parts = self.settings.job.load(number).operators[UID].parts
        fleet = Fleet(self.settings, self.subjects, self.chance.choice((1, 1, 2, 3)), parts)
        model = self.models[number].restored(self.subjects, self.clock.now_ms())
        try:
            compare_states(fleet, model, self.subjects, self.keys)
            compare_fired(fleet, model, until=1_000)
        finally:
            fleet.close()

    def _carry_out(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, Begin):
                self._begin(command)
            elif isinstance(command, Store):
                self.keeper.append(partial(self._store, command))
            elif isinstance(command, Retain):
                self.keeper.append(partial(self._retain, command.since))
            elif isinstance(command, Notify):
                self._tell("complete", command.checkpoint_id)
            elif isinstance(command, Abort):
                self.tally[command.reason.value] += 1
                self._tell("aborted", command.checkpoint_id)
            else:
                raise AssertionError(command)

    def _begin(self, begun: Begin) -> None:
        number = begun.checkpoint_id
        self._send_all_barriers()  # the model is what it is at the newest one
        is_own = self.settings.backend.capabilities.own_snapshots
        self.models[number] = self.model.snapshot(cleans=not is_own or self._is_neutral(number))
        for seat in self.seats:
            seat.barriers.append(begun)

    def _is_neutral(self, number: int) -> bool:
        return number % 11 == 10

    def _tell(self, word: str, number: int) -> None:
        for seat in self.seats:
            seat.news.append((word, number))

    def _store(self, command: Store) -> None:
        """As the driver's keeper does: commit, tell, clean."""
        number = command.checkpoint_id
        operators = {
            uid: OperatorState(
                parallelism=len(self.seats),
                max_parallelism=self.settings.max_parallelism,
                parts=tuple(parts),
            )
            for uid, parts in command.operators.items()
        }
        metadata = CheckpointMetadata(
            job_id="job",
            checkpoint_id=number,
            triggered_ms=command.triggered_ms,
            completed_ms=self.now_ms,
            operators=operators,
        )
        files: set[str] = set().union(*(part.files() for part in operators[UID].parts))
        foreign = set(map(names.writer_of, files)) - self.lineage - {number}
        assert not foreign, f"checkpoint {number} refers to files of {foreign}, not completed"
        self.owner.commit(metadata)
        earlier = {name for name in metadata.files() - files if names.writer_of(name) != number}
        self.tally["begun before"] += not earlier <= self.referred
        self.referred |= metadata.files()
        self.lineage.add(number)
        self.tally["completed"] += 1
        self.stored.append(number)
        before, self.newest = self.newest, number
        if self.chance.random() < 0.5:
            begun_from = metadata.begun_from if self.rules.spares_begun else None
            self._clean(min(before, open_from(number, begun_from)))

    def _retain(self, since: int | None) -> None:
        kept = since if self.rules.retains_since else None
        self.tally["dropped"] += len(retain(self.owner, self.config.retained, since=kept))

    def _clean(self, first: int) -> None:
        """Delete what is not needed, but nothing of the checkpoints from this number on."""
        if not self.rules.spares_under_way:
            first = _ABOVE_ALL
        orphans = self.owner.orphans(in_flight=range(first, _ABOVE_ALL))
        self.tally["orphans"] += len(orphans)
        remove(self.owner, orphans)

    def _weigh(self, number: int, part: StateSnapshot) -> None:
        if part.kind == FILES_KIND:
            self.tally["native"] += 1
            self.tally["building"] += part.written_bytes(number) < part.size_bytes
        else:
            self.tally["neutral"] += 1

    def _check_retained(self) -> None:
        """Every file of every retained checkpoint is there, and is what was written."""
        job = self.settings.job
        for number in self.owner.completed:
            operators = job.load(number).operators
            for part in operators[UID].parts:
                for piece in job.read_all(part.handles.values()):
                    self.tally["read"] += len(piece)
            for part in operators[_EARLY].parts:
                check_early(job, part)

    def _end(self) -> None:
        """What is left in the end is what is needed, and then nothing."""
        self._leave_slots()
        while self.dying:
            self._bury()
        assert _files_below(self.state_folder) == []
        self.owner = self.settings.job.take_over()
        self._retain(None)
        retain(self.owner, 1)
        self._clean(self.next_id)
        needed: set[str] = set()
        for number in self.owner.completed:
            needed |= self.settings.job.load(number).files() | {names.metadata(number)}
            self._compare(number)
        assert self._stored_files() == needed
        clear(self.owner)
        assert self._stored_files() == set()

    def _stored_files(self) -> set[str]:
        """All files in the job's folder but the records of owners, of whatever name."""
        found = _files_below(self.job_folder)
        return {name for name in found if not name.startswith(names.OWNERS_PREFIX)}

    def _now(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def _picks(self) -> Picks:
        chance = self.chance
        return Picks(
            verb=chance.randrange(12),
            key=chance.randrange(8),
            namespace=chance.randrange(3),
            more=tuple(chance.randrange(24) for _ in range(chance.randrange(1, 5))),
            as_column=chance.random() < 0.5,
        )


def _files_below(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
