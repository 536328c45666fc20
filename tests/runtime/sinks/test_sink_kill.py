"""Jobs with a file sink are killed with SIGKILL at seeded moments; readers must not notice."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.kills import sink_writers
from support.kills.sink_writers import FORMATS, ROWS, hidden_in, seen_in

KILLS = 60
MANY_KILLS = 1000


class Nursery:
    def __init__(self, root: Path, process: subprocess.Popen[str]) -> None:
        self.root = root
        self.process = process

    def life(self, story: int, seed: int) -> list[tuple[str, int]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{story} {seed}\n")
        self.process.stdin.flush()
        return [(word, about) for word, about in json.loads(self.process.stdout.readline())]

    def seen(self, story: int) -> list[int]:
        return seen_in(self.root / f"story-{story}", FORMATS[story % len(FORMATS)])


@contextmanager
def nursery(root: Path) -> Iterator[Nursery]:
    command = [sys.executable, sink_writers.__file__, str(root)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Nursery(root, process)
        assert process.stdin is not None
        process.stdin.close()


def check_story(nursery: Nursery, story: int, first_seed: int) -> int:
    """Let lives follow until one reaches the end; how many were killed."""
    notified = 0
    seen: list[int] = []
    for seed in range(first_seed, first_seed + 1000):
        said = nursery.life(story, seed)
        assert not [word for word, _ in said if word.startswith("failed")], (seed, said)
        told = dict(said)
        if "restored" in told:  # what was seen before it is in a completed checkpoint
            assert max(seen, default=-1) < told["restored"]
        notified = max(notified, told.get("notified", 0), told.get("restored", 0))
        seen = nursery.seen(story)
        if "done" in told:
            assert ROWS <= told["done"] == len(seen)
            assert seen == list(range(len(seen)))
            assert hidden_in(nursery.root / f"story-{story}") == []
            return seed - first_seed
        # Of a checkpoint that is being committed, files may be seen in any order; no row twice.
        assert seen[:notified] == list(range(notified))
        assert len(set(seen)) == len(seen)
    raise AssertionError("the story does not end")


def check_kills(root: Path, kills: int) -> None:
    killed = story = 0
    with nursery(root) as place:
        while killed < kills:
            killed += check_story(place, story, first_seed=10_000 * story)
            story += 1
    assert story >= len(FORMATS)


@pytest.mark.slow
def test_killed_jobs_show_each_row_once(quick_path: Path) -> None:
    check_kills(quick_path, KILLS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_jobs_that_are_killed_over_and_over_show_each_row_once(quick_path: Path) -> None:
    check_kills(quick_path, MANY_KILLS)
