"""Jobs that fail, are cancelled, taken over, and started again, on real Spark."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.backends import StateBackend
from holdfast.runtime import (
    CheckpointConfig,
    CollectSink,
    FixedDelayRestart,
    JobFailed,
    JobHandle,
    JobStatus,
    KeyedProcessFunction,
    NoRestart,
    StreamEnvironment,
)
from holdfast.storage import Invalid, NotFound
from support.jobs.spark_jobs import (
    Answer,
    await_checkpoints,
    await_that,
    build,
    build_from_files,
    check_complete,
    check_sound,
    expected,
    make_orders,
    read_orders,
    seen,
    sinks_at,
    write_orders,
)
from support.states.tried_backends import REGISTERED, backend_named
from support.storages.tried_storages import LOCAL, REMOTE, CheckpointPlace, place_named

pytestmark = pytest.mark.slow

FILES = 4
EACH_ONCE = [
    *((backend, LOCAL) for backend in REGISTERED),
    *zip(itertools.cycle(REGISTERED), REMOTE),
]
"""Pairs of a backend and a storage: each backend on the disk, and each other storage."""
DEALT = [pytest.param(each, marks=pytest.mark.dealt("place")) for each in EACH_ONCE]


class Fussy(KeyedProcessFunction):
    """Takes no row above ten."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if value.n > 10:
            raise ZeroDivisionError(f"{value.n} is too much")
        yield (value.n,)


def fussy_job(spark: SparkSession, restart: Any) -> JobHandle:
    class Fussier(Fussy):  # pickled by value: slots do not know this module
        process_element = Fussy.process_element

    env = StreamEnvironment(spark, parallelism=2, restart=restart)
    numbers = env.from_batch(spark.range(20).selectExpr("id as n"), uid="numbers")
    keyed = numbers.key_by("n").process(Fussier(), "n long", uid="fussy")
    keyed.sink_to(CollectSink(), uid="out")
    return env.execute_async("fussy")


def test_a_job_that_may_not_restart_fails_with_what_the_user_wrote(spark: SparkSession) -> None:
    job = fussy_job(spark, NoRestart())
    with pytest.raises(JobFailed) as caught:
        job.result(200)
    (told,) = str(caught.value).splitlines()
    assert "operator 'fussy'" in told
    assert "process_element" in told
    assert re.search(r"is too much \(test_lives\.py:\d+\)$", told)
    assert 'raise ZeroDivisionError(f"{value.n} is too much")' in caught.value.traceback
    assert job.status is JobStatus.FAILED
    assert job.metrics()["attempts"] == 1
    assert job.collected("out").num_rows == 0


def test_a_job_gives_up_when_its_strategy_does(spark: SparkSession) -> None:
    job = fussy_job(spark, FixedDelayRestart(attempts=2, delay="10ms"))
    with pytest.raises(JobFailed, match="operator 'fussy'"):
        job.result(200)
    assert job.metrics()["attempts"] == 3
    assert len(job.failures) == 3


def test_a_finished_job_is_not_run_again_unless_it_is_told_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    def start(restore: str | None) -> JobHandle:
        env = StreamEnvironment(spark, parallelism=1, storage=str(tmp_path))
        numbers = env.from_batch(spark.range(20), uid="numbers")
        numbers.sink_to(CollectSink(), uid="out")
        return env.execute_async("once", restore=restore)

    first = start("latest")
    assert first.result(200) is JobStatus.FINISHED
    assert first.collected("out").num_rows == 20
    for _ in range(2):
        again = start("latest")
        assert again.status is again.result(0) is JobStatus.FINISHED
        assert again.metrics()["attempts"] == 0
        assert re.fullmatch(
            r"job 'once' has finished at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, and nothing was "
            r"run\. To run it afresh, leave out restore, or take another name",
            again.notes[0],
        )
        with pytest.raises(NotFound, match="rows of the collecting sink 'out' are not here"):
            again.collected("out")
    afresh = start(None)
    assert afresh.result(200) is JobStatus.FINISHED
    assert afresh.collected("out").num_rows == 20


class Place:
    """A job whose input comes in two halves, and where it leaves its results."""

    def __init__(
        self,
        root: Path,
        spark: SparkSession,
        backend: str | StateBackend = "hashmap",
        checkpoints: CheckpointPlace | None = None,
    ) -> None:
        self.root = root
        self.spark = spark
        self.backend = backend
        self.checkpoints = checkpoints or CheckpointPlace(f"file://{root}/checkpoints")
        self.orders = make_orders(5, 240)
        write_orders(root / "all", self.orders, FILES)
        (root / "in").mkdir()
        self._show(range(FILES // 2))

    @property
    def answer(self) -> Answer:
        return expected(self.orders)

    def show_rest(self) -> None:
        self._show(range(FILES // 2, FILES))

    def env(self, parallelism: int = 2, **settings: Any) -> StreamEnvironment:
        config = CheckpointConfig(**{"interval": "200ms", "on_cancel": "retain"} | settings)
        return StreamEnvironment(
            self.spark,
            parallelism=parallelism,
            backend=self.backend,
            storage=self.checkpoints.storage(inline_limit_bytes=0),  # all state is in files
            checkpointing=config,
        )

    def start_endless(self, name: str = "job", **settings: Any) -> JobHandle:
        """Start the job over all files that ever come; return when all there are committed."""
        env = self.env(**settings)
        source = env.from_stream(read_orders(env, self.root / "in"), uid="orders")
        job = build(env, source, sinks_at(self.root)).execute_async(name)
        await_that(lambda: self._has_all_rows(job), "the first half")
        await_checkpoints(job)
        return job

    def finish(self, env: StreamEnvironment, name: str, restore: str) -> None:
        """Go on, to the end of the second half."""
        self.show_rest()
        job = build_from_files(env, self.root).execute_async(name, restore=restore)
        assert job.result(250) is JobStatus.FINISHED
        check_complete(self.root, self.answer)
        assert job.notes

    def completed(self, name: str = "job") -> tuple[int, ...]:
        return self.checkpoints.storage().job(name).completed()

    def _show(self, files: range) -> None:
        for number in files:
            name = f"{number:04}.json"
            path = self.root / "all" / name
            if path.exists():
                path.rename(self.root / "in" / name)

    def _has_all_rows(self, job: JobHandle) -> bool:
        assert not job.status.is_final, job.failures
        sources: Any = job.metrics()["sources"]
        return bool(sources) and sources["orders"]["rows"] == len(self.orders) // 2


@pytest.fixture(params=DEALT, ids="-".join)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, quick_path: Path, spark: SparkSession
) -> Place:
    backend, storage = request.param
    return Place(
        tmp_path,
        spark,
        backend_named(backend, quick_path / "state"),
        place_named(storage, tmp_path, request),
    )


def test_a_cancelled_job_goes_on_from_what_it_retained(place: Place) -> None:
    job = place.start_endless()
    job.cancel()
    assert job.status is JobStatus.CANCELLED
    assert job.result() is JobStatus.CANCELLED
    (newest,) = place.completed()
    check_sound(place.root, place.answer)

    with pytest.raises(Invalid) as caught:
        build_from_files(place.env(), place.root).execute_async("job")
    assert str(caught.value) == (
        "job 'job' has left checkpoints, and was not told what to do with them "
        f"[{place.checkpoints.url}/job]: expected none, or an argument restore, found "
        f'checkpoint {newest}. If it has stopped, pass restore="latest" to go on from it (a run '
        "that lives is fenced then); or begin under another name"
    )
    place.finish(place.env(), "job", "latest")
    assert place.completed() == ()


def test_a_cancelled_job_leaves_nothing_if_it_shall(place: Place) -> None:
    job = place.start_endless(on_cancel="delete")
    job.cancel()
    assert place.completed() == ()
    left = {found.name for found in place.checkpoints.storage().list("")}
    assert all(name.startswith("job/owner-") for name in left), left
    again = build_from_files(place.env(), place.root).execute_async("job", restore="latest")
    assert again.status is JobStatus.CANCELLED
    assert "job 'job' was cancelled" in again.notes[0]


def test_a_checkpoint_is_restored_at_another_parallelism_under_another_name(place: Place) -> None:
    place.start_endless().cancel()
    (newest,) = place.completed()
    path = f"{place.checkpoints.url}/job/chk-{newest:020}"
    env = place.env(parallelism=3, retained=2)
    assert env.max_parallelism == place.env().max_parallelism
    place.finish(env, "larger", path)
    assert place.completed() == (newest,)


def test_a_checkpoint_that_is_not_there(tmp_path: Path, spark: SparkSession) -> None:
    place = Place(tmp_path, spark)
    path = f"{place.root}/checkpoints/job/chk-{7:020}"
    with pytest.raises(NotFound) as caught:
        build_from_files(place.env(), place.root).execute_async("job", restore=path)
    assert str(caught.value) == (
        f"there is no checkpoint 7 to restore from [file://{place.root}/checkpoints/job]: expected "
        "one of none at all. Look whether the path is right, and whether the checkpoint was deleted"
    )
    with pytest.raises(Invalid) as refused:
        build_from_files(place.env(), place.root).execute_async("job", restore="yesterday")
    assert str(refused.value) == (
        "this is not a checkpoint or savepoint to restore from: expected 'latest', the folder of a "
        "checkpoint: …/job/chk-00000000000000000042, or that of a savepoint: "
        "…/savepoint-0123ab-0123456789ab, found 'yesterday'"
    )


def test_a_job_that_does_not_fit_the_checkpoint_is_refused_before_it_starts(
    tmp_path: Path, spark: SparkSession
) -> None:
    place = Place(tmp_path, spark)
    place.start_endless().cancel()
    (newest,) = place.completed()
    where = f"checkpoint {newest} at file://{place.root}/checkpoints/job"

    env = place.env()
    source = env.from_stream(read_orders(env, place.root / "in"), uid="orders")
    source.key_by("user").process(Fussy(), "n long", uid="fussy").sink_to(CollectSink(), uid="out")
    with pytest.raises(Invalid) as caught:
        env.execute_async("job", restore="latest")
    assert str(caught.value).startswith(
        f"{where} has state of 'digits', 'odd', 'spend', which the job does not have: "
        "state 'count', 'windows', "
    )
    assert "state 'committables' of operator 'odd'" in str(caught.value)
    assert str(caught.value).endswith(
        ": expected operators and sources with these uids: 'digits', 'odd', 'spend', found "
        "'orders', 'fussy', 'out'. Give them back their uids, or pass "
        "allow_non_restored_state=True to do without"
    )

    other = StreamEnvironment(
        place.spark,
        parallelism=2,
        max_parallelism=64,
        storage=env.storage,
        checkpointing=env.checkpointing,
    )
    with pytest.raises(Invalid) as refused:
        build_from_files(other, place.root).execute_async("job", restore="latest")
    assert str(refused.value) == (
        f"the max parallelism of operator 'digits' is not that of {where}: expected 128, found 64. "
        "Pass max_parallelism=128: it says where keys are kept"
    )
    assert place.completed() == (newest,)


def test_files_of_one_backend_are_taken_over_by_another(
    tmp_path: Path, spark: SparkSession
) -> None:
    place = Place(tmp_path, spark, backend_named("rocksdb", tmp_path / "state"))
    place.start_endless().cancel()
    place.backend = "hashmap"
    place.finish(place.env(), "job", "latest")


def test_a_second_run_fences_the_first(place: Place) -> None:
    first = place.start_endless(parallelism=1)
    env = place.env(parallelism=1)
    source = env.from_stream(read_orders(env, place.root / "in"), uid="orders")
    second = build(env, source, sinks_at(place.root)).execute_async("job", restore="latest")
    try:
        with pytest.raises(JobFailed, match="another process has taken over job 'job'"):
            first.result(200)
        assert first.status is JobStatus.FAILED
        assert first.metrics()["attempts"] == 1
        before = seen(place.root)
        check_sound(place.root, place.answer)
        place.show_rest()
        await_that(lambda: seen(place.root) != before, "new rows")
    finally:
        second.cancel()
    place.finish(place.env(), "job", "latest")
