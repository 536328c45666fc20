"""The process of a slot: what it tells the driver of a failure, and when it does not begin."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.backends import load_backend
from holdfast.runtime import slot_process
from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.api.errors import NotOpened, OperatorFailed, operator_named
from holdfast.runtime.api.functions import KeyedProcessFunction, ProcessFunction, RuntimeContext
from holdfast.runtime.api.network_config import NetworkConfig
from holdfast.runtime.network import Credentials, DriverServer
from holdfast.runtime.operators import KeyedProcessSpec
from holdfast.runtime.planning.job_plan import plan_job
from holdfast.runtime.protocol.messages import Failed, Heartbeat, ToDriver
from holdfast.runtime.slot_process import SlotFailed, SlotLaunch, host_slot
from holdfast.storage import Fenced, Invalid, Unavailable, load_storage
from support.jobs.operator_runs import ORDERS, keyed, opened, running
from support.simulations.jobs import Builder


class Parse(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if value.amount > 3:
            raise KeyError("price" + value.user)
        yield tuple(value)


class Leaving(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        sys.exit(3)


class Driver:
    def __init__(self) -> None:
        self.told: list[ToDriver] = []

    def call(self, message: ToDriver) -> bool:
        self.told.append(message)
        return True


def reported(error: Exception) -> Failed:
    driver = Driver()
    slot_process._report(driver, 1, error)  # type: ignore[arg-type]
    (message,) = driver.told
    assert isinstance(message, Failed)
    assert message.slot == 1
    return message


def failed(function: KeyedProcessFunction, row: tuple[Any, ...]) -> OperatorFailed:
    with (
        running(keyed(function)) as slot,
        pytest.raises(OperatorFailed) as caught,
        operator_named("op"),
    ):
        slot.feed([row])
    return caught.value


def test_the_driver_is_told_of_a_users_error_by_method_row_and_exception() -> None:
    message = reported(failed(Parse(), ("ann", 4)))
    summary, _, line = message.summary.rpartition(" (test_slot_process.py:")
    assert summary == (
        "the code of operator 'op' failed in Parse.process_element, row Row(user='ann', amount=4): "
        "KeyError: 'priceann'"
    )
    assert line[:-1].isdigit()
    assert 'raise KeyError("price" + value.user)' in message.traceback
    assert (message.uid, message.is_fatal) == ("op", False)


class Asking(KeyedProcessFunction):
    """Raises one error because of another one."""

    def __init__(self, error: Exception, cause: Exception | None = None) -> None:
        self.error, self.cause = error, cause

    def process_element(self, value: Any, ctx: Any) -> None:
        raise self.error from self.cause


@pytest.mark.parametrize(
    ("function", "is_users"),
    [
        (Asking(KeyError("price")), True),
        (Asking(FileNotFoundError(2, "no such file")), True),
        (Asking(ConnectionRefusedError(111, "refused")), False),
        (Asking(TimeoutError()), False),
        (Asking(ValueError("no answer"), OSError(28, "no space left")), False),
    ],
)
def test_a_failure_report_says_whether_user_code_is_at_fault(
    function: Asking,
    is_users: bool,  # noqa: FBT001
) -> None:
    """What comes from outside may pass, and is worth any number of attempts."""
    assert reported(failed(function, ("ann", 4))).is_users is is_users
    assert not reported(Unavailable("a stream broke off")).is_users


def test_a_failure_report_is_short_whatever_the_row_holds() -> None:
    message = reported(failed(Parse(), ("a" * 10_000, 4)))
    assert 400 < len(message.summary) < 600
    assert message.summary.count("…") == 2


def test_a_function_that_wants_to_end_the_process_has_failed() -> None:
    message = reported(failed(Leaving(), ("ann", 4)))
    assert message.summary.startswith("the code of operator 'op' failed in Leaving.process_element")
    assert ": SystemExit: 3 (test_slot_process.py:" in message.summary
    assert "sys.exit(3)" in message.traceback


def test_an_operator_that_cannot_be_built_here_is_fatal() -> None:
    spec = KeyedProcessSpec(
        uid="op",
        name="process",
        input_schema=ORDERS,
        output_schema=ORDERS,
        function=b"cno_such_module\nF\n.",
        key_columns=("user",),
    )
    with pytest.raises(NotOpened) as caught, operator_named("op", NotOpened):
        opened(spec)
    message = reported(caught.value)
    assert (message.uid, message.is_fatal) == ("op", True)
    assert "No module named 'no_such_module'" in message.summary
    assert isinstance(caught.value.__cause__, Invalid)
    assert not reported(NotOpened("op", Unavailable("storage"))).is_fatal


def launch_of(builder: Builder, server: DriverServer, **more: Any) -> SlotLaunch:
    return SlotLaunch(
        first_checkpoint_id=1,
        plan=plan_job(builder.graph, job_id="job", parallelism=2, max_parallelism=16),
        epoch=1,
        attempt=1,
        backend=load_backend("hashmap"),
        job=load_storage("memory").job("job"),
        credentials=Credentials(token="token", attempt=1),
        driver_address=server.address,
        **more,
    )


def test_a_slot_has_the_memory_that_it_was_launched_with() -> None:
    """The driver has checked it: it is another version that would send too little."""
    builder = Builder()
    stream = builder.source("s", ORDERS).process(Opening(), ORDERS, uid="first")
    stream.key_by("user").process(Parse(), ORDERS, uid="second")
    server = DriverServer(Listening("127.0.0.1"), "token")
    told: list[ToDriver] = []
    server.serve(1, lambda message: not told.append(message))  # type: ignore[func-returns-value]
    launch = launch_of(builder, server, network=NetworkConfig(memory="1 kb"))
    try:
        with pytest.raises(SlotFailed, match="4 channels and queues in each of 2 slots"):
            host_slot(launch, 0, Listening("127.0.0.1"))
    finally:
        server.close()
    (failed,) = told
    assert isinstance(failed, Failed)
    assert "found 1024 bytes" in failed.summary


OPENED: list[str] = []


class Opening(ProcessFunction):
    def open(self, ctx: RuntimeContext) -> None:
        OPENED.append(ctx.uid)

    def process_element(self, value: Any, ctx: Any) -> None:
        return None


@pytest.mark.parametrize("is_exchanging", [False, True])
def test_a_slot_that_is_refused_before_its_peers_came_opens_no_function(
    is_exchanging: bool,  # noqa: FBT001
) -> None:
    builder = Builder()
    stream = builder.source("s", ORDERS).process(Opening(), ORDERS, uid="first")
    if is_exchanging:
        stream.key_by("user").process(Parse(), ORDERS, uid="second")
    OPENED.clear()
    server = DriverServer(Listening("127.0.0.1"), "token")
    told: list[ToDriver] = []

    def answer(message: ToDriver) -> bool:
        told.append(message)
        return not isinstance(message, Heartbeat)

    server.serve(1, answer)
    launch = launch_of(builder, server)
    try:
        with pytest.raises(Fenced, match="cancelled this attempt"):
            host_slot(launch, 0, Listening("127.0.0.1"))
    finally:
        server.close()
    assert OPENED == []
    assert not any(isinstance(each, Failed) for each in told), "there is no failure to report"
