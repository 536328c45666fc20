"""What every two-phase-commit sink owes, as clauses that a test class of each sink inherits."""

from __future__ import annotations

import pickle
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.runtime.sinks import TwoPhaseCommitSink
from holdfast.runtime.sinks.testing.sink_jobs import (
    CRASHES,
    SCHEMA,
    UID,
    Attempt,
    Begun,
    Driver,
    Step,
    rows,
)
from holdfast.storage import HoldfastError, JobStorage, ManualClock, Unavailable, load_storage

__all__ = ["SinkConformance", "Stage", "Story"]


class Stage(ABC):
    """A sink, its place, and a job that writes to it."""

    def __init__(self) -> None:
        self.job: JobStorage = load_storage("memory://").job("job")
        self.driver = Driver()
        self.attempts: list[Attempt] = []

    @abstractmethod
    def sink(self) -> TwoPhaseCommitSink[Any]:
        """A new sink object for the place."""

    @abstractmethod
    def seen(self) -> list[int]:
        """The numbers of all rows that readers see, ascending."""

    @abstractmethod
    def hidden(self) -> list[str]:
        """What is at the place and not seen."""

    def attempt(self, parallelism: int = 1, **options: Any) -> Attempt:
        """The job begins anew, from its latest checkpoint, with a sink that was sent to it."""
        sink = pickle.loads(pickle.dumps(self.sink()))
        self.attempts.append(
            Attempt(sink, self.job, parallelism=parallelism, driver=self.driver, **options)
        )
        return self.attempts[-1]


class _FlakySink(TwoPhaseCommitSink[Any]):
    """A sink whose commits fail some times, before or after they took effect."""

    def __init__(self, inner: TwoPhaseCommitSink[Any], failures: int, *, late: bool) -> None:
        self.inner = inner
        self.committable_type = inner.committable_type
        self.failures = failures
        self.late = late

    def check(self, schema: Any) -> None:
        self.inner.check(schema)

    def open_writer(self, context: Any) -> Any:
        return self.inner.open_writer(context)

    def commit(self, committables: Any, context: Any) -> None:
        if self.failures and not self.late:
            self._fail()
        self.inner.commit(committables, context)
        if self.failures:
            self._fail()

    def clean(self, keep: Any, context: Any) -> None:
        self.inner.clean(keep, context)

    def _fail(self) -> None:
        self.failures -= 1
        raise Unavailable("the place is asleep", where="bed", found="snoring")


class SinkConformance:
    """Subclass it, with a fixture `stage`."""

    @pytest.fixture(autouse=True)
    def _closing(self, stage: Stage) -> Iterator[None]:
        """What crashes is dropped in a test, and closed only after it."""
        yield
        for attempt in stage.attempts:
            attempt.close()

    def test_rows_are_seen_when_their_checkpoint_is_complete_and_not_before(
        self, stage: Stage
    ) -> None:
        attempt = stage.attempt(2).open()
        attempt.feed(10)
        assert stage.seen() == []
        begun = attempt.prepare()
        assert stage.seen() == []
        attempt.snapshot(begun)
        attempt.feed(5)
        attempt.commit(begun)
        assert stage.seen() == []
        attempt.notify(begun.checkpoint_id)
        assert stage.seen() == list(range(10))
        attempt.finish()
        assert stage.seen() == list(range(15))
        assert stage.hidden() == []

    def test_a_checkpoint_without_rows_lists_nothing(self, stage: Stage) -> None:
        attempt = stage.attempt().open()
        attempt.checkpoint()
        attempt.slots[0].process(rows(0, 0), 0)
        attempt.checkpoint()
        assert stage.seen() == []
        assert stage.hidden() == []
        attempt.finish()

    def test_a_notification_that_was_skipped_is_made_up_for(self, stage: Stage) -> None:
        attempt = stage.attempt(2).open()
        attempt.feed(3)
        attempt.commit(attempt.begin())
        attempt.feed(3)
        second = attempt.begin()
        attempt.feed(3)
        third = attempt.begin()
        attempt.commit(second)
        attempt.notify(second.checkpoint_id)
        assert stage.seen() == list(range(6))
        attempt.notify(second.checkpoint_id)
        attempt.commit(third)
        attempt.notify(third.checkpoint_id)
        attempt.notify(second.checkpoint_id)
        assert stage.seen() == list(range(9))
        attempt.close()

    def test_rows_of_an_aborted_checkpoint_come_with_the_next(self, stage: Stage) -> None:
        attempt = stage.attempt().open()
        attempt.feed(3)
        begun = attempt.begin()
        attempt.slots[0].aborted(begun.checkpoint_id)
        attempt.feed(3)
        assert stage.seen() == []
        attempt.commit(attempt.begin())
        attempt.close()
        stage.attempt().open().close()
        assert stage.seen() == list(range(6))
        assert stage.hidden() == []

    @pytest.mark.parametrize("crash", CRASHES)
    @pytest.mark.parametrize("parallelism", [1, 3])
    def test_a_crash_loses_nothing_and_shows_nothing_twice(
        self, stage: Stage, crash: Step, parallelism: int
    ) -> None:
        first = stage.attempt(2).open()
        first.feed(5)
        first.checkpoint()
        crash(first)
        second = stage.attempt(parallelism).open()
        assert stage.seen() == list(range(second.position))
        assert stage.hidden() == []
        second.feed(4)
        second.checkpoint()
        assert stage.seen() == list(range(second.position))
        crash(second)
        third = stage.attempt(2).open()
        third.feed(1)
        third.finish()
        assert stage.seen() == list(range(third.position))
        assert stage.hidden() == []

    @pytest.mark.parametrize("crash", CRASHES)
    def test_a_restart_that_crashes_is_restarted(self, stage: Stage, crash: Step) -> None:
        first = stage.attempt(3).open()
        crash(first)
        for slots in (1, 2):
            half = stage.attempt(3)
            for _ in range(slots):
                half.open_one()
        last = stage.attempt(3).open()
        assert stage.seen() == list(range(last.position))
        assert stage.hidden() == []

    def test_a_commit_may_be_repeated_by_any_process(self, stage: Stage) -> None:
        attempt = stage.attempt(2).open()
        attempt.feed(6)
        begun = attempt.begin()
        attempt.commit(begun)
        pending = [list(slot._pending) for slot in attempt.slots]
        contexts = [slot._context for slot in attempt.slots]
        attempt.notify(begun.checkpoint_id)
        for each, context in zip(pending, contexts, strict=True):
            for _ in range(2):
                stage.sink().commit([committable for _, committable in each], context)
        assert stage.seen() == list(range(6))
        assert stage.hidden() == []

    def test_an_old_attempt_that_commits_late_changes_nothing(self, stage: Stage) -> None:
        old = stage.attempt(2).open()
        old.feed(6)
        begun = old.begin()
        old.commit(begun)
        new = stage.attempt(2)
        new.open_one()
        old.slots[1].completed(begun.checkpoint_id)
        new.open_one()
        old.notify(begun.checkpoint_id)
        assert stage.seen() == list(range(6))
        new.feed(2)
        new.finish()
        assert stage.seen() == list(range(8))
        assert stage.hidden() == []

    def test_an_old_attempt_that_still_writes_is_not_seen(self, stage: Stage) -> None:
        old = stage.attempt().open()
        old.feed(3)
        old.checkpoint()
        new = stage.attempt().open()
        old.feed(4)
        old.begin()
        new.feed(2)
        new.checkpoint()
        assert stage.seen() == list(range(5))
        old.close()
        last = stage.attempt().open()
        assert stage.hidden() == []
        last.close()
        assert stage.seen() == list(range(5))

    def test_an_old_attempt_that_cleans_late_spares_what_newer_ones_wrote(
        self, stage: Stage
    ) -> None:
        old = stage.attempt()
        owner = stage.job.take_over()
        newer = stage.attempt(number=0, owner=owner).open()
        newest = stage.attempt(number=1, owner=owner).open()
        newest.feed(4)
        begun = newest.begin()
        newest.feed(2)
        for late in (old, newer):
            newest.slots[0]._spec.build().open(late.context(0))
        newest.commit(begun)
        newest.notify(begun.checkpoint_id)
        newest.finish()
        assert stage.seen() == list(range(6))

    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_a_commit_is_tried_again_with_growing_pauses(self, stage: Stage, moment: str) -> None:
        clock = ManualClock()
        sink = _FlakySink(stage.sink(), 10, late=moment == "after")
        attempt = Attempt(sink, stage.job, driver=stage.driver, clock=clock).open()
        attempt.feed(3)
        attempt.checkpoint()
        assert stage.seen() == list(range(3))
        assert clock.now_ms() == 26_300

    def test_a_commit_that_fails_for_long_fails_the_attempt_and_can_be_restored(
        self, stage: Stage
    ) -> None:
        sink = _FlakySink(stage.sink(), 11, late=False)
        attempt = Attempt(sink, stage.job, driver=stage.driver).open()
        attempt.feed(3)
        with pytest.raises(Unavailable) as caught:
            attempt.checkpoint()
        assert caught.value.what == f"cannot commit to sink {UID!r} after 10 retries"
        assert caught.value.where == "bed"
        assert caught.value.found == "the place is asleep: snoring"
        attempt.close()
        stage.attempt().open()
        assert stage.seen() == list(range(3))

    def test_the_schema_is_accepted(self, stage: Stage) -> None:
        stage.sink().check(SCHEMA)
        assert stage.seen() == []
        assert stage.hidden() == []

    @pytest.mark.parametrize("seed", range(12))
    def test_any_interleaving_gives_the_same_rows(self, stage: Stage, seed: int) -> None:
        story = Story(stage, random.Random(seed))
        for _ in range(40):
            story.step()
        story.end()


class Story:
    """A job that goes through random steps, crashes among them; old attempts live on a while."""

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self.stage = stage
        self.chance = chance
        self.zombies: list[tuple[Attempt, list[int]]] = []
        self.flights: list[Begun] = []
        self.unheard: list[int] = []
        self.attempt = stage.attempt(chance.randrange(1, 4)).open()
        self.completed = 0

    def step(self) -> None:
        weights = {
            self.feed: 6,
            self.begin: 4,
            self.complete: 4,
            self.notify: 3,
            self.abort: 1,
            self.haunt: 2,
            self.crash: 1,
        }
        (act,) = self.chance.choices(list(weights), list(weights.values()))
        act()
        seen = self.stage.seen()
        assert seen == list(range(len(seen)))
        assert len(seen) <= self.completed

    def feed(self) -> None:
        self.attempt.feed(self.chance.randrange(1, 9))

    def begin(self) -> None:
        self.flights.append(self.attempt.begin())

    def complete(self) -> None:
        if self.flights:
            begun = self.flights.pop(0)
            self.attempt.commit(begun)
            self.completed = begun.position
            self.unheard.append(begun.checkpoint_id)

    def notify(self) -> None:
        if self.unheard:
            checkpoint_id = self.chance.choice(self.unheard)
            self.unheard.remove(checkpoint_id)
            # A slot may hear of it much later, or never: here each from its own list.
            self.attempt.notify(checkpoint_id)

    def abort(self) -> None:
        if self.flights:
            begun = self.flights.pop(self.chance.randrange(len(self.flights)))
            for slot in self.attempt.slots:
                slot.aborted(begun.checkpoint_id)

    def haunt(self) -> None:
        """Something that an old attempt does late."""
        if not self.zombies:
            return
        zombie, unheard = self.chance.choice(self.zombies)
        slot = self.chance.randrange(zombie.parallelism)
        if unheard and self.chance.random() < 0.5:
            zombie.slots[slot].completed(self.chance.choice(unheard))
        elif self.chance.random() < 0.3:
            late = zombie.slots[slot]._spec.build()
            try:
                late.open(zombie.context(slot))  # it begins only now; it may find things gone
            except HoldfastError:
                late.close()
        else:
            zombie.feed(self.chance.randrange(5))
            zombie.prepare()

    def crash(self) -> None:
        self.zombies.append((self.attempt, [*self.unheard]))
        self.zombies = self.zombies[-2:]
        self.flights, self.unheard = [], []
        self.attempt = self.stage.attempt(self.chance.randrange(1, 4)).open()
        assert self.attempt.position == self.completed
        assert self.stage.seen() == list(range(self.completed))

    def end(self) -> None:
        for zombie, _ in self.zombies:
            zombie.close()
        self.zombies.clear()
        self.flights.clear()
        self.crash()
        self.zombies.clear()
        self.attempt.feed(3)
        self.attempt.finish()
        assert self.stage.seen() == list(range(self.completed + 3))
        assert self.stage.hidden() == []
