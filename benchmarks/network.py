"""What encryption costs: rows pushed into a slot, and a whole job, with TLS beside without.

Both sides of a push are in this process, as a slot and its pushing task share a machine's cores.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import xxhash

from benchmarks.harness import Result, Scale, seconds
from benchmarks.spine import RunningSum, SumBatches
from holdfast.runtime import NetworkConfig
from holdfast.runtime.api.addresses import Listening
from holdfast.runtime.network import (
    LOOPBACK_ONLY,
    Credentials,
    Protection,
    SlotClient,
    SlotServer,
    make_certificate,
)
from holdfast.runtime.protocol.messages import PushKey, Winner
from holdfast.runtime.task.channel import Bell, Channel
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
    for way, samples in rates.items():
        yield Result(f"network.push.{way}", "rows/s", tuple(samples), answer, "", parameters)
    unit = "rows/s, share of that in the clear"
    yield Result("network.push.share", unit, tuple(ratios), answer, "", parameters)
    if scale is Scale.FULL:
        yield from _keyed_sum()


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
