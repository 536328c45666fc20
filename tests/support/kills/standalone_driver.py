"""A job on a Standalone cluster, whose test kills what it likes: the child side of its driver.

`python standalone_driver.py ROOT` reads ROOT/settings, goes on from the newest checkpoint, says in
ROOT/told how it is, and drains the job when there is ROOT/stop.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from holdfast.runtime import (
    CheckpointConfig,
    ExponentialDelayRestart,
    JobHandle,
    NetworkConfig,
    StreamEnvironment,
)
from holdfast.storage import SystemClock
from support.jobs.spark_jobs import build, read_orders, sinks_at
from support.jobs.spark_sessions import start_session

_TELL_S = 0.05


def tell(root: Path, job: JobHandle) -> None:
    metrics = job.metrics()
    sources: Any = metrics["sources"]
    told = {
        "status": job.status.value,
        "attempts": metrics["attempts"],
        "batches": sources["orders"]["batches"] if sources else 0,
        "completed": job.checkpoints().counts.completed,
        "slots": job.slot_pids(),
        "trouble": job.trouble,
        "failures": job.failures,
    }
    written = root / "told.new"
    written.write_text(json.dumps(told))
    written.rename(root / "told")


def main(root: Path) -> None:
    settings: Any = json.loads((root / "settings").read_text())
    spark = start_session(settings["master"], **settings["session"])
    spark.sparkContext.setLogLevel("WARN")
    env = StreamEnvironment(
        spark,
        parallelism=2,
        storage=str(root / "checkpoints"),
        checkpointing=CheckpointConfig(interval="300ms", on_cancel="retain"),
        restart=ExponentialDelayRestart(initial_backoff="200ms", max_backoff="1s"),
        network=NetworkConfig(**settings["network"]),
    )
    source = env.from_stream(read_orders(env, root / "in"), uid="orders")
    job = build(env, source, sinks_at(root)).execute_async("job", restore="latest")
    clock = SystemClock()
    while not (root / "stop").exists():
        tell(root, job)
        assert not job.status.is_final, job.failures
        clock.sleep_s(_TELL_S)
    job.stop_with_savepoint(str(root / "savepoints"), drain=True)
    tell(root, job)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
