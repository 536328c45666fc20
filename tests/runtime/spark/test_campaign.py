"""Jobs on real Spark are hurt at seeded moments; their output is as if nothing had happened."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.jobs.spark_jobs import check_complete, check_no_state_is_left, check_sound, expected
from support.jobs.spark_sessions import prepare_environment
from support.kills import faulty_jobs
from support.kills.faulty_jobs import Story
from support.kills.job_faults import KINDS
from support.states.tried_backends import LOGGED, PLAIN, TRIED
from support.storages.tried_storages import TRIED_STORAGES, place_named

pytestmark = pytest.mark.slow

FEW = (6, 7, 11)
"""On each storage once; one kills the driver: to start Spark anew takes long. `make soak` has the
rest: every kind of fault with each backend and each storage."""
MANY = range(8, 98)
LIFE_TIMEOUT_S = 1200
EACH = 10  # stories of the soak in one test: they share sessions of Spark


def run_child(root: Path, seeds: list[int]) -> tuple[int, str]:
    """Let a process go on with these stories; how it ended, and what it said last."""
    command = [sys.executable, faulty_jobs.__file__, str(root), *map(str, seeds)]
    log = root / "said"
    with (
        log.open("ab") as said,
        subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True) as child,
    ):
        try:
            code = child.wait(LIFE_TIMEOUT_S)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
    return code, log.read_text(errors="replace")[-6000:]


def see_through(root: Path, seeds: list[int], request: pytest.FixtureRequest) -> None:
    """Start processes until all stories have ended; check what readers see after each."""
    prepare_environment()
    stories = [Story(root, seed) for seed in seeds]
    places = {name: place_named(name, root, request) for name in TRIED_STORAGES}
    for story in stories:
        story.prepare(places[story.storage_name])
    answers = {story.seed: expected(story.orders) for story in stories}
    deaths = sum(fault.hits_driver for story in stories for fault in story.faults)
    for _ in range(deaths + 1):
        code, said = run_child(root, seeds)
        for story in stories:
            check_sound(story.folder, answers[story.seed])
        if code == 0:
            break
        assert code == -signal.SIGKILL, said
    for story in stories:
        ended = story.ended()
        assert ended is not None, story.seed
        assert ended.status == "finished", (story.seed, ended)
        check_complete(story.folder, answers[story.seed])
        assert story.faults[0].has_happened(), (story.seed, story.faults[0])
        if story.backend_name == "rocksdb":
            check_no_state_is_left(story.state)


@pytest.mark.timeout(1500)
def test_output_is_as_without_faults(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    see_through(tmp_path, [*FEW], request)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", MANY[::EACH])
def test_output_is_as_without_faults_over_and_over(
    tmp_path: Path, first: int, request: pytest.FixtureRequest
) -> None:
    see_through(tmp_path, list(range(first, first + EACH)), request)


def test_no_kind_of_fault_is_missed(tmp_path: Path) -> None:
    many = [Story(tmp_path, seed) for seed in MANY]
    met = {(story.backend_name, story.faults[0].kind) for story in many}
    assert met == {*itertools.product(TRIED, KINDS)}, "each with each backend"
    met = {(story.storage_name, story.faults[0].kind) for story in many}
    assert met == {*itertools.product(TRIED_STORAGES, KINDS)}, "each on each storage"
    met = {(story.storage_name, story.backend_name) for story in many}
    assert met == {*itertools.product(TRIED_STORAGES, TRIED)}
    few = [Story(tmp_path, seed) for seed in FEW]
    assert {story.backend_name.removeprefix(f"{LOGGED}-") for story in few} == {*PLAIN}
    assert {story.backend_name.startswith(LOGGED) for story in few} == {False, True}
    assert {story.storage_name for story in few} == {*TRIED_STORAGES}
    assert {fault.hits_driver for story in few for fault in story.faults} == {False, True}
