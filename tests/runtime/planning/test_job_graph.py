"""A graph belongs to one job: streams of others, and of jobs that were started, are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.runtime.api.functions import OutputTag
from holdfast.runtime.sinks import CollectSink
from holdfast.runtime.stream import DataStream
from holdfast.storage import Invalid
from support.simulations.jobs import ORDERS, Builder


def test_streams_of_one_job_go_together() -> None:
    mine = Builder()
    first, second = mine.source("a", ORDERS), mine.source("b", ORDERS)
    first.union(second).sink_to(CollectSink(), uid="out")
    assert [node.uid for node in mine.graph.nodes] == ["a", "b", "out"]


def test_a_stream_of_another_job_is_refused() -> None:
    mine, other = Builder().source("a", ORDERS), Builder().source("b", ORDERS)
    with pytest.raises(Invalid, match="stream 'b' is of another job") as caught:
        mine.union(other).sink_to(CollectSink(), uid="out")
    assert caught.value.where == "sink 'out'"


USES: list[Callable[[DataStream], Any]] = [
    lambda stream: stream.map(tuple, ORDERS, uid="more"),
    lambda stream: stream.sink_to(CollectSink()),
    lambda stream: stream.with_watermark("amount", 0),
    lambda stream: stream.get_side_output(OutputTag("side", ORDERS)),
]


@pytest.mark.parametrize("use", USES)
def test_a_stream_of_a_job_that_was_started_is_refused(use: Callable[[DataStream], Any]) -> None:
    mine = Builder()
    streams = [mine.source("a", ORDERS)]
    streams.append(streams[0].flat_map(tuple, ORDERS, uid="m"))
    mine.graph.start("orders")
    stream = streams[use is USES[-1]]
    with pytest.raises(Invalid, match="the stream is of job 'orders', which was started already"):
        use(stream)
