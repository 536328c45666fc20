"""A state machine for Hypothesis: a whole state backend against a model of plain dicts.

    class MyMachine(StateBackendMachine):
        def open_backend(self):
            return MyStateBackend()

    TestMyMachine = MyMachine.TestCase

Keys of a type, slots and times to live are chosen for each run; its steps change state of every
kind, begin, complete and cancel snapshots, crash, restore and rescale the operator, let time pass
and fire timers. Needs Hypothesis, which nothing else of the house does.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from abc import abstractmethod
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.backends.interface import StateBackend
from holdfast.backends.snapshots.neutral import SnapshotForm, SnapshotFuture
from holdfast.backends.testing.gates import Gate
from holdfast.backends.testing.model.comparing import (
    DOMAINS,
    compare_fired,
    compare_moments,
    compare_reading,
    compare_states,
)
from holdfast.backends.testing.model.fleet import UID, Fleet, Settings, comparable
from holdfast.backends.testing.model.model import Model, ModelTimer
from holdfast.backends.testing.model.subjects import (
    KEY_KINDS,
    SUBJECT_COUNT,
    TIMER_NAMESPACES,
    TTLS,
    Picks,
    Subject,
    action_of,
    reading_of,
    subjects_of,
)
from holdfast.storage import (
    CheckpointMetadata,
    CheckpointStorage,
    JobOwner,
    ManualClock,
    OperatorState,
    StateSnapshot,
    load_storage,
)

__all__ = ["StateBackendMachine"]

_RETAINED = 3
_IN_FLIGHT = 3
_START_MS = 1_000_000
_ALWAYS_MS = 1_000_000
_NUMBERS = st.integers(0, 23)
_PICKS = st.builds(
    Picks,
    verb=st.integers(0, 11),
    key=st.integers(0, 7),
    namespace=st.integers(0, 2),
    more=st.lists(_NUMBERS, min_size=1, max_size=4).map(tuple),
    as_column=st.booleans(),
)
_MANY_PICKS = st.lists(_PICKS, min_size=1, max_size=3)
_VARIANTS = st.integers(0, 2)
_PARALLELISM = st.integers(1, 3)
_PAUSES = st.sampled_from((0, 400, 1000, 2000))
_SOME_TTLS = st.lists(st.sampled_from(TTLS), min_size=SUBJECT_COUNT, max_size=SUBJECT_COUNT)
_TIMERS = st.tuples(
    st.sampled_from(DOMAINS),
    st.integers(-3, 20),
    st.integers(0, 7),
    st.sampled_from(TIMER_NAMESPACES),
)


@dataclass(slots=True)
class _Flight:
    """A snapshot on its way, and what it must hold."""

    number: int
    gate: Gate
    futures: list[SnapshotFuture]
    model: Model
    base: int | None
    was_cancelled: bool = False


def _using(kind: str) -> Any:
    """A rule that calls methods of a state of this kind."""

    def use(self: StateBackendMachine, *, variant: int, many: list[Picks]) -> None:
        of_kind = [subject for subject in self.subjects.values() if subject.kind == kind]
        for picks in many:
            self._do(of_kind[variant % len(of_kind)], picks)

    use.__name__ = f"use_{kind}"
    return rule(variant=_VARIANTS, many=_MANY_PICKS)(use)


class StateBackendMachine(RuleBasedStateMachine):
    """Tries a state backend; a plug-in's author says which."""

    fleet: Fleet

    @abstractmethod
    def open_backend(self) -> StateBackend:
        """The backend that is tried."""

    def open_storage(self, folder: str, inline_limit_bytes: int) -> CheckpointStorage:
        """Where its snapshots go. The folder is empty, and deleted after the run."""
        return load_storage(folder, inline_limit_bytes=inline_limit_bytes)

    @initialize(
        key_kind=st.sampled_from(sorted(KEY_KINDS)),
        max_parallelism=st.sampled_from((4, 128)),
        parallelism=_PARALLELISM,
        ttls=_SOME_TTLS,
        declares_keys=st.booleans(),
        inline_limit_bytes=st.sampled_from((0, 20_000)),
        keeps_ttls=st.booleans(),
    )
    def start(
        self,
        *,
        key_kind: str,
        max_parallelism: int,
        parallelism: int,
        ttls: list[Any],
        declares_keys: bool,
        inline_limit_bytes: int,
        keeps_ttls: bool,
    ) -> None:
        """Start the operator with nothing in it."""
        self.folder = tempfile.mkdtemp(prefix="holdfast-machine-")
        self.clock = ManualClock(_START_MS)
        self.keys = KEY_KINDS[key_kind].keys
        self.settings = Settings(
            backend=self.open_backend(),
            key_kind=KEY_KINDS[key_kind],
            max_parallelism=max_parallelism,
            clock=self.clock,
            job=self.open_storage(self.folder, inline_limit_bytes).job("job"),
            declares_keys=declares_keys,
        )
        # What is past its time may be swept away or not. No state shows which, but a snapshot of
        # a backend's own form keeps what is there, and with another time to live that may be seen.
        self.keeps_ttls = keeps_ttls and self.settings.backend.capabilities.own_snapshots
        self.subjects = subjects_of(self._ttls(ttls))
        self.model = Model(self.subjects, _START_MS)
        self.fleet = Fleet(self.settings, self.subjects, parallelism, first_checkpoint_id=1)
        self.has_timers = False
        self.owner: JobOwner = self.settings.job.take_over()
        self.flights: list[_Flight] = []
        self.completed: dict[int, Model] = {}
        self.base: int | None = None
        """The newest completed checkpoint, or the one that was restored since."""
        self.next_number = 1

    # A rule for each kind, so that Hypothesis draws all kinds alike and shows which one it used.
    use_values = _using("value")
    use_lists = _using("list")
    use_maps = _using("map")
    use_reducing = _using("reducing")
    use_aggregating = _using("aggregating")

    @rule(picks=_PICKS, stride=st.sampled_from((1, 4)))
    def act_on_all(self, *, picks: Picks, stride: int) -> None:
        """Call methods of many states under one key."""
        for subject in list(self.subjects.values())[picks.verb % stride :: stride]:
            self._do(subject, picks)

    @rule(variant=st.integers(0, SUBJECT_COUNT - 1), namespace=st.integers(0, 2), kept=_PICKS)
    def apply_to_all_keys(self, *, variant: int, namespace: int, kept: Picks) -> None:
        """Clear a state under some keys and read it under the others, from within a walk."""
        subject = list(self.subjects.values())[variant]
        space = subject.namespaces[namespace % len(subject.namespaces)]
        self._declare(subject.name)
        cleared = {self.keys[number % len(self.keys)] for number in kept.more}
        verb = reading_of(subject, None, space).verb
        must, may = self.model.keys(subject.name, space)
        seen = []

        def visit(key: Any, state: Any) -> None:
            expected = self.model.do(reading_of(subject, key, space))
            assert comparable(verb, getattr(state, verb)()) == expected
            if key in cleared:
                state.clear()
                self.model.do(reading_of(subject, key, space).clearing())
            seen.append(key)

        self.fleet.apply_to_all_keys(subject.name, space, visit)
        assert len(seen) == len(set(seen))
        assert must <= set(seen) <= may

    @rule(milliseconds=st.sampled_from((1, 400, 999, 1000, 5000)))
    def let_time_pass(self, milliseconds: int) -> None:
        """Move the clock."""
        self.clock.advance(milliseconds)
        self.model.advance(self.clock.now_ms())

    @rule(
        gated=st.booleans(),
        compression=st.sampled_from(("", "lz4")),
        form=st.sampled_from((SnapshotForm.OWN, SnapshotForm.OWN, *SnapshotForm)),
    )
    @precondition(lambda self: len(self.flights) < _IN_FLIGHT)
    def begin_snapshot(self, *, gated: bool, compression: str, form: SnapshotForm) -> None:
        """Begin a snapshot; while its gate is shut, nothing of it is written."""
        gate = Gate(self.settings.job)
        if not gated:
            gate.open.set()
        if self.base is not None:  # as barriers tell it
            self.fleet.completed(self.base)
        futures = self.fleet.begin(self.next_number, gate, compression=compression, form=form)
        cleans = (
            form is not SnapshotForm.OWN or not self.settings.backend.capabilities.own_snapshots
        )
        snapshot = self.model.snapshot(cleans=cleans)
        self.flights.append(_Flight(self.next_number, gate, futures, snapshot, self.base))
        self.next_number += 1

    @rule(milliseconds=st.sampled_from((0, 400, 5000)))
    def tend(self, *, milliseconds: int) -> None:
        """Let slots do what is due between two checkpoints."""
        self.let_time_pass(milliseconds)
        self.fleet.tend()

    @rule(pick=_NUMBERS, tells=st.booleans())
    @precondition(lambda self: self.flights)
    def complete_snapshots(self, *, pick: int, tells: bool) -> None:
        """Wait for a snapshot and those before it, and commit them; the slots may learn it late."""
        for _ in range(pick % len(self.flights) + 1):
            self._complete(self.flights.pop(0), tells=tells)

    @rule(pick=_NUMBERS)
    @precondition(lambda self: self.flights)
    def cancel_snapshot(self, pick: int) -> None:
        """Give a snapshot up; some slots may have written their part."""
        flight = self.flights[pick % len(self.flights)]
        for future in flight.futures[pick % 2 :]:
            future.cancel()
        flight.was_cancelled = True

    @rule(pick=_NUMBERS, parallelism=_PARALLELISM, ttls=st.none() | _SOME_TTLS, later_ms=_PAUSES)
    @precondition(lambda self: self.completed)
    def crash(self, *, pick: int, parallelism: int, ttls: list[Any] | None, later_ms: int) -> None:
        """Drop what is live, and restore a retained checkpoint some time later."""
        self._drop()
        self.let_time_pass(later_ms)
        self.owner = self.settings.job.take_over()
        number = sorted(self.completed)[pick % len(self.completed)]
        self._restore(number, parallelism, ttls)

    @rule(
        parallelism=_PARALLELISM,
        ttls=st.none() | _SOME_TTLS,
        earlier_ms=_PAUSES,
        later_ms=_PAUSES,
        reads=st.booleans(),
    )
    def rescale(
        self,
        *,
        parallelism: int,
        ttls: list[Any] | None,
        earlier_ms: int,
        later_ms: int,
        reads: bool,
    ) -> None:
        """Stop with a snapshot, and go on at another number of slots some time later."""
        while self.flights:
            self._complete(self.flights.pop(0))
        self.let_time_pass(earlier_ms)
        self.begin_snapshot(gated=False, compression="", form=SnapshotForm.OWN)
        number = self.flights[0].number
        self._complete(self.flights.pop(0))
        self._drop()
        self.let_time_pass(later_ms)
        self._restore(number, parallelism, ttls)
        if reads:
            self.read_everything()

    @rule(pick=_NUMBERS, parallelism=_PARALLELISM)
    @precondition(lambda self: self.completed)
    def look_at_snapshot(self, *, pick: int, parallelism: int) -> None:
        """Restore a checkpoint beside what is live, and compare all of it."""
        number = sorted(self.completed)[pick % len(self.completed)]
        self._look(number, parallelism)

    @rule(timer=_TIMERS, also=_TIMERS)
    def register_timers(self, *, timer: Any, also: Any) -> None:
        """Register two timers, which may be one."""
        self._load_timers()
        for each in (timer, also):
            self.fleet.register(self._timer(*each))
            self.model.register(self._timer(*each))

    @rule(timer=_TIMERS, pick=_NUMBERS)
    def delete_timer(self, *, timer: Any, pick: int) -> None:
        """Take back one that is registered, or one that may not be."""
        self._load_timers()
        registered = sorted(self.model.timers(timer[0]), key=repr)
        chosen = registered[pick % len(registered)] if registered else self._timer(*timer)
        for each in (chosen, self._timer(*timer)):
            self.fleet.delete(each)
            self.model.delete(each)

    @rule(until=st.integers(-3, 20), again=st.sampled_from((0, 0, 1, 3)))
    def fire_timers(self, *, until: int, again: int) -> None:
        """Let a watermark and the clock reach a moment."""
        self._load_timers()
        compare_fired(self.fleet, self.model, until=until, again=again)

    @rule()
    def read_everything(self) -> None:
        """Compare all state with the model; declares states that were not declared yet."""
        compare_states(self.fleet, self.model, self.subjects, self.keys)
        self._load_timers()
        compare_moments(self.fleet, self.model)

    @invariant()
    def agrees(self) -> None:
        """Scans show the right keys; what does not change by being read is the same."""
        if not hasattr(self, "fleet"):
            return
        for name, subject in self.subjects.items():
            if not self.model.is_declared(name):
                continue
            for namespace in subject.namespaces:
                found = self.fleet.keys(name, namespace)
                must, may = self.model.keys(name, namespace)
                assert len(found) == len(set(found)), f"a scan of {name} shows a key twice"
                assert must <= set(found) <= may, f"a scan of {name} shows {found}"
                if subject.ttl is None:
                    for key in found:
                        compare_reading(
                            self.fleet, self.model, subject, key=key, namespace=namespace
                        )
        if self.has_timers:
            compare_moments(self.fleet, self.model)

    def teardown(self) -> None:
        """Look at everything once more, and clean up."""
        if not hasattr(self, "fleet"):
            return
        try:
            if sys.exception() is None:  # what a step has found must not be hidden
                self.read_everything()
                for flight in self.flights:
                    self._complete(flight)
                for number in self.completed:
                    self._look(number, parallelism=2)
        finally:
            self._drop()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _do(self, subject: Subject, picks: Picks) -> None:
        self._declare(subject.name)
        action = action_of(subject, self.keys, picks)
        note(str(action))
        answer, expected = self.fleet.do(action), self.model.do(action)
        assert answer == comparable(action.verb, expected), action

    def _declare(self, name: str) -> None:
        if not self.model.is_declared(name):
            self.fleet.declare(name)
            self.model.declare(name)

    def _timer(self, domain: str, timestamp: int, key: int, namespace: str) -> ModelTimer:
        return ModelTimer(domain, timestamp, self.keys[key], namespace)

    def _load_timers(self) -> None:
        self.fleet.load_timers()
        self.has_timers = True

    def _complete(self, flight: _Flight, *, tells: bool = True) -> None:
        for each in (flight, *self.flights):
            if each.number <= flight.number:
                each.gate.open.set()
        parts = []
        for future in flight.futures:
            try:
                parts.append(future.result(60))
            except CancelledError:
                assert flight.was_cancelled
        if flight.was_cancelled:
            self.fleet.aborted(flight.number)
            return
        self._commit(flight, parts)
        if tells:
            self.fleet.completed(flight.number)

    def _commit(self, flight: _Flight, parts: list[StateSnapshot]) -> None:
        state = OperatorState(
            parallelism=len(parts),
            max_parallelism=self.settings.max_parallelism,
            parts=tuple(parts),
        )
        self.owner.commit(
            CheckpointMetadata(
                job_id=self.settings.job.job_id,
                checkpoint_id=flight.number,
                triggered_ms=self.clock.now_ms(),
                completed_ms=self.clock.now_ms(),
                operators={UID: state},
            )
        )
        self.base = flight.number
        self.completed[flight.number] = flight.model
        bases = [each.base for each in self.flights if each.base is not None]
        self.owner.release(_RETAINED, since=min(bases, default=None))
        self.owner.sweeper.run()
        kept = self.owner.completed
        self.completed = {n: model for n, model in self.completed.items() if n in kept}

    def _drop(self) -> None:
        for flight in self.flights:
            flight.gate.open.set()
        self.flights = []
        self.fleet.close()

    def _restore(self, number: int, parallelism: int, ttls: list[Any] | None) -> None:
        if ttls is not None and not self.keeps_ttls:
            self.subjects = subjects_of(self._ttls(ttls))
        parts = self.settings.job.load(number).operators[UID].parts
        self.fleet = Fleet(
            self.settings,
            self.subjects,
            parallelism,
            parts,
            builds_on_restored=True,
            first_checkpoint_id=self.next_number,
        )
        self.base = number
        self.model = self.completed[number].restored(self.subjects, self.clock.now_ms())
        self.has_timers = False

    def _ttls(self, ttls: list[Any]) -> list[Any]:
        """Those that leave nothing open, with snapshots as the backend has them.

        Those of its own form may drop what is past its time, or keep it.
        """
        if not self.settings.backend.capabilities.own_snapshots:
            return ttls
        ttls = [ttl and replace(ttl, cleanup_in_snapshot=False) for ttl in ttls]
        if self.keeps_ttls:
            return ttls
        return [ttl and replace(ttl, cleanup_entries=0) for ttl in ttls]

    def _look(self, number: int, parallelism: int) -> None:
        parts = self.settings.job.load(number).operators[UID].parts
        fleet = Fleet(self.settings, self.subjects, parallelism, parts)
        model = self.completed[number].restored(self.subjects, self.clock.now_ms())
        try:
            compare_states(fleet, model, self.subjects, self.keys)
            compare_fired(fleet, model, until=_ALWAYS_MS)
        finally:
            fleet.close()
