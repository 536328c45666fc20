"""What slots tell of themselves: by operators, in the slot's thread, with its heartbeat."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.backends import (
    HashMapStateBackend,
    ListStateDescriptor,
    StateBackend,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.runtime import slot_process
from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.api.functions import KeyedProcessFunction, RuntimeContext
from holdfast.runtime.network import Credentials, DriverServer, SlotClient
from holdfast.runtime.planning.job_plan import plan_job
from holdfast.runtime.protocol.elements import Watermark
from holdfast.runtime.protocol.messages import (
    CancelAttempt,
    Finish,
    Heartbeat,
    Register,
    Start,
    ToDriver,
)
from holdfast.runtime.protocol.metrics import SlotMetrics
from holdfast.runtime.slot_process import SlotLaunch, host_slot
from holdfast.storage import Fenced, load_storage
from support.documents.told_metrics import documented
from support.jobs.lone_slot import ORDERS, Stage
from support.jobs.operator_runs import ORDERS as ORDER_SCHEMA
from support.jobs.operator_runs import keyed, running
from support.simulations.jobs import SINKS, Builder
from support.waiting import wait_until


class Spend(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.total = ctx.get_state(ValueStateDescriptor("total", int))
        self.seen = ctx.get_operator_list_state(ListStateDescriptor("seen", str))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.total.update((self.total.value() or 0) + value.amount)
        self.seen.add(value.user)
        ctx.timer_service().register_processing_time_timer(5_000)
        yield tuple(value)


def test_an_operator_tells_of_both_its_kinds_of_state(backend: StateBackend) -> None:
    with running(keyed(Spend()), backend=backend) as slot:
        slot.feed([("ann", 1), ("bob", 2), ("ann", 3)])
        metrics = slot.operator.metrics()
        assert metrics.operator_states == {"seen": {"entries": 3}}
        assert not metrics.states or {"total", "_timers/user-timers/processing"} < {*metrics.states}
        slot.feed([("cyd", 1)])
        assert slot.operator.metrics().operator_states == {"seen": {"entries": 4}}


def test_an_operator_on_rocksdb_tells_what_is_documented(tmp_path: Any) -> None:
    backend = load_backend("rocksdb", memory="16m", directories=[str(tmp_path)])
    with running(keyed(Spend()), backend=backend) as slot:
        slot.feed([("ann", 1), ("bob", 2)])
        metrics = slot.operator.metrics()
    assert set(metrics.store) == documented("`store`")
    assert set(metrics.states["total"]) == documented("`states`")
    assert metrics.states["total"]["entries"] == 2


def work(stage: Stage) -> SlotMetrics:
    """What the slot tells after it has done all that there is to do."""
    stage.work()
    stage.slot.metrics()
    stage.slot.step()
    return stage.slot.metrics()


def test_a_slot_tells_of_its_operators_as_they_were_when_it_had_time(tmp_path: Any) -> None:
    stage = Stage(f"file://{tmp_path}")
    assert stage.slot.metrics() == SlotMetrics(), "nothing is open yet"
    stage.slot.open()
    first = work(stage)
    assert set(first.operators) >= {"spend", "towns", *SINKS}
    assert first.operators["spend"].states["sums"] == {"entries": 0}
    stage.orders(*ORDERS)
    assert stage.slot.metrics().operators == first.operators
    second = work(stage)
    assert second.rows >= len(ORDERS)
    assert second.operators["spend"].states["sums"] == {"entries": 2}
    stage.checkpoint(1)
    assert work(stage).operators["large"].operator_states["committables"]["entries"] >= 1
    stage.slot.close()
    assert stage.slot.metrics().operators["spend"].states["sums"] == {"entries": 2}


def test_a_slot_tells_what_its_chains_do(tmp_path: Any) -> None:
    stage = Stage(f"file://{tmp_path}")
    stage.slot.open()
    stage.orders(*ORDERS)
    stage.offer(Watermark(1_100))
    chains = work(stage).chains
    assert {*chains} == {chain.plan.chain_id for chain in stage.slot.chains}
    assert chains["spend"].rows == len(ORDERS)
    assert {chains[each].watermark_ms for each in ("spend", "towns")} == {1_100}
    stage.slot.close()


def test_metrics_are_read_only_on_request(tmp_path: Any) -> None:
    asked: list[int] = []

    class Listening(HashMapStateBackend):
        def metrics(self) -> Mapping[str, float]:
            asked.append(threading.get_ident())
            return {"cache_bytes": 7.0}

    stage = Stage(f"file://{tmp_path}", backend=Listening())
    stage.slot.open()
    stage.orders(*ORDERS)
    stage.work()
    assert asked == []
    assert work(stage).backend == {"cache_bytes": 7.0}
    stage.orders(*ORDERS)
    stage.work()
    assert len(asked) == 2, "once for each request"
    thread = threading.Thread(target=stage.slot.metrics)
    thread.start()
    thread.join()
    stage.slot.step()
    assert set(asked) == {threading.get_ident()}
    stage.slot.close()


def fails() -> Any:
    raise RuntimeError("no numbers today")


@pytest.mark.parametrize(
    ("tell", "why"),
    [
        (fails, "no numbers today"),
        (lambda: {"cache_bytes": "much"}, "Expected `float`, got `str`"),
        (lambda: {"cache_bytes": object()}, "object is unsupported"),
        (lambda: None, "Expected `object`, got `None`"),
    ],
)
def test_a_job_does_not_fail_for_metrics(
    tmp_path: Any, caplog: pytest.LogCaptureFixture, tell: Any, why: str
) -> None:
    class Mute(HashMapStateBackend):
        def metrics(self) -> Mapping[str, float]:
            numbers: Mapping[str, float] = tell()
            return numbers

    stage = Stage(f"file://{tmp_path}", backend=Mute())
    stage.slot.open()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            metrics = work(stage)
            assert metrics.backend == {}
            assert metrics.operators["spend"].states["sums"] == {"entries": 0}
    stage.slot.close()
    (record,) = caplog.records
    assert record.getMessage() == "there are no metrics of the state backend"
    assert why in caplog.text


class Listener:
    """A driver that starts one slot, and calls it off when it has told of its operators."""

    def __init__(self, last: CancelAttempt | Finish) -> None:
        self.server = DriverServer(Listening("127.0.0.1"), "token")
        self._last = last
        self.closings: list[bool] = []
        """Whether the slot was only closing, by its heartbeats."""
        self.credentials = Credentials(token="token", attempt=1)
        self.address = ""
        self.told = SlotMetrics()
        self._has_registered, self._has_told = threading.Event(), threading.Event()
        self.server.serve(1, self._answer)

    def _answer(self, message: ToDriver) -> bool:
        if isinstance(message, Register):
            self.address = message.address
            self._has_registered.set()
        if isinstance(message, Heartbeat):
            self.closings.append(message.is_closing)
        if isinstance(message, Heartbeat) and message.metrics.operators:
            self.told = message.metrics
            self._has_told.set()
        return True

    def run(self) -> None:
        assert self._has_registered.wait(30)
        with SlotClient(self.address, self.credentials) as client:
            client.call(Start(peers={0: self.address}))
            assert self._has_told.wait(30)
            client.call(self._last)


def launched(driver: Listener, function: KeyedProcessFunction, folder: Path) -> SlotLaunch:
    builder = Builder()
    stream = builder.source("s", ORDER_SCHEMA).key_by("user")
    stream.process(function, ORDER_SCHEMA, uid="spend")
    return SlotLaunch(
        first_checkpoint_id=1,
        plan=plan_job(builder.graph, job_id="job", parallelism=1, max_parallelism=16),
        epoch=1,
        attempt=1,
        backend=load_backend("rocksdb", memory="16m", directories=[str(folder)]),
        job=load_storage("memory").job("job"),
        credentials=driver.credentials,
        driver_address=driver.server.address,
    )


class ClosesOnceThatIsTold(Spend):
    """Its slot's heartbeats must go on saying how it is, while it closes."""

    is_told: Callable[[], bool]

    def close(self) -> None:
        wait_until(type(self).is_told)


def test_a_heartbeat_says_when_a_slot_only_closes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Until then it may be committing, and is waited for."""
    monkeypatch.setattr(slot_process, "_HEARTBEAT_S", 0.02)
    driver = Listener(Finish())
    monkeypatch.setattr(
        ClosesOnceThatIsTold, "is_told", lambda: True in driver.closings, raising=False
    )
    launch = launched(driver, ClosesOnceThatIsTold(), tmp_path)
    listening = threading.Thread(target=driver.run)
    listening.start()
    try:
        host_slot(launch, 0, Listening("127.0.0.1"))
    finally:
        listening.join(30)
        driver.server.close()
    assert driver.closings[0] is False
    assert driver.closings == sorted(driver.closings)
    assert driver.closings[-1] is True


def test_a_heartbeat_carries_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(slot_process, "_HEARTBEAT_S", 0.02)
    driver = Listener(CancelAttempt("that was all"))
    launch = launched(driver, Spend(), tmp_path)
    listening = threading.Thread(target=driver.run)
    listening.start()
    try:
        with pytest.raises(Fenced, match="that was all"):
            host_slot(launch, 0, Listening("127.0.0.1"))
    finally:
        listening.join(30)
        driver.server.close()
    spend = driver.told.operators["spend"]
    assert set(driver.told.backend) == documented("`backend`")
    assert set(spend.states["total"]) == documented("`states`")
    assert spend.operator_states == {"seen": {"entries": 0}}
    shown = msgspec.to_builtins(driver.told)
    assert set(shown) == documented("Of a slot")
    assert set(shown["chains"]["spend"]) == documented("`chains`")
    assert set(shown["operators"]["spend"]) == {"store", "states", "operator_states"}
