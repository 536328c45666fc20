"""A micro-batch of many times the memory of its slots gets through, and no slot grows by more."""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.backends import ReducingStateDescriptor
from holdfast.runtime import (
    BatchContext,
    KeyedBatchFunction,
    NetworkConfig,
    RuntimeContext,
    StreamEnvironment,
)

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ROWS = 134_217_728  # of 16 bytes: 2 GiB
MEMORY_MIB = 512
OWN_MIB = 400
"""Of a slot's process without rows: Python, libraries, the batch that it works on, the network."""


class Sum(KeyedBatchFunction):
    def open(self, ctx: RuntimeContext) -> None:
        self.total = ctx.get_reducing_state(ReducingStateDescriptor("total", operator.add, int))

    def process_batch(self, batch: pa.RecordBatch, ctx: BatchContext) -> Iterable[Any]:
        self.total.reduce_many(batch.column("key"), batch.column("value"))
        return ()


def own_memory_mib(process: int) -> int:
    """Memory of its own: pages of mapped files are the system's, which takes them as it needs."""
    status = Path(f"/proc/{process}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) // 1024


def test_a_first_micro_batch_of_2_gb_runs_in_slots_of_512_mib(tmp_path: Path) -> None:
    spilled = tmp_path / "spilled"
    env = StreamEnvironment(
        parallelism=2,
        checkpointing="10s",
        storage=str(tmp_path / "checkpoints"),
        network=NetworkConfig(memory=f"{MEMORY_MIB} mb", directories=(str(spilled),)),
    )
    rows = (
        env.spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .load()
        .selectExpr("value % 1000 as key", "value % 10 as value")
    )
    keyed = env.from_stream(rows, uid="rows").key_by("key")
    keyed.process_batch(Sum(), "key long, total long", uid="sum")
    job = env.execute_async("large")
    most, on_disk = [0], [0]

    def has_gone_on() -> bool:
        """The second batch is let in when the first one is nearly processed."""
        most.extend(own_memory_mib(process) for process in job.slot_pids().values())
        on_disk.append(sum(file.stat().st_size for file in spilled.rglob("*.arrows")))
        return int(job.metrics()["sources"].get("rows", {}).get("batches", 0)) >= 2

    moment = threading.Event()
    while not (has_gone_on() or job.status.is_final):
        moment.wait(0.2)
    assert not job.status.is_final
    job.cancel()
    assert max(most) < MEMORY_MIB + OWN_MIB, f"{max(most)} MiB"
    assert max(on_disk) > 512 << 20, "the rest has been on disk"
