"""Rows on their way into slots and between them: with TLS, from disk, by one stream of many edges.

Both sides of a push are in this process, as a slot and its pushing task share a machine's cores.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from benchmarks.harness import Result, Scale, peak_memory_bytes, reset_peak_memory, seconds
from benchmarks.spine import RunningSum, SumBatches
from holdfast.runtime import NetworkConfig
from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.network import (
    LOOPBACK_ONLY,
    Credentials,
    ExchangeSender,
    Protection,
    SlotClient,
    SlotServer,
    make_certificate,
)
from holdfast.runtime.protocol.messages import PushKey, Winner
from holdfast.runtime.task.channel import Bell, Channel
from holdfast.runtime.task.spill import Spill
from holdfast.runtime.task.staging import Staging

__all__ = ["run"]

_SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])
_WARM_BATCHES, _BATCHES = 6, 8


def run(scale: Scale) -> Iterator[Result]:
    """Every figure of this module."""
    batch_rows, batches = scale.pick(250_000, 100), scale.pick(64, 2)
    ratios, answers = [], set()
    rates: dict[str, list[float]] = {"clear": [], "tls": []}
    ways = {"clear": LOOPBACK_ONLY, "tls": Protection(make_certificate())}
    for _ in range(scale.repetitions):
        for way, protection in ways.items():
            took_s, answer = _push(protection, batch_rows, batches)
            rates[way].append(batch_rows * batches / took_s)
            answers.add(answer)
        ratios.append(rates["tls"][-1] / rates["clear"][-1])
    (answer,) = answers
    parameters = {"batch_rows": batch_rows, "batches": batches, "row_bytes": 16}
    yield from _spilled(scale)
    yield from _exchanged(scale)
    for way, samples in rates.items():
        yield Result(f"network.push.{way}", "rows/s", tuple(samples), answer, "", parameters)
    unit = "rows/s, share of that in the clear"
    yield Result("network.push.share", unit, tuple(ratios), answer, "", parameters)
    if scale is Scale.FULL:
        yield from _keyed_sum()


def _spilled(scale: Scale) -> Iterator[Result]:
    """Rows that go to local disk and come back, beside rows that wait in memory."""
    batch_rows, batches = scale.pick(250_000, 100), scale.pick(512, 2)
    schema_bytes = batch_rows * 16
    ratios, most, answers = [], [], set()
    for _ in range(scale.repetitions):
        took = {}
        for memory_bytes in (schema_bytes * batches, schema_bytes * batches // 32):
            reset_peak_memory()
            took[memory_bytes], answer = _stage(memory_bytes, batch_rows, batches)
            answers.add(answer)
        most.append(peak_memory_bytes() / 2**20)
        in_memory, on_disk = took.values()
        ratios.append(in_memory / on_disk)
    (answer,) = answers
    parameters = {"batch_rows": batch_rows, "batches": batches, "part_in_memory": 1 / 32}
    yield Result(
        "network.spill.share", "rows/s, share of in memory", tuple(ratios), answer, "", parameters
    )
    yield Result("network.spill.peak", "MiB of the process", tuple(most), answer, "", parameters)


def _stage(memory_bytes: int, batch_rows: int, batches: int) -> tuple[float, str]:
    """How long rows take into staging and out of it, and a hash of what has come."""
    spill, channel = Spill(), Channel(1 << 25, Bell(), schema=_SCHEMA)
    staging = Staging({"s": {"e": channel}}, memory_bytes=memory_bytes, spill=spill)
    numbers = np.arange(batch_rows, dtype=np.int64)
    came = xxhash.xxh64()

    def through() -> None:
        push = staging.open(PushKey("s", "e", 0, 0, 0))
        for number in range(batches):
            column = pa.array(numbers + number)
            batch = pa.RecordBatch.from_arrays([column, column], schema=_SCHEMA)
            staging.add(push, batch)
        staging.complete(push)
        staging.admit("s", 1, batch=0, winners=[Winner(0, 0)])
        while (element := channel.take()) is not None:
            assert isinstance(element, pa.RecordBatch)
            came.update(element.column(0).to_numpy())

    took_s = seconds(through)
    staging.close()
    spill.close()
    return took_s, came.hexdigest()


def _exchanged(scale: Scale) -> Iterator[Result]:
    """Rows between two slots: long batches of one edge, and short ones of several."""
    for edges, batch_rows, batches in ((1, 250_000, 100), (8, 1_000, 600), (8, 10, 600)):
        count = scale.pick(batches, 3)
        runs = [_exchange(edges, batch_rows, count) for _ in range(scale.repetitions)]
        (answer,) = {answer for _, answer in runs}
        yield Result(
            f"network.exchange.{edges}.{batch_rows}",
            "rows/s",
            tuple(rate for rate, _ in runs),
            answer,
            "",
            {"edges": edges, "batch_rows": batch_rows, "batches": count, "row_bytes": 16},
        )


def _exchange(edges: int, batch_rows: int, batches: int) -> tuple[float, str]:
    """How many rows come in a second, and the sum of what has come."""
    credentials, taking, sending = Credentials(token="0" * 32, attempt=1), Bell(), Bell()
    names = [f"edge {number}" for number in range(edges)]
    channels = {(name, 1): Channel(1 << 25, taking, schema=_SCHEMA) for name in names}
    numbers = pa.array(np.arange(batch_rows, dtype=np.int64))
    batch = pa.RecordBatch.from_arrays([numbers, numbers], schema=_SCHEMA)
    server = SlotServer(
        Listening("127.0.0.1"),
        credentials,
        staging=Staging({}),
        channels=channels,
        handle=lambda _: True,
        on_lost=lambda *_: None,
    )

    sums: list[int] = []

    def take() -> None:
        left = edges * batches * batch_rows
        while left > 0:
            came = [channel.take() for channel in channels.values()]
            taken = [each for each in came if isinstance(each, pa.RecordBatch)]
            left -= sum(each.num_rows for each in taken)
            sums.extend(pc.sum(each.column(0)).as_py() for each in taken)
            if not taken:
                taking.wait(1)

    def send() -> None:
        taker = threading.Thread(target=take)
        taker.start()
        for _ in range(batches):
            for name in names:
                channel = sender.channel(name)
                while not channel.has_room:
                    sending.wait(1)
                channel.send(batch)
        taker.join()

    with server:
        sender = ExchangeSender(
            server.address,
            credentials,
            sender=1,
            edges=dict.fromkeys(names, _SCHEMA),
            capacity_bytes=1 << 25,
            bell=sending,
            on_error=lambda _: None,
            buffer_timeout_s=0.005,
        )
        took_s = seconds(send)
        sender.finish(10.0)
        sender.close()
    return edges * batches * batch_rows / took_s, str(sum(sums))


def _push(protection: Protection, batch_rows: int, batches: int) -> tuple[float, str]:
    """How long a push of so many rows takes, and a hash of what has come."""
    credentials = Credentials(token="0" * 32, attempt=1, protection=protection)
    channel = Channel(1 << 40, Bell(), schema=_SCHEMA)
    staging = Staging({"s": {"e": channel}})
    numbers = np.arange(batch_rows, dtype=np.int64)
    batch = pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(numbers)], schema=_SCHEMA)
    server = SlotServer(
        Listening("127.0.0.1"),
        credentials,
        staging=staging,
        channels={},
        handle=lambda _: True,
        on_lost=lambda *_: None,
    )
    key = PushKey("s", "e", 0, 0, 0)
    with server, SlotClient(server.address, credentials) as client:
        client.push_all(key._replace(batch=1), _SCHEMA, [batch])
        took_s = seconds(lambda: client.push_all(key, _SCHEMA, [batch] * batches))
        staging.admit("s", 1, batch=0, winners=[Winner(0, 0)], watermark=None)
        came = xxhash.xxh64()
        while (element := channel.take()) is not None:
            assert isinstance(element, pa.RecordBatch)
            came.update(element.column(0).to_numpy().tobytes())
    return took_s, came.hexdigest()


def _keyed_sum() -> Iterator[Result]:
    """The job of `spine`, in turns with TLS and without."""
    keys, batch_rows = 100_000, 4_000_000
    ratios = []
    for _ in range(3):
        clear, secret = (
            _rows_per_second(keys, batch_rows, NetworkConfig(ssl=ssl)) for ssl in (False, True)
        )
        ratios.append(secret / clear)
    parameters = {"keys": keys, "batch_rows": batch_rows, "slots": 2}
    unit = "rows/s, share of that in the clear"
    yield Result("network.sum.share", unit, tuple(ratios), "", "", parameters)


def _rows_per_second(keys: int, batch_rows: int, network: NetworkConfig) -> float:
    with RunningSum(SumBatches(), keys, batch_rows, network=network) as running:
        began, at = running.until_batch(_WARM_BATCHES), running.rows()
        ended = running.until_batch(running.batches() + _BATCHES)
        return (running.rows() - at) / (ended - began)
