"""Checkpoints that overlap: what a later one refers to, those that are kept refer to as well."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from holdfast.backends.snapshots import file_uploads as file_snapshots
from holdfast.backends.snapshots.neutral import SnapshotForm
from holdfast.changelog import ChangelogOptions, ChangelogStateBackend
from holdfast.storage import CheckpointMetadata, JobStorage, load_storage
from support.jobs.logged_jobs import Begun, LoggedRun, lasting
from support.states.logged_steps import modelled
from support.states.tried_backends import BUSY_LOG, PLAIN, backend_named

QUIET = ChangelogOptions(materialization_interval_s=None, persist_interval_s=None)
INNER = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "hashmap" else pytest.mark.slow) for name in PLAIN],
)


@pytest.fixture
def job(quick_path: Path) -> JobStorage:
    return load_storage(str(quick_path / "storage"), inline_limit_bytes=0).job("job")


def is_whole(job: JobStorage, checkpoint: CheckpointMetadata) -> None:
    there = {info.name.partition("/")[2] for info in job.storage.list(f"{job.folder}/")}
    assert checkpoint.files() <= there


@pytest.mark.parametrize("at_once", [2, 3, 4])
@INNER
def test_changes_written_by_several_checkpoints_are_kept_once(
    job: JobStorage, quick_path: Path, name: str, at_once: int
) -> None:
    """Each has written what was in no file when it began; the newest one's are those that stay."""
    logged = ChangelogStateBackend(backend_named(name, quick_path / "state"), QUIET)
    done = lasting(100, seed=1)
    with LoggedRun(job, logged) as run:
        run.change(done)
        run.checkpoint()
        for number in range(4):
            begun = []
            for place in range(at_once):
                more = lasting(40, seed=10 * number + place)
                run.change(more)
                done += more
                begun.append(run.begin())
            for each in begun:
                is_whole(job, run.complete(each))
            is_whole(job, run.checkpoint())
        newest = run.checkpoint()
        assert run.content() == modelled(done)
    with LoggedRun(job, logged, restored=newest) as run:
        assert run.content() == modelled(done)


@pytest.mark.slow
@pytest.mark.dealt("name", "options")
@INNER
@pytest.mark.parametrize("options", [QUIET, BUSY_LOG], ids=["quiet", "busy"])
def test_checkpoints_may_begin_and_end_in_any_order(
    job: JobStorage,
    quick_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    options: ChangelogOptions,
) -> None:
    """Some are given up, some are neutral, and materializations end in between."""
    monkeypatch.setattr(file_snapshots, "_SHARED_FROM_BYTES", 1)
    logged = ChangelogStateBackend(backend_named(name, quick_path / "state"), options)
    newest, done = None, lasting(0, seed=0)
    for seed in range(6):
        chance = random.Random(seed)
        under_way: list[Begun] = []
        with LoggedRun(job, logged, parallelism=1 + seed // 2, restored=newest) as run:
            for number in range(60):
                more = lasting(chance.randrange(12), seed=1000 * seed + number)
                run.change(more)
                done += more
                if chance.random() < 0.5 and len(under_way) < 4:
                    form = chance.choice([SnapshotForm.OWN] * 4 + [SnapshotForm.NEUTRAL])
                    under_way.append(run.begin(form=form))
                if chance.random() < 0.1 and under_way:
                    run.give_up(under_way.pop(0))
                if chance.random() < 0.4 and under_way:
                    newest = run.complete(under_way.pop(0))
                    is_whole(job, newest)
            for each in under_way:
                run.give_up(each)
            newest = run.checkpoint()
            assert run.content() == modelled(done)
