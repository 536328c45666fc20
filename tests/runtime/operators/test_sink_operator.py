"""What the operator does around a sink; the kit of sinks tries it with every sink."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from holdfast.runtime.operators.sink_operator import SinkSpec
from holdfast.runtime.protocol.elements import EVENT_TIME
from holdfast.runtime.sinks import CollectSink, FileSink, collected_table
from holdfast.runtime.sinks.testing.sink_jobs import SCHEMA, UID, Attempt, Driver, rows
from holdfast.storage import Corrupt, Invalid, JobStorage, load_storage


@pytest.fixture
def job() -> JobStorage:
    return load_storage("memory://").job("job")


def collected(driver: Driver) -> list[int]:
    return list(collected_table(driver.parts, SCHEMA)["number"].to_pylist())


def test_event_time_is_not_written(job: JobStorage) -> None:
    attempt = Attempt(CollectSink(), job)
    spec = SinkSpec(
        uid=UID, name="sink", input_schema=SCHEMA, has_event_time=True, sink=CollectSink()
    )
    assert spec.output_schema.names == []
    operator = pickle.loads(pickle.dumps(spec)).build()
    attempt.slots = [operator]
    attempt.open()
    batch = rows(0, 3).append_column(EVENT_TIME, pa.array([7, 8, 9]))
    operator.process(batch, 0)
    attempt.position = 3
    attempt.finish()
    assert collected(attempt.driver) == [0, 1, 2]


def test_batches_may_differ_in_what_may_be_null_and_in_nothing_else(
    job: JobStorage, tmp_path: Path
) -> None:
    attempt = Attempt(FileSink(str(tmp_path)), job).open()
    strict = pa.schema([SCHEMA.field(0).with_nullable(False), SCHEMA.field(1)], {"a": "b"})
    attempt.slots[0].process(pa.record_batch(rows(0, 3).columns, schema=strict), 0)
    attempt.slots[0].process(rows(3, 5), 0)
    with pytest.raises(Invalid) as caught:
        attempt.slots[0].process(pa.record_batch([[1], [2]], names=["number", "text"]), 0)
    assert caught.value.where == f"operator {UID!r}"
    assert caught.value.expected == "number: int64, text: string"
    assert caught.value.found == "number: int64, text: int64"
    attempt.checkpoint()
    attempt.close()
    assert ds.dataset(tmp_path).count_rows() == 5


def test_rows_are_collected_in_order_of_checkpoints(job: JobStorage) -> None:
    attempt = Attempt(CollectSink(), job).open()
    for _ in range(12):
        attempt.feed(1)
        attempt.checkpoint()
    attempt.close()
    assert collected(attempt.driver) == list(range(12))
    names = sorted(attempt.driver.parts)
    assert names[0] == "00000000000000000001-00000-00000000000000000001.0000000000"


def test_a_collecting_sink_needs_columns() -> None:
    with pytest.raises(Invalid) as caught:
        CollectSink().check(pa.schema([]))
    assert caught.value.what == "a sink cannot collect rows without columns"


def test_a_job_that_begins_from_another_ones_checkpoint_commits_what_that_lists(
    tmp_path: Path,
) -> None:
    storage = load_storage(str(tmp_path / "checkpoints"), inline_limit_bytes=0)
    sink = FileSink(str(tmp_path / "out"))
    old = Attempt(sink, storage.job("old")).open()
    old.feed(3)
    begun = old.begin()
    new = Attempt(sink, storage.job("new"))
    context = replace(new.context(0), restored=tuple(begun.parts), restored_from=storage.job("old"))
    new.slots[0].open(context)
    assert len(list((tmp_path / "out").glob("part-*"))) == 1
    old.notify(begun.checkpoint_id)
    assert len(list((tmp_path / "out").glob("part-*"))) == 1


def test_a_restore_that_cannot_commit_says_what_is_gone_and_can_be_closed(
    job: JobStorage, tmp_path: Path
) -> None:
    sink = FileSink(str(tmp_path))
    old = Attempt(sink, job).open()
    old.feed(3)
    old.commit(old.begin())
    (hidden,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    hidden.unlink()
    new = Attempt(sink, job)
    with pytest.raises(Corrupt) as caught:
        new.open()
    assert caught.value.where == str(hidden)
    assert "allow_missing_output=True" in caught.value.fix
    assert "execution.state-recovery.ignore-missing-output" in caught.value.fix
    new.close()
    new.close()


def test_missing_committables_are_skipped_only_in_restored_state_and_if_allowed(
    job: JobStorage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as the files of an old savepoint, which were committed, and moved away since."""
    sink = FileSink(str(tmp_path / "out"))
    old = Attempt(sink, job).open()
    old.feed(3)
    begun = old.begin()
    (hidden,) = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    hidden.rename(tmp_path / "moved")
    new = Attempt(sink, job)
    context = replace(new.context(0), restored=tuple(begun.parts), allow_missing_output=True)
    new.slots[0].open(context)
    assert "is gone, with 3 rows" in caplog.text
    new.slots[0].process(rows(0, 2), 0)
    new.slots[0].prepare(7)
    (hidden,) = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    hidden.unlink()
    with pytest.raises(Corrupt, match="is gone before it was committed"):
        new.slots[0].completed(7)
    new.close()


def test_an_operator_that_was_never_opened_can_be_closed() -> None:
    SinkSpec(uid=UID, name="sink", input_schema=SCHEMA, sink=CollectSink()).build().close()


def test_attempts_sort_by_age_over_all_runs(job: JobStorage) -> None:
    seen: list[str] = []

    class Telling(CollectSink):
        def open_writer(self, context: Any) -> Any:
            seen.append(context.attempt)
            return super().open_writer(context)

    for _ in range(2):
        owner = job.take_over()
        for number in (0, 1, 2, 10):
            Attempt(Telling(), job, number=number, owner=owner).open().close()
    assert seen == sorted(set(seen))
    assert len(seen) == 8


def test_a_slot_gets_the_sink_pickled_by_itself_so_that_a_strange_one_is_named() -> None:
    spec = SinkSpec(
        uid=UID,
        name="sink",
        input_schema=SCHEMA,
        sink=CollectSink(),
        pickled=b"cno_such_module\nS\n.",
    )
    arrived = pickle.loads(pickle.dumps(spec))
    assert arrived.sink is None
    with pytest.raises(Invalid) as caught:
        arrived.build()
    assert caught.value.what == f"the sink {UID!r} cannot be unpickled"
    assert caught.value.found == "ModuleNotFoundError: No module named 'no_such_module'"
    whole = pickle.loads(pickle.dumps(replace(spec, pickled=pickle.dumps(CollectSink()))))
    whole.build().close()
