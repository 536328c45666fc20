"""Operators are killed with SIGKILL at seeded moments; each goes on from its last checkpoint."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.backends.snapshots.neutral import ENTRIES_KIND
from holdfast.backends.testing.model.comparing import compare_fired, compare_states
from holdfast.backends.testing.model.fleet import UID, Fleet
from holdfast.storage import ManualClock
from support.kills import state_operators
from support.kills.state_operators import STEPS, Telling, backend_of, job_of

KILLS = 20
MANY_KILLS = 1000
LIVES_OF_A_STORY = 10
Said = list[tuple[str, int]]


@contextmanager
def nursery(root: Path, backend: str) -> Iterator[Callable[[int, int], Said]]:
    command = [sys.executable, state_operators.__file__, str(root), backend]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=path
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def live(number: int, life: int) -> Said:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{number} {life}\n")
            process.stdin.flush()
            return [(word, about) for word, about in json.loads(process.stdout.readline())]

        yield live
        process.stdin.close()


class Witness:
    """Knows a story, and what its lives have said."""

    def __init__(self, root: Path, backend: str, number: int) -> None:
        self.backend = backend_of(str(root), backend)
        self.job = job_of(str(root), number)
        self.telling = Telling(number)
        self.least = 0
        self.killed = self.killed_writing = self.moved = 0

    def hear(self, said: Said) -> None:
        for word, about in said:
            assert word in ("restored", "began", "committed", "done"), word
            if word == "restored":
                assert about >= self.telling.step
            elif word == "committed":
                self.least = about
        last = said[-1][0] if said else ""
        self.killed += last != "done"
        self.killed_writing += last == "began"

    def check(self, parallelism: int) -> None:
        """Compare the last checkpoint with the model at its step."""
        latest = self.job.latest()
        if latest is None:
            assert self.least == 0
            return
        assert latest.checkpoint_id >= self.least
        self.moved += latest.properties["step"] > self.telling.step
        self.telling.go_to(latest.properties["step"])
        now_ms = latest.properties["now_ms"]
        assert self.telling.clock.now_ms() == now_ms
        story = self.telling.story
        parts = latest.operators[UID].parts
        cleans = all(part.kind == ENTRIES_KIND for part in parts)
        model = self.telling.model.snapshot(cleans=cleans).restored(story.subjects, now_ms)
        settings = story.settings(self.backend, self.job, ManualClock(now_ms))
        fleet = Fleet(settings, story.subjects, parallelism, parts)
        try:
            compare_states(fleet, model, story.subjects, story.key_kind.keys)
            compare_fired(fleet, model, until=2 * STEPS)
        finally:
            fleet.close()


def live_and_die(root: Path, backend: str, *, stories: int) -> list[Witness]:
    """Every life of some stories, each checked at another number of slots than it had."""
    witnesses = [Witness(root, backend, number) for number in range(stories)]
    with nursery(root, backend) as live:
        for life in range(stories * LIVES_OF_A_STORY):
            witness = witnesses[life // LIVES_OF_A_STORY]
            witness.hear(live(witness.telling.story.number, life))
            witness.check(parallelism=1 + life % 3)
    return witnesses


@pytest.mark.slow
@pytest.mark.dealt("backend_name", take=3)
def test_a_killed_operator_goes_on_from_its_last_checkpoint(
    quick_path: Path, backend_name: str
) -> None:
    kill(quick_path, backend_name, KILLS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_killed_operators_go_on_over_and_over(quick_path: Path, backend_name: str) -> None:
    kill(quick_path, backend_name, MANY_KILLS)


def kill(root: Path, backend: str, kills: int) -> None:
    witnesses = live_and_die(root, backend, stories=kills // LIVES_OF_A_STORY)
    assert sum(witness.killed for witness in witnesses) > kills * 0.9
    # Of twenty, by chance, fewer may be killed where it matters than of a thousand.
    share_of_chance = 1.0 if kills == MANY_KILLS else 0.6
    assert sum(witness.moved for witness in witnesses) > kills * 0.4 * share_of_chance
    assert sum(witness.killed_writing for witness in witnesses) > kills * 0.15 * share_of_chance
    assert all(witness.telling.model.size() > 20 for witness in witnesses)


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [
        "a row is lost by a restore",
        "a snapshot sees what came after it",
        "timers are lost by rescaling",
        "time to live is forgotten by a restore",
    ],
)
def test_the_test_detects_a_lost_update(quick_path: Path, loss: str) -> None:
    with pytest.raises(AssertionError, match="expected"):
        live_and_die(quick_path, loss, stories=10)
