"""Jobs with a file sink that are killed: the child side of `test_sink_kill.py`.

`python sink_writers.py ROOT` reads a story and a seed a line, forks a life for each and prints what
it said, as one JSON line. A life restores the story's last checkpoint, compares what readers see
with it, goes on, and kills itself with SIGKILL before, after or in the middle of a call to the
operating system that its seed chose.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from holdfast.runtime.sinks import FileSink
from holdfast.runtime.sinks.files.output_folder import HiddenFile
from holdfast.runtime.sinks.testing.sink_jobs import SCHEMA, Attempt, Begun
from holdfast.storage import load_storage

ROWS = 150
HIGHEST_CALL = 400
CALLS = ("fsync", "link", "listdir", "mkdir", "open", "rename", "replace", "stat", "unlink")
FORMATS = ("parquet", "json", "csv")
Say = Callable[[str, int], None]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(chance: random.Random) -> None:
    """Count calls to the operating system, and die at one of them."""
    fatal = chance.randrange(HIGHEST_CALL)
    before = chance.random() < 0.5
    numbers = itertools.count(1)  # of which no two threads get the same
    real_write = HiddenFile.write

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(numbers) != fatal:
                return real(*arguments, **options)
            try:
                if not before:
                    real(*arguments, **options)
            finally:
                die()

        return call

    def torn(file: HiddenFile, data: Any) -> int:
        if next(numbers) == fatal:
            half = memoryview(data).cast("B")
            real_write(file, half[: chance.randrange(len(half) + 1)])
            file._file.flush()
            die()
        return real_write(file, data)

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    setattr(HiddenFile, "write", torn)  # noqa: B010 - to mypy a method is no variable


def seen_in(place: Path, file_format: str) -> list[int]:
    """The numbers of all rows that readers see, ascending."""
    found = ds.dataset(place, SCHEMA, format=file_format).to_table()
    return sorted(found["number"].to_pylist())


def hidden_in(place: Path) -> list[str]:
    """What is at the place and not seen."""
    return [str(path) for path in (place / "_holdfast").rglob("*") if path.is_file()]


class Life:
    """One process that goes on with a story."""

    def __init__(self, root: Path, story: int, chance: random.Random) -> None:
        self.chance = chance
        self.format = FORMATS[story % len(FORMATS)]
        self.place = root / f"story-{story}"
        self.place.mkdir(exist_ok=True)
        sink = FileSink(str(self.place), self.format, max_rows=chance.choice((None, 3)))
        job = load_storage(str(root / "checkpoints")).job(f"story-{story}")
        self.attempt = Attempt(sink, job, parallelism=chance.randrange(1, 4))
        self.flights: list[Begun] = []

    def restore(self, say: Say) -> None:
        self.attempt.open()
        assert seen_in(self.place, self.format) == list(range(self.attempt.position))
        assert hidden_in(self.place) == []
        say("restored", self.attempt.position)

    def run(self, say: Say) -> None:
        while self.attempt.position < ROWS:
            self.attempt.feed(self.chance.randrange(1, 9))
            if self.chance.random() < 0.4:
                self.flights.append(self.attempt.begin())
            if self.flights and self.chance.random() < 0.6:
                self.complete(say)
        self.attempt.finish()
        say("done", self.attempt.position)

    def complete(self, say: Say) -> None:
        begun = self.flights.pop(0)
        if self.chance.random() < 0.1:
            return  # it was aborted
        self.attempt.commit(begun)
        say("completed", begun.position)
        if self.chance.random() < 0.7:
            self.attempt.notify(begun.checkpoint_id)
            say("notified", begun.position)


def live(root: Path, story: int, seed: int, say: Say) -> None:
    """Live one life of a story."""
    chance = random.Random(seed)
    life = Life(root, story, chance)
    arm(chance)
    life.restore(say)
    life.run(say)


def run_child(root: Path, story: int, seed: int) -> list[tuple[str, int]]:
    """Fork a process for a life; what it said until it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)

        def say(word: str, about: int) -> None:
            os.write(writing, f"{word} {about}\n".encode())

        try:
            live(root, story, seed, say)
        except BaseException as error:  # noqa: BLE001 - the parent must hear of anything
            what = str(error).replace("\n", " ")
            os.write(writing, f"failed:{type(error).__name__}:{what} 0\n".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        lines = said.read().splitlines()
    os.waitpid(child, 0)
    return [(line.rpartition(" ")[0], int(line.rpartition(" ")[2])) for line in lines]


if __name__ == "__main__":
    for line in sys.stdin:
        told = run_child(Path(sys.argv[1]), *map(int, line.split()))
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
