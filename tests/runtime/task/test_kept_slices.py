"""A kept slice holds its own rows, not the batch that it was cut from: by measured memory."""

from __future__ import annotations

import gc
import io
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.runtime.columns.types import detached
from holdfast.runtime.network import Credentials, ExchangeSender
from holdfast.runtime.planning.partitioning import Partitioner
from holdfast.runtime.protocol.messages import PushKey
from holdfast.runtime.sinks import CollectSink, WriterContext
from holdfast.runtime.sinks.files.formats import FORMATS, Encoding
from holdfast.runtime.task.channel import Bell, Channel
from holdfast.runtime.task.staging import Staging
from holdfast.storage import ManualClock

SCHEMA = pa.schema([("k", pa.int64()), ("text", pa.string()), ("many", pa.list_(pa.int32()))])
ROWS, KEPT = 20_000, 200
BATCHES = 8


def a_batch() -> pa.RecordBatch:
    numbers = np.arange(ROWS)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(numbers),
            pa.array([f"row {number} of many" for number in range(ROWS)]),
            pa.array([[number, number] for number in range(ROWS)], pa.list_(pa.int32())),
        ],
        schema=SCHEMA,
    )


Keep = Callable[[pa.RecordBatch], object]


@contextmanager
def channel() -> Iterator[Keep]:
    kept = Channel(1 << 30, Bell())
    yield kept.offer
    kept.close()


@contextmanager
def put_channel() -> Iterator[Keep]:
    kept = Channel(1 << 30, Bell())
    yield kept.put
    kept.close()


@contextmanager
def staging() -> Iterator[Keep]:
    kept = Staging({"s": {"e": Channel(1 << 30, Bell())}})
    yield partial(kept.add, kept.open(PushKey("s", "e", 0, 0, 0)))
    kept.close()


@contextmanager
def sender() -> Iterator[Keep]:
    """To a server that never answers, so all sends wait."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        sender = ExchangeSender(
            f"grpc://127.0.0.1:{deaf.getsockname()[1]}",
            Credentials(token="t", attempt=1),
            sender=0,
            edges={"e": SCHEMA},
            capacity_bytes=1 << 30,
            bell=Bell(),
            on_error=lambda _error: None,
        )
        kept = sender.channel("e")
        yield kept.send
        assert kept.size_bytes
    sender.close()


@contextmanager
def parquet_file() -> Iterator[Keep]:
    file: Any = io.BytesIO()
    encoding = Encoding(SCHEMA, "none", block_bytes=1 << 30)
    kept = FORMATS["parquet"].encoder(file, encoding)
    yield kept.write
    kept.end()


@contextmanager
def collect_sink() -> Iterator[Keep]:
    context = WriterContext(
        job_id="job",
        uid="out",
        slot=0,
        parallelism=1,
        attempt="1",
        schema=SCHEMA,
        clock=ManualClock(),
        collect=lambda _part, _rows: None,
    )
    kept = CollectSink().open_writer(context)
    yield kept.write
    kept.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "keeper", [channel, put_channel, sender, staging, collect_sink, parquet_file]
)
def test_a_slice_that_waits_holds_its_own_rows(keeper: Any) -> None:
    gc.collect()
    with keeper() as keep:
        before = pa.total_allocated_bytes()
        counted = 0
        for _ in range(BATCHES):
            part = a_batch().slice(ROWS // 2, KEPT)
            counted += part.nbytes
            keep(part)
            del part
        held = pa.total_allocated_bytes() - before
        assert held <= 2 * counted + BATCHES * 4096, f"{held} bytes held, {counted} counted"


def test_parts_of_a_partitioned_batch_are_held_once() -> None:
    """Of a few slots each keeps its part of the batch, and copies are made only of small ones."""
    parts = Partitioner(["k"], SCHEMA, parallelism=3, max_parallelism=128).split(a_batch())
    kept = [detached(part) for part in parts if part is not None]
    del parts
    assert sum(each.get_total_buffer_size() for each in kept) < 3 * a_batch().nbytes
    assert [
        each.num_rows for each in kept if each.get_total_buffer_size() > 2.1 * each.nbytes
    ] == []


def test_a_slice_is_the_same_rows_when_it_is_copied() -> None:
    batch = pa.record_batch(
        {
            "flag": pa.array([number % 2 == 0 for number in range(ROWS)]),
            "word": pa.array([f"w{number % 9}" for number in range(ROWS)]).dictionary_encode(),
            "half": pa.array([None if number % 3 else number for number in range(ROWS)]),
            "row": pa.array([{"a": number, "b": [number]} for number in range(ROWS)]),
        }
    )
    part = batch.slice(7_001, 33)
    copied = detached(part)
    copied.validate(full=True)
    assert copied.equals(part)
    assert copied.schema.equals(part.schema)
    assert copied.get_total_buffer_size() < batch.get_total_buffer_size() / 50
    assert detached(batch) is batch
    assert detached(batch.slice(0, 0)).num_rows == 0
