"""A changelog is switched on and off, over another backend, at another number of slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from holdfast.backends import StateBackend
from holdfast.backends.snapshots.logs import LOGGED_KIND
from holdfast.backends.snapshots.neutral import ENTRIES_KIND, FILES_KIND
from holdfast.changelog import ChangelogOptions, ChangelogStateBackend
from holdfast.storage import JobStorage, load_storage
from support.jobs.logged_jobs import LoggedRun, lasting, log_of, parts_of
from support.states.logged_steps import modelled
from support.states.tried_backends import BUSY_LOG, PLAIN, backend_named

BEFORE, LATER, LAST = lasting(400, seed=11), lasting(300, seed=12), lasting(200, seed=13)
QUIET = ChangelogOptions(materialization_interval_s=None, persist_interval_s=None)
"""Writes a log, and nothing between checkpoints."""
Plain = Callable[[str], StateBackend]


@pytest.fixture
def job(quick_path: Path) -> JobStorage:
    return load_storage(str(quick_path / "storage"), inline_limit_bytes=0).job("job")


@pytest.fixture
def plain(quick_path: Path) -> Plain:
    return lambda name: backend_named(name, quick_path / "state")


def files_there(job: JobStorage) -> set[str]:
    """The names of all objects in a job's folder."""
    return {info.name.partition("/")[2] for info in job.storage.list(f"{job.folder}/")}


def shared_of(files: Iterable[str]) -> set[str]:
    return {name for name in files if name.startswith("shared/")}


INNER = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "hashmap" else pytest.mark.slow) for name in PLAIN],
)


@INNER
def test_a_changelog_is_switched_on_over_a_plain_checkpoint(
    job: JobStorage, plain: Plain, name: str
) -> None:
    """The first checkpoint after that has a log already: nothing is written a second time."""
    with LoggedRun(job, plain(name)) as run:
        run.change(BEFORE)
        before = run.checkpoint()
    logged = ChangelogStateBackend(plain(name), QUIET)
    with LoggedRun(job, logged, restored=before) as run:
        run.change(LATER)
        first = run.checkpoint()
        run.change(LAST)
        second = run.checkpoint()
    base = parts_of(before)[0]
    for checkpoint in (first, second):
        (part,) = parts_of(checkpoint)
        assert (
            log_of(part).base_kind
            == base.kind
            == (FILES_KIND if name == "rocksdb" else ENTRIES_KIND)
        )
        assert base.files() < part.files()
        assert log_of(part).logs
    with LoggedRun(job, logged, restored=second) as run:
        assert run.content() == modelled([*BEFORE, *LATER, *LAST])


@INNER
def test_a_changelog_is_switched_off(job: JobStorage, plain: Plain, name: str) -> None:
    with LoggedRun(job, ChangelogStateBackend(plain(name), BUSY_LOG)) as run:
        run.change(BEFORE)
        run.tend_until(lambda: run.numbers("materializations") >= [1])
        run.checkpoint()
        run.change(LATER)
        logged = run.checkpoint()
    assert parts_of(logged)[0].kind == LOGGED_KIND
    with LoggedRun(job, plain(name), restored=logged) as run:
        run.change(LAST)
        first = run.checkpoint()
        second = run.checkpoint()
        assert run.content() == modelled([*BEFORE, *LATER, *LAST])
    for checkpoint in (first, second):
        (part,) = parts_of(checkpoint)
        assert part.kind == (FILES_KIND if name == "rocksdb" else ENTRIES_KIND)
    assert shared_of(files_there(job)) == shared_of(second.files())
    with LoggedRun(job, plain(name), restored=second) as run:
        assert run.content() == modelled([*BEFORE, *LATER, *LAST])


@pytest.mark.parametrize("is_logged", [True, False], ids=["logged", "plain"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("hashmap", "hashmap"),
        pytest.param("hashmap", "rocksdb", marks=pytest.mark.slow),
        pytest.param("hashmap", "sqlite", marks=pytest.mark.slow),
        pytest.param("sqlite", "rocksdb", marks=pytest.mark.slow),
        pytest.param("sqlite", "hashmap", marks=pytest.mark.slow),
        pytest.param("rocksdb", "hashmap", marks=pytest.mark.slow),
        pytest.param("rocksdb", "sqlite", marks=pytest.mark.slow),
    ],
)
def test_the_backend_below_is_changed(
    job: JobStorage, plain: Plain, old: str, new: str, *, is_logged: bool
) -> None:
    with LoggedRun(job, ChangelogStateBackend(plain(old), BUSY_LOG)) as run:
        run.change(BEFORE)
        run.tend_until(lambda: run.numbers("materializations") >= [1])
        run.change(LATER)
        checkpoint = run.checkpoint()
    kind = FILES_KIND if old == "rocksdb" else ENTRIES_KIND
    assert log_of(parts_of(checkpoint)[0]).base_kind == kind
    backend = ChangelogStateBackend(plain(new), BUSY_LOG) if is_logged else plain(new)
    with LoggedRun(job, backend, restored=checkpoint) as run:
        run.change(LAST)
        again = run.checkpoint()
        assert run.content() == modelled([*BEFORE, *LATER, *LAST])
    with LoggedRun(job, backend, restored=again) as run:
        assert run.content() == modelled([*BEFORE, *LATER, *LAST])


@INNER
def test_the_number_of_slots_changes(job: JobStorage, plain: Plain, name: str) -> None:
    """One, two, three and one again; each time something happens between two checkpoints."""
    backend = ChangelogStateBackend(plain(name), BUSY_LOG)
    done, checkpoint = [*BEFORE], None
    for number, parallelism in enumerate((1, 2, 3, 1)):
        with LoggedRun(job, backend, parallelism=parallelism, restored=checkpoint) as run:
            if checkpoint is None:
                run.change(BEFORE)
            run.checkpoint()
            for round_number in range(3):
                more = lasting(150, seed=100 + 10 * number + round_number)
                run.change(more)
                done += more
                checkpoint = run.checkpoint()
            run.tend_until(lambda: min(run.numbers("materializations")) >= 1)
            more = lasting(150, seed=200 + number)
            run.change(more)
            done += more
            checkpoint = run.checkpoint()
            assert any(log_of(part).logs for part in parts_of(checkpoint))
            assert run.content() == modelled(done)
    with LoggedRun(job, backend, restored=checkpoint) as run:
        assert run.content() == modelled(done)
        again = run.checkpoint()
    assert again.files() <= files_there(job)


@INNER
def test_another_job_s_checkpoint_is_only_read(job: JobStorage, plain: Plain, name: str) -> None:
    """The first own checkpoint is complete in itself; then the other job's folder may go."""
    backend = ChangelogStateBackend(plain(name), BUSY_LOG)
    other = JobStorage(job.storage, "other")
    with LoggedRun(other, backend, parallelism=2) as run:
        run.change(BEFORE)
        run.tend_until(lambda: min(run.numbers("materializations")) >= 1)
        run.checkpoint()
        run.change(LATER)
        checkpoint = run.checkpoint()
    before = files_there(other)
    with LoggedRun(job, backend, parallelism=2, restored=checkpoint, from_job=other) as run:
        run.change(LAST[:100])
        first = run.checkpoint()
        assert files_there(other) == before
        other.storage.delete(f"{other.folder}/{name}" for name in before)
        run.change(LAST[100:])
        run.tend_until(lambda: min(run.numbers("materializations")) >= 1)
        second = run.checkpoint()
        assert run.content() == modelled([*BEFORE, *LATER, *LAST])
    assert second.files() <= files_there(job)
    assert first.files().isdisjoint(checkpoint.files())
    with LoggedRun(job, backend, restored=second) as run:
        assert run.content() == modelled([*BEFORE, *LATER, *LAST])
