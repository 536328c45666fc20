"""A changelog whose storage fails: checkpoints go on, memory is bounded, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.backends import ValueStateDescriptor
from holdfast.changelog import ChangelogOptions, ChangelogStateBackend
from holdfast.storage import HoldfastError, SystemClock, Unavailable, load_storage
from holdfast.storage.testing.watched_storage import Call, WatchedStorage
from support.jobs.logged_jobs import LoggedRun, lasting, log_of, parts_of
from support.states.logged_steps import UID, modelled
from support.states.tried_backends import PLAIN, backend_named

INNER = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "hashmap" else pytest.mark.slow) for name in PLAIN],
)
OPTIONS = ChangelogOptions(
    materialization_interval_s=None,
    persist_threshold_bytes=2_000,
    persist_interval_s=1.0,
    max_in_flight_bytes=20_000,
    upload_timeout_s=0.05,
    next_attempt_delay_s=0,
    batch_delay_s=0,
    upload_attempts=2,
)


class Trouble:
    """A hook that refuses some calls, as long as it is told to."""

    def __init__(self) -> None:
        self.refused: Callable[[str], bool] | None = None

    def __call__(self, call: Call) -> None:
        if self.refused is not None and self.refused(call.name):
            raise Unavailable("the storage is down", where=call.name)

    @contextmanager
    def of(self, refused: Callable[[str], bool]) -> Iterator[None]:
        """Refuse calls about such objects."""
        self.refused = refused
        yield
        self.refused = None


@pytest.fixture
def trouble() -> Trouble:
    return Trouble()


@pytest.fixture
def storage(quick_path: Path, trouble: Trouble) -> WatchedStorage:
    inner = load_storage(str(quick_path / "storage"), inline_limit_bytes=0)
    return WatchedStorage(inner, before=trouble)


def everything(_: str) -> bool:
    return True


def of_materializations(name: str) -> bool:
    """Files that are begun between checkpoints, but not for logs."""
    return "/shared/" in name and f"-{UID}-" in name


@INNER
def test_repeated_failures_of_materialization_end_the_job_but_no_checkpoint(
    quick_path: Path, storage: WatchedStorage, trouble: Trouble, name: str
) -> None:
    options = replace(OPTIONS, materialization_interval_s=5.0, max_materialization_failures=3)
    logged = ChangelogStateBackend(backend_named(name, quick_path / "state"), options)
    job = storage.job("job")
    with LoggedRun(job, logged) as run, trouble.of(of_materializations):
        failed = 0.0
        with pytest.raises(Unavailable, match="cannot be materialized") as caught:
            for number in range(1000):
                run.change(lasting(50, seed=number), passes_s=0.05)
                if number % 10 == 0:
                    run.checkpoint()
                (told,) = run.numbers("materialization_failures")
                assert told in (failed, failed + 1)
                failed = told
        assert failed == 3
        text = str(caught.value)
        assert f"operator {UID!r}" in text
        assert "4 failures in a row; the last one: the storage is down" in text
        assert "max_materialization_failures" in text
    newest = job.latest()
    assert newest is not None
    with LoggedRun(job, logged, restored=newest) as run:
        kept = [
            step
            for number in range(10 * (newest.checkpoint_id - 1) + 1)
            for step in lasting(50, seed=number)
        ]
        assert run.content() == modelled(kept)


@INNER
def test_a_success_resets_the_count_of_failures(
    quick_path: Path,
    storage: WatchedStorage,
    trouble: Trouble,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    options = replace(OPTIONS, materialization_interval_s=2.0, max_materialization_failures=1)
    logged = ChangelogStateBackend(backend_named(name, quick_path / "state"), options)
    with LoggedRun(storage.job("job"), logged) as run:
        for number in range(3):
            run.change(lasting(50, seed=number))
            with trouble.of(of_materializations):
                run.tend_until(lambda: run.numbers("materialization_failures") == [1])
            run.change(lasting(50, seed=number + 10), passes_s=0)
            run.tend_until(lambda: run.numbers("materializations") == [number + 1])  # noqa: B023
            assert run.numbers("materialization_failures") == [0]
            run.checkpoint()  # the next one builds on what a checkpoint has
    told = [each.getMessage() for each in caplog.records if "not materialized" in each.getMessage()]
    assert len(told) == 3
    assert all("operator 'op' in key groups 0 to 127" in each for each in told)
    assert all("(1 of 1 failures in a row tolerated): the storage is down" in each for each in told)


@INNER
def test_an_unavailable_storage_delays_rows_and_loses_none(
    quick_path: Path,
    storage: WatchedStorage,
    trouble: Trouble,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    """What is in memory is bounded, as long as it takes; then it is written, and rows go on."""
    logged = ChangelogStateBackend(backend_named(name, quick_path / "state"), OPTIONS)
    job = storage.job("job")
    with LoggedRun(job, logged) as run:
        done = lasting(300, seed=1)
        run.change(done)
        run.checkpoint()
        with trouble.of(everything):
            stopped = 0
            for number in range(2000):
                stopped = stopped + 1 if run.tend(0.01) == [False] else 0
                if not stopped:
                    more = lasting(40, seed=100 + number)
                    run.change(more, passes_s=0.001)
                    done += more
                if stopped == 200:  # before, what was estimated to be longer may still be encoded
                    break
            else:
                pytest.fail("rows never stop")
            assert run.numbers("log_waiting_bytes") < [2 * OPTIONS.max_in_flight_bytes]
            begun = run.begin()
            with pytest.raises(HoldfastError, match="the storage is down"):
                run.complete(begun)
            run.give_up(begun)
        told = [each.getMessage() for each in caplog.records]
        assert all("a file of a log cannot be written to" in each for each in told)
        failures = [each.split(" in a row")[0].rpartition(" ")[2] for each in told]
        assert failures == [str(2**power) for power in range(len(told))]
        assert failures
        run.tend_until(lambda: run.tend(0.01) == [True])
        more = lasting(300, seed=2)
        run.change(more)
        done += more
        checkpoint = run.checkpoint()
        assert run.content() == modelled(done)
    assert log_of(parts_of(checkpoint)[0]).logs
    with LoggedRun(job, logged, restored=checkpoint) as run:
        assert run.content() == modelled(done)


@INNER
def test_long_values_count_by_their_bytes(
    quick_path: Path, storage: WatchedStorage, trouble: Trouble, name: str
) -> None:
    """How long rows are is learned from the first of them."""
    options = replace(OPTIONS, persist_threshold_bytes=1 << 20, max_in_flight_bytes=4 << 20)
    logged = ChangelogStateBackend(backend_named(name, quick_path / "state"), options)
    with LoggedRun(storage.job("job"), logged) as run:
        (slot,) = run.slots
        state = slot.get_state(ValueStateDescriptor("long", bytes))

        def fill(key: int) -> None:
            slot.set_current_key(key)
            state.update(bytes(100_000))

        with trouble.of(everything):
            for key in range(2000):
                if run.tend(0.01) == [False]:
                    break
                fill(key)
                SystemClock().sleep_s(0.005)  # in which the background finds out
            else:
                pytest.fail("200 MB are in memory, and rows go on")
            assert key * 100_000 < 3 * options.max_in_flight_bytes
