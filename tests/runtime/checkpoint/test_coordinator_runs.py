"""Whole runs of the coordinator keep the rules; and the runs would notice if they did not."""

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.runtime.checkpoint.commands import (
    AbortReason,
    Begin,
    Command,
    FailJob,
    Notify,
    Retain,
    Store,
)
from holdfast.runtime.checkpoint.coordinator import CheckpointCoordinator
from holdfast.runtime.checkpoint.pending_checkpoint import PendingCheckpoint
from holdfast.runtime.checkpoint.savepoint_orders import SavepointRequest
from support.simulations.coordinator_runs import CoordinatorRun


def test_the_rules_hold_in_any_run() -> None:
    for seed in range(150):
        CoordinatorRun(seed).play().settle()


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_the_rules_hold_in_any_run_all_night() -> None:
    for seed in range(1_000, 200_000):
        CoordinatorRun(seed).play(1_000).settle()


def test_a_seed_gives_the_same_trace() -> None:
    for seed in range(10):
        assert CoordinatorRun(seed).play().trace == CoordinatorRun(seed).play().trace


def test_the_runs_come_by_all_that_can_happen() -> None:
    kinds: set[Any] = set()
    for seed in range(150):
        run = CoordinatorRun(seed).play()
        for _, commands in run.trace:
            kinds.update(type(command) for command in commands)
            kinds.update(getattr(command, "reason", None) for command in commands)
            kinds.update(getattr(command, "trigger", None) for command in commands)
        kinds.add("finished" if run.watch.is_finished else "not finished")
    assert kinds >= {FailJob, Notify, Retain, Store, Begin, "finished"}
    assert kinds >= set(AbortReason)


class Hasty(CheckpointCoordinator):
    """Does not wait for the last slot."""

    def _begin(self, *what: Any) -> Begin:
        begun = super()._begin(*what)
        waited = PendingCheckpoint(begun, slots=self._slots - 1, sources=self._sources)
        self._pending[begun.checkpoint_id] = waited
        return begun


class Crowded(CheckpointCoordinator):
    """Forgets how many may be under way."""

    @property
    def _has_room(self) -> bool:
        return True


class Patient(CheckpointCoordinator):
    """Lets nothing expire."""

    def tick(self, now_ms: int) -> Sequence[Command]:
        self._pass_time(now_ms)
        return self._proceed([])


class Unforgiving(CheckpointCoordinator):
    """Counts failures that do not follow each other."""

    def stored(self, now_ms: int, checkpoint_id: int) -> Sequence[Command]:
        failures = self._failures
        commands = super().stored(now_ms, checkpoint_id)
        self._failures = failures
        return commands


class Careless(CheckpointCoordinator):
    """Gives up what may be complete already."""

    def _may_abort(self, pending: PendingCheckpoint) -> bool:
        return pending.checkpoint_id in self._pending


class Undead(CheckpointCoordinator):
    """Goes on after the end."""

    def _shut_down(self, detail: str) -> list[Command]:
        commands = super()._shut_down(detail)
        self._is_shut_down = False
        return commands


class Forgetful(CheckpointCoordinator):
    """Drops requests that cannot be met at once."""

    def request(self, now_ms: int) -> Sequence[Command]:
        return super().request(now_ms) if self._has_room else self.tick(now_ms)


class Lenient(CheckpointCoordinator):
    """Never fails the job."""

    def _abort(self, *aborted: Any) -> list[Command]:
        self._failures = 0
        return super()._abort(*aborted)[:1]


class Thrifty(CheckpointCoordinator):
    """Keeps nothing for those under way."""

    def _needed_since(self, completed: int) -> int:
        return completed


class Late(CheckpointCoordinator):
    """Believes that what began when nothing was complete builds on nothing."""

    def _needed_since(self, completed: int) -> int:
        begun = (pending.begun for pending in self._pending.values())
        bases = (each.base for each in begun if each.savepoint is None)
        return min((base for base in bases if base is not None), default=completed)


class Hoarding(CheckpointCoordinator):
    """Keeps all for ever."""

    def _needed_since(self, _completed: int) -> int:
        return 0


class Rash(CheckpointCoordinator):
    """Builds on what is not complete yet."""

    def _begin(self, *what: Any) -> Begin:
        self._completed = max(self._pending, default=self._completed)
        return super()._begin(*what)


class Confused(CheckpointCoordinator):
    """Builds on savepoints."""

    def stored(self, now_ms: int, checkpoint_id: int) -> Sequence[Command]:
        commands = super().stored(now_ms, checkpoint_id)
        self._completed = checkpoint_id
        return commands


class Restless(CheckpointCoordinator):
    """Begins checkpoints behind a savepoint that is to be the last."""

    def request_savepoint(self, now_ms: int, request: SavepointRequest) -> Sequence[Command]:
        commands = super().request_savepoint(now_ms, request)
        self._schedule.resume(now_ms)
        return commands


class Offended(CheckpointCoordinator):
    """Fails the job because of savepoints."""

    def _abort(self, pending: PendingCheckpoint, *why: Any) -> list[Command]:
        self._failures += pending.begun.savepoint is not None
        return super()._abort(pending, *why)


class Sulking(CheckpointCoordinator):
    """Begins none again after a savepoint that was to be the last, and has failed."""

    def _give_up_request(self, request: SavepointRequest, why: str) -> list[Command]:
        commands = super()._give_up_request(request, why)
        self._schedule.suspend()
        return commands


BROKEN: Sequence[Any] = (
    (Hasty, "stores what is not whole"),
    (Crowded, "too many at once"),
    (Patient, "did not expire"),
    (Unforgiving, "fails without reason"),
    (Careless, "aborts what may be complete"),
    (Undead, "after the end"),
    (Forgetful, "a request was forgotten"),
    (Lenient, "the job goes on"),
    (Thrifty, "which is deleted"),
    (Late, "which is deleted"),
    (Hoarding, "keeps an unneeded checkpoint"),
    (Rash, "does not build on the newest"),
    (Confused, "does not build on the newest"),
    (Restless, "begins though a savepoint is to be the last|too early"),
    (Offended, "fails without reason"),
    (Sulking, "did not begin|a request was forgotten"),
)


FOUND_BY = {Forgetful: 73, Late: 1_510, Offended: 31}
"""The first run that finds each; the others are found at once. Name others if the house changes."""


@pytest.mark.parametrize(("kind", "found"), BROKEN)
def test_the_runs_find_what_is_broken(kind: type[CheckpointCoordinator], found: str) -> None:
    first = FOUND_BY.get(kind, 0)
    with pytest.raises(AssertionError, match=found):
        for seed in range(first, first + 3_000):
            CoordinatorRun(seed, kind).play().settle()
