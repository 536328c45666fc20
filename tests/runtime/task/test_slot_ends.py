"""The end of a job: a slot that is done stays until its peers are, for they may still commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pytest

from holdfast.backends import load_backend
from holdfast.runtime import slot_process
from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.api.functions import KeyedProcessFunction
from holdfast.runtime.network import Credentials, DriverServer, SlotClient
from holdfast.runtime.planning.job_plan import plan_job
from holdfast.runtime.protocol.elements import Barrier, EndOfInput
from holdfast.runtime.protocol.messages import (
    Acknowledge,
    CheckpointCompleted,
    Failed,
    Finish,
    Finished,
    Heartbeat,
    MarkSource,
    Ready,
    Register,
    Start,
    ToDriver,
)
from holdfast.runtime.sinks import SinkWriter, TwoPhaseCommitSink, WriterContext
from holdfast.runtime.slot_process import SlotLaunch, host_slot
from holdfast.storage import HoldfastError, load_storage
from support.jobs.operator_runs import ORDERS
from support.simulations.jobs import Builder

HAS_COMMITTED = threading.Event()
MAY_COMMIT = threading.Event()


class Quiet(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        return None


class SlowSink(TwoPhaseCommitSink[str]):
    """That of slot 1 takes long to commit."""

    committable_type = str

    def check(self, schema: pa.Schema) -> None:
        pass

    def open_writer(self, context: WriterContext) -> SinkWriter[str]:
        return _Writer()

    def commit(self, committables: Sequence[str], context: WriterContext) -> None:
        if context.slot == 1:
            assert MAY_COMMIT.wait(30)
            HAS_COMMITTED.set()

    def clean(self, keep: Sequence[str], context: WriterContext) -> None:
        pass


class _Writer(SinkWriter[str]):
    def write(self, batch: pa.RecordBatch) -> None:
        pass

    def prepare(self, checkpoint_id: int) -> Sequence[str]:
        return ["part"]

    def close(self) -> None:
        pass


class PlayedJob:
    """The driver of two slots that exchange rows, up to their end."""

    def __init__(self) -> None:
        self.told: list[ToDriver] = []
        self._changed = threading.Condition()
        self.server = DriverServer(Listening("127.0.0.1"), "token")
        self.server.serve(1, self._answer)
        builder = Builder()
        stream = builder.source("s", ORDERS)
        for uid in ("first", "second"):
            stream = stream.key_by("user").process(Quiet(), ORDERS, uid=uid)
        stream.sink_to(SlowSink(), uid="out")
        self.launch = SlotLaunch(
            first_checkpoint_id=1,
            plan=plan_job(builder.graph, job_id="job", parallelism=2, max_parallelism=16),
            epoch=1,
            attempt=1,
            backend=load_backend("hashmap"),
            job=load_storage("memory://").job("job"),
            credentials=Credentials(token="token", attempt=1),
            driver_address=self.server.address,
        )

    def _answer(self, message: ToDriver) -> bool:
        with self._changed:
            self.told.append(message)
            self._changed.notify_all()
        return True

    def wait_for(self, kind: type, **attributes: Any) -> list[Any]:
        """A message of this kind from each slot, in order of slots."""

        def found() -> dict[int, Any]:
            return {
                each.slot: each  # type: ignore[union-attr]
                for each in self.told
                if isinstance(each, kind)
                and all(getattr(each, name) == value for name, value in attributes.items())
            }

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) == 2, 30), kind.__name__
        return [each for _, each in sorted(found().items())]

    def begin(self, links: Sequence[SlotClient]) -> None:
        """Everything from the start of two slots that have registered to the last barrier."""
        for link in links:
            link.call(Start({each.slot: each.address for each in self.wait_for(Register)}))
        self.wait_for(Ready)
        for link in links:
            link.call(MarkSource(source="s", sequence=1, mark=EndOfInput()))
        self.wait_for(Finished)
        for link in links:
            link.call(MarkSource(source="s", sequence=2, mark=Barrier(1, None)))

    def finish(self, links: Sequence[SlotClient]) -> None:
        """The same, and on to the command to finish."""
        self.begin(links)
        self.wait_for(Acknowledge)
        for command in (CheckpointCompleted(1), Finish()):
            for link in links:
                link.call(command)


@contextmanager
def hosted(job: PlayedJob) -> Iterator[list[Any]]:
    HAS_COMMITTED.clear()
    MAY_COMMIT.clear()
    with ThreadPoolExecutor(2) as slots:
        futures = [
            slots.submit(host_slot, job.launch, slot, Listening("127.0.0.1")) for slot in range(2)
        ]
        try:
            yield futures
        finally:
            MAY_COMMIT.set()
            for future in futures:
                with suppress(HoldfastError):
                    future.result(30)
            job.server.close()


def test_a_slot_that_is_done_does_not_break_off_the_streams_of_one_that_still_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waited for ten seconds, and the other one failed when it had committed at last."""
    monkeypatch.setattr(slot_process, "_LAST_SEND_S", 0.2, raising=False)
    job = PlayedJob()
    with hosted(job) as futures:
        links = [
            SlotClient(each.address, job.launch.credentials) for each in job.wait_for(Register)
        ]
        job.finish(links)
        assert not futures[0].done()
        with suppress(TimeoutError):
            futures[0].result(2)
        assert not futures[0].done(), "the other slot would lose its streams"
        MAY_COMMIT.set()
        assert [future.result(30) for future in futures] == [None, None]
        for link in links:
            link.close()
    assert HAS_COMMITTED.is_set()
    assert not any(isinstance(each, Failed) for each in job.told)
    job.wait_for(Heartbeat, is_closing=True)


def test_a_failure_is_told_also_where_operators_do_not_get_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver heard that the slot lives, and waited for ever."""
    monkeypatch.setattr(slot_process, "_CLOSING_S", 0.1, raising=False)
    may_close = threading.Event()

    def fail(_: _Writer, _checkpoint_id: int) -> Sequence[str]:
        raise ValueError("no disk")

    def hang(_: _Writer) -> None:
        assert may_close.wait(30)

    monkeypatch.setattr(_Writer, "prepare", fail)
    monkeypatch.setattr(_Writer, "close", hang)
    job = PlayedJob()
    with hosted(job) as futures:
        links = [
            SlotClient(each.address, job.launch.credentials) for each in job.wait_for(Register)
        ]
        job.begin(links)
        told = job.wait_for(Failed)
        assert not any(future.done() for future in futures)
        assert {each.uid for each in told} == {"out"}
        assert "no disk" in told[0].traceback
        may_close.set()
        for link in links:
            link.close()
