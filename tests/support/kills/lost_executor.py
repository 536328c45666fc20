"""A job on a small cluster that kills an executor: the child side of `test_cluster.py`.

`python lost_executor.py ROOT`, in a process group of its own.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from holdfast.runtime import FixedDelayRestart, JobStatus, StreamEnvironment
from support.jobs.spark_jobs import await_that, build_from_files, make_orders, write_orders
from support.jobs.spark_sessions import start_session
from support.states.tried_backends import backend_named

MASTER = "local-cluster[2,2,1024]"
EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
ORDERS = make_orders(9, 400)
FILES = 10


def prepare(root: Path) -> None:
    write_orders(root / "in", ORDERS, FILES)


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def executors() -> list[int]:
    """The executors of this process's group. Other clusters on the machine are none of ours."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            pid = int(path.name)
            is_executor = EXECUTOR in (path / "cmdline").read_bytes()
            if is_executor and int(_stat(pid)[2]) == os.getpgrp():
                found.append(pid)
        except OSError:
            continue  # it has just ended
    return sorted(found)


def host_of(pid: int) -> int:
    """The executor that a slot's process is below."""
    there = set(executors())
    while pid > 1 and pid not in there:
        pid = int(_stat(pid)[1])
    return pid


def main(root: Path) -> None:
    spark = start_session(
        MASTER, spark_executor_memory="768m", spark_executorEnv_PYTHONPATH=os.environ["PYTHONPATH"]
    )
    env = StreamEnvironment(
        spark,
        parallelism=2,
        backend=backend_named("rocksdb", root / "state"),  # it leaves files on the machine
        storage=str(root / "checkpoints"),
        checkpointing="200ms",
        restart=FixedDelayRestart(attempts=20, delay="1s"),
    )
    job = build_from_files(env, root).execute_async("on a cluster")
    await_that(lambda: job.checkpoints().counts.completed >= 2, "two checkpoints")
    victim = host_of(job.slot_pids()[0])
    assert victim in executors()
    os.kill(victim, signal.SIGKILL)
    print(f"killed an executor: {victim}", flush=True)  # noqa: T201 - the parent reads it
    status = job.result(250)
    assert status is JobStatus.FINISHED, status
    assert job.failures
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
