"""Writers are killed with SIGKILL at seeded moments; what they committed must be whole."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.storage import load_storage
from support.kills import checkpoint_writers
from support.kills.whole_jobs import check_clean, check_whole

KILLS = 200


class Expected:
    """What may and what must be there, from what the writers said."""

    def __init__(self) -> None:
        self.must: set[int] = set()
        self.may: set[int] = set()

    def hear(self, said: list[tuple[str, int]]) -> None:
        for word, number in said:
            if word == "committing":
                self.may.add(number)
            elif word == "committed":
                self.must.add(number)
            elif word == "retaining":
                self.must = set(sorted(self.must)[-number:])
            elif word == "retained":
                self.may = set(self.must)
            else:
                assert word == "done", word

    def meet(self, found: tuple[int, ...]) -> None:
        assert self.must <= set(found) <= self.may | self.must
        self.must, self.may = set(found), set(found)


@contextmanager
def nursery(root: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, checkpoint_writers.__file__, str(root)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.slow
def test_killed_writers_leave_exactly_what_they_committed(quick_path: Path) -> None:
    job = load_storage(str(quick_path)).job("job")
    expected = Expected()
    killed = orphans = 0
    with nursery(quick_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for seed in range(KILLS):
            process.stdin.write(f"{seed}\n")
            process.stdin.flush()
            said = [(word, number) for word, number in json.loads(process.stdout.readline())]
            expected.hear(said)
            expected.meet(job.completed())
            killed += ("done", 0) not in said
            check_whole(job)
            if seed % 2:
                orphans += check_clean(job)
                check_whole(job)
    assert killed > KILLS * 0.8
    assert orphans > KILLS
