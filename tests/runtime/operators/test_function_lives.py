"""The life of operators with functions: opening, failing, closing, snapshots, rescaling."""

from __future__ import annotations

import operator
import pickle
import random
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from holdfast.backends import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateBackend,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.backends.keyed.backend import EarlyFiles
from holdfast.runtime.api.errors import UserCodeFailed
from holdfast.runtime.api.functions import (
    BatchContext,
    KeyedBatchFunction,
    KeyedContext,
    KeyedProcessFunction,
    OnTimerContext,
    RuntimeContext,
)
from holdfast.runtime.operators import (
    FlatMapSpec,
    KeyedBatchSpec,
    KeyedProcessSpec,
    MapSpec,
)
from holdfast.runtime.protocol.operator import OperatorSpec
from holdfast.storage import (
    Clock,
    Corrupt,
    Invalid,
    ManualClock,
    StateSnapshot,
    Unavailable,
    load_storage,
)
from support.jobs.operator_runs import (
    ORDERS,
    Fleet,
    Row,
    keyed,
    opened,
    running,
    snapshots_of,
)


class Everything(KeyedProcessFunction):
    """State of each kind, and of the operator, which counts for a checkpoint only together."""

    def open(self, ctx: RuntimeContext) -> None:
        self.last = ctx.get_state(ValueStateDescriptor("last", str))
        self.all = ctx.get_list_state(ListStateDescriptor("all", int))
        self.by = ctx.get_map_state(MapStateDescriptor("by", int, int))
        self.sum = ctx.get_reducing_state(ReducingStateDescriptor("sum", operator.add, int))
        self.rows = ctx.get_operator_list_state(ListStateDescriptor("rows", int))

    def process_element(self, value: Any, ctx: KeyedContext) -> Iterator[Any]:
        self.last.update(f"{self.last.value() or ''}{value.amount % 10}")
        self.all.add(value.amount)
        self.by.put(value.amount % 3, value.amount)
        self.sum.add(value.amount)
        self.rows.add(value.amount)
        by = sorted(self.by.items())
        yield f"{value.user} {self.last.value()} {self.all.get()} {by}", self.sum.get()


class BatchEverything(KeyedBatchFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.sum = ctx.get_reducing_state(ReducingStateDescriptor("sum", operator.add, int))
        self.rows = ctx.get_operator_list_state(ListStateDescriptor("rows", int))

    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> pa.RecordBatch | None:
        self.rows.add_all(batch["amount"].to_pylist())
        self.sum.reduce_many(batch["user"], batch["amount"])
        users = batch["user"].unique()
        return pa.record_batch([users, self.sum.get_many(users)], schema=ORDERS)


@pytest.mark.parametrize(
    "spec",
    [keyed(Everything()), keyed(BatchEverything(), cls=KeyedBatchSpec)],
    ids=["rows", "batches"],
)
def test_state_goes_on_in_any_number_of_slots(spec: OperatorSpec, backend: StateBackend) -> None:
    chance = random.Random(11)
    rows: list[Row] = [(f"user-{chance.randrange(30)}", chance.randrange(1000)) for _ in range(600)]
    job = load_storage("memory://").job("job")
    with running(spec, backend=backend) as slot:
        expected = [slot.feed(rows[start : start + 100]) for start in range(0, 600, 100)]
        (whole,) = [part for part in snapshots_of([slot], 1, job) if part.key_groups is None]
    snapshots: list[StateSnapshot] = []
    for number, parallelism in enumerate((1, 2, 3, 3, 2, 1)):
        fleet = Fleet(spec, parallelism, job, snapshots, backend=backend)
        found = fleet.feed(rows[number * 100 : number * 100 + 100])
        assert sorted(found) == sorted(expected[number])
        snapshots = fleet.stop(number + 1)
        assert len(snapshots) == 2 * parallelism
    fleet = Fleet(spec, 1, job, snapshots, backend=backend)
    operator_: Any = fleet.slots[0].operator
    amounts = operator_.code.function.rows.get()
    assert sorted(amounts) == sorted(amount for _, amount in rows)
    assert whole.attributes["parallelism"] == 1
    fleet.stop(9)


class Recording(KeyedProcessFunction):
    """Writes down what happens to it, and fails where it is told to."""

    events: ClassVar[list[str]] = []

    def __init__(self, *fails: str) -> None:
        self.fails = fails

    def open(self, ctx: RuntimeContext) -> None:
        self._do("open")

    def process_element(self, value: Any, ctx: KeyedContext) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(5)
        self._do("process")
        yield value

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> None:
        self._do("timer")

    def close(self) -> None:
        self._do("close")

    def _do(self, what: str) -> None:
        self.events.append(what)
        if what in self.fails:
            raise KeyError(what)


def recorded() -> list[str]:
    found = list(Recording.events)
    Recording.events.clear()
    return found


def test_a_function_is_opened_and_closed_once(backend: StateBackend) -> None:
    slot = opened(keyed(Recording(), has_event_time=True), backend=backend)
    slot.feed([("a", 1)])
    slot.operator.close()
    slot.operator.close()
    assert recorded() == ["open", "process", "close"]


def test_a_function_is_closed_after_a_failed_open_too(backend: StateBackend) -> None:
    with pytest.raises(UserCodeFailed) as caught:
        opened(keyed(Recording("open")), backend=backend)
    assert recorded() == ["open", "close"]
    assert caught.value.where == "Recording.open"
    assert caught.value.found == "KeyError: 'open'"


def test_a_function_that_was_never_opened_is_not_closed(backend: StateBackend) -> None:
    operator_ = keyed(Recording()).build()
    operator_.close()
    damaged = StateSnapshot(kind="strange/1", slot=0)
    with pytest.raises(Invalid):
        opened(keyed(Recording()), restored=[damaged], backend=backend)
    assert recorded() == []


def test_state_is_given_back_also_when_closing_fails(backend: StateBackend) -> None:
    slot = opened(keyed(Recording("close"), has_event_time=True), backend=backend)
    with pytest.raises(UserCodeFailed, match=r"Recording\.close"):
        slot.operator.close()
    with pytest.raises(Invalid, match="the state backend is closed"):
        slot.operator.snapshot(1, load_storage("memory://").job("job"))
    slot.operator.close()
    assert recorded() == ["open", "close"]


def test_a_failure_names_row_and_traceback() -> None:
    with (
        running(keyed(Recording("process"), has_event_time=True)) as slot,
        pytest.raises(UserCodeFailed) as caught,
    ):
        slot.feed([("ann", 1), ("bob", 2)])
    error = caught.value
    assert error.what == "the code of operator 'op' failed"
    assert error.where == "Recording.process_element, row Row(user='ann', amount=1)"
    assert error.found == "KeyError: 'process'"
    assert isinstance(error.__cause__, KeyError)
    lines = error.user_traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith("in process_element")
    assert lines[-1] == "KeyError: 'process'"
    assert str(error).endswith(error.user_traceback)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert (again.where, again.user_traceback) == (error.where, error.user_traceback)
    recorded()


def test_a_failure_of_a_timer(backend: StateBackend) -> None:
    with running(keyed(Recording("timer"), has_event_time=True), backend=backend) as slot:
        slot.feed([("ann", 1)])
        with pytest.raises(UserCodeFailed) as caught:
            slot.advance(5)
    assert caught.value.where == "Recording.on_timer, timer at 5 of key 'ann'"
    recorded()


class Raising(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedContext) -> Iterator[Any]:
        if value.amount == 1:
            raise Unavailable("the disk is busy")
        if value.amount == 2:
            raise SystemExit(3)
        if value.amount == 3:
            raise ValueError("x" * 10_000)
        yield ()


def test_errors_that_say_what_to_do_go_on_as_they_are() -> None:
    with running(keyed(Raising(), has_event_time=True)) as slot:
        with pytest.raises(Unavailable, match="the disk is busy"):
            slot.feed([("a", 1)])
        with pytest.raises(UserCodeFailed) as ended:
            slot.feed([("a", 2)])
        assert ended.value.found == "SystemExit: 3", "a slot does not end by the code of users"
        with pytest.raises(UserCodeFailed) as caught:
            slot.feed([("a", 3)])
        assert caught.value.found == f"ValueError: {'x' * 200}…"
        with pytest.raises(Invalid) as refused:
            slot.feed([("a", 4)])
        assert refused.value.where == "operator 'op', row 0 tuple ()"


class BatchFailing(KeyedBatchFunction):
    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> Iterator[pa.RecordBatch]:
        ctx.register_event_time_timers(batch["user"], batch["amount"])
        if batch.num_rows > 2:
            raise KeyError("three")
        yield batch
        if batch.num_rows > 1:
            raise KeyError("two")

    def on_timers(self, *_: Any) -> None:
        raise KeyError("timers")


def test_failures_of_functions_over_batches() -> None:
    with running(keyed(BatchFailing(), cls=KeyedBatchSpec, has_event_time=True)) as slot:
        for count, said in ((3, 0), (2, 1)):
            with pytest.raises(UserCodeFailed) as caught:
                slot.feed([("a", 7)] * count)
            assert caught.value.where == f"BatchFailing.process_batch, a batch of {count} rows"
            assert caught.value.user_traceback.splitlines()[1].endswith("in process_batch")
            assert len(slot.output.batches) == said
        with pytest.raises(UserCodeFailed) as caught:
            slot.advance(8)
        assert caught.value.where == "BatchFailing.on_timers, 1 timers, the first at 7 of key 'a'"


class WrongDescriptor(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        ctx.get_state(ListStateDescriptor("x", int))  # type: ignore[arg-type]

    def process_element(self, value: Any, ctx: KeyedContext) -> None: ...


def test_a_descriptor_of_another_kind() -> None:
    with pytest.raises(Invalid) as caught:
        opened(keyed(WrongDescriptor()))
    assert caught.value.what == "this is a descriptor of another kind of state"
    assert caught.value.expected == "a ValueStateDescriptor"


class Unreadable:
    """Its pickle cannot be read."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_functions_that_cannot_be_built() -> None:
    with pytest.raises(Invalid) as caught:
        keyed(Unreadable()).build()
    assert caught.value.what == "the function of operator 'op' cannot be unpickled"
    assert caught.value.found.startswith("ValueError: invalid literal for int()")
    with pytest.raises(Invalid) as caught:
        keyed(BatchFailing()).build()
    assert caught.value.what == "the function of operator 'op' is of another kind"
    assert (caught.value.expected, caught.value.found) == ("a KeyedProcessFunction", "BatchFailing")
    spec = MapSpec(
        uid="m", name="m", input_schema=ORDERS, output_schema=ORDERS, function=pickle.dumps(5)
    )
    with pytest.raises(Invalid, match="expected something that can be called, found int"):
        spec.build()


@pytest.mark.parametrize(
    ("schema", "what", "where"),
    [
        (
            pa.schema([("a", pa.int64()), ("a", pa.int64())]),
            "two columns have one name",
            "operator 'op', output",
        ),
        (
            pa.schema([("_event_time_ms", pa.int64())]),
            "a column has a name that is reserved",
            "operator 'op', output",
        ),
        (
            pa.schema([("a", pa.month_day_nano_interval())]),
            "rows cannot have a column of this type",
            "operator 'op', output",
        ),
    ],
)
def test_schemas_that_are_refused(schema: pa.Schema, what: str, where: str) -> None:
    with pytest.raises(Invalid) as caught:
        keyed(Raising(), schema)
    assert (caught.value.what, caught.value.where) == (what, where)
    with pytest.raises(Invalid) as caught:
        keyed(Raising(), side_schemas={"late": schema})
    assert caught.value.where == "operator 'op', side output 'late'"


def test_state_of_another_kind_of_operator_is_refused(backend: StateBackend) -> None:
    strange = [StateSnapshot(kind="sink/1", slot=0)]
    with pytest.raises(Invalid) as caught:
        opened(keyed(Everything()), restored=strange, backend=backend)
    assert (caught.value.expected, caught.value.found) == (
        "operator state, or keyed state",
        "sink/1",
    )


def test_keys_of_another_type_than_those_of_the_checkpoint(backend: StateBackend) -> None:
    job = load_storage("memory://").job("job")
    with running(keyed(Everything()), job=job, backend=backend) as slot:
        slot.feed([("a", 1)])
        snapshots = snapshots_of([slot], 1, job)
    with pytest.raises(Invalid, match="the keys of the snapshot"):
        opened(keyed(Everything(), keys=("amount",)), restored=snapshots, job=job, backend=backend)


class Spy:
    """A backend that says what it was opened with."""

    def __init__(self) -> None:
        self.opened_with: dict[str, Any] = {}

    def open(self, **options: Any) -> Any:
        self.opened_with = options
        return load_backend("hashmap").open(**options)


def test_keyed_state_is_opened_with_what_the_slot_has() -> None:
    job = load_storage("memory://").job("job")
    snapshots = Fleet(keyed(Recording()), 4, job).stop(1)
    recorded()
    spy = Spy()
    clock: Clock = ManualClock(7)
    options: dict[str, Any] = {
        "backend": spy,
        "restored": snapshots,
        "job": job,
        "allow_pickle": True,
        "first_checkpoint_id": 9,
    }
    slot = opened(keyed(Recording()), ManualClock(7), slot=1, parallelism=3, **options)
    slot.operator.close()
    recorded()
    found = spy.opened_with
    assert [part.key_groups for part in found.pop("restore")] == [(32, 63), (64, 95)]
    assert found.pop("clock").now_ms() == clock.now_ms()
    assert found.pop("storage") is job
    assert found == {
        "uid": "op",
        "key_groups": slot.key_groups,
        "max_parallelism": 128,
        "key_type": str,
        "allow_pickle": True,
        "early": EarlyFiles(job, 9),
    }


def test_a_restore_without_the_slot_s_key_groups_is_refused(
    backend: StateBackend,
) -> None:
    job = load_storage("memory://").job("job")
    parts = Fleet(keyed(Recording()), 2, job, backend=backend).stop(1)
    options: dict[str, Any] = {
        "restored": [part for part in parts if part.key_groups == (0, 63)],
        "parallelism": 2,
        "job": job,
        "backend": backend,
    }
    opened(keyed(Recording()), slot=0, **options).operator.close()
    with pytest.raises(Invalid, match="do not have all key groups"):
        opened(keyed(Recording()), slot=1, **options)


def test_a_damaged_snapshot_is_told_as_such(backend: StateBackend) -> None:
    job = load_storage("memory://").job("job")
    with running(keyed(Everything()), job=job, backend=backend) as slot:
        slot.feed([("a", 1)])
        snapshots = snapshots_of([slot], 1, job)
    damaged = [
        StateSnapshot(
            kind=part.kind, slot=part.slot, key_groups=part.key_groups, attributes={"uid": 5}
        )
        for part in snapshots
    ]
    with pytest.raises(Corrupt):
        opened(keyed(Everything()), restored=damaged, job=job, backend=backend)


def test_specs_travel_by_pickle() -> None:
    spec = keyed(Recording(), side_schemas={"late": ORDERS}, has_event_time=True)
    again = pickle.loads(pickle.dumps(spec))
    assert isinstance(again, KeyedProcessSpec)
    assert again == spec


class Answering(KeyedProcessFunction):
    """Answers what is no rows."""

    def __init__(self, answer: Any, timer: Any = None) -> None:
        self.answer = answer
        self.timer = timer

    def process_element(self, value: Any, ctx: KeyedContext) -> Any:
        ctx.timer_service().register_processing_time_timer(5)
        return self.answer

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Any:
        return self.timer


def flat(answer: Any, **options: Any) -> FlatMapSpec:
    function = pickle.dumps(partial(_answer, answer))
    return FlatMapSpec(
        uid="op", name="f", input_schema=ORDERS, output_schema=ORDERS, function=function, **options
    )


def _answer(answer: Any, _row: Any) -> Any:
    return answer


@pytest.mark.parametrize("answer", ["ab", b"ab", {"user": "ann", "amount": 3}])
@pytest.mark.parametrize("has_event_time", [False, True])
def test_answers_that_are_no_rows_are_refused_by_name(
    answer: Any,
    has_event_time: bool,  # noqa: FBT001
) -> None:
    """Python would take each letter for a row of its own."""
    for spec in (
        keyed(Answering(answer), has_event_time=has_event_time),
        flat(answer, has_event_time=has_event_time),
    ):
        with running(spec) as slot, pytest.raises(UserCodeFailed) as caught:
            slot.feed([("ann", 1)])
        assert caught.value.found.startswith(f"TypeError: it answered {type(answer).__name__} ")
        assert caught.value.found.endswith(", which is not a list of rows")
        assert caught.value.fix.startswith("A function answers rows in a list")
        assert "A function answers rows in a list" in caught.value.summary
    with running(keyed(Answering(None, answer), has_event_time=has_event_time)) as slot:
        slot.feed([("ann", 1)])
        with pytest.raises(UserCodeFailed, match=r"on_timer.*which is not a list of rows"):
            slot.operator.tick(5)


def test_lists_and_tuples_of_rows_are_answers() -> None:
    for answer in ([("ann", 1)], (("ann", 1),)):
        with running(keyed(Answering(answer))) as slot:
            assert slot.feed([("bob", 2)]) == [("ann", 1)]
