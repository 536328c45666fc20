"""Orders become spend per user; a slot is killed, and no row is lost or written twice.

`make demo` runs it: Spark on this machine, a stream of small files, a checkpoint each second, and
`kill -9` in the middle. In the end Spark SQL computes the same from the files, and both must agree.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.backends import ValueStateDescriptor
from holdfast.runtime import (
    FileSink,
    JobHandle,
    JobStatus,
    KeyedContext,
    KeyedProcessFunction,
    OutputTag,
    RuntimeContext,
    StreamEnvironment,
)
from holdfast.storage import SystemClock

FILES, ORDERS_A_FILE, USERS = 12, 500, 150
ORDER = "number long, user string, amount long"
SUSPICIOUS = OutputTag("suspicious", ORDER)

SPENT = "sum(amount) OVER (PARTITION BY user ORDER BY number)"
SAME_IN_SQL = {
    "spend": f"SELECT number, user, {SPENT} AS spent FROM orders",
    "suspicious": f"""SELECT number, user, amount
        FROM (SELECT *, {SPENT} - amount AS before FROM orders)
        WHERE 0 < before AND before < amount""",
}

clock = SystemClock()
began_s = clock.monotonic_s()


class Spend(KeyedProcessFunction):
    """What each user has spent so far. To order for more than all before is suspicious."""

    def open(self, ctx: RuntimeContext) -> None:
        self.spent = ctx.get_state(ValueStateDescriptor("spent", int))

    def process_element(self, order: Any, ctx: KeyedContext) -> Iterator[Any]:
        before = self.spent.value() or 0
        self.spent.update(before + order.amount)
        yield order.number, order.user, before + order.amount
        if 0 < before < order.amount:
            yield SUSPICIOUS, order


def build(env: StreamEnvironment, home: Path) -> None:
    """The job: a source, a function with state, and two sinks."""
    reader = env.spark.readStream.schema(ORDER).option("maxFilesPerTrigger", 1)
    orders = env.from_stream(reader.json(f"{home}/orders"), uid="orders", available_now=True)
    spend = orders.key_by("user").process(
        Spend(), "number long, user string, spent long", uid="spend"
    )
    spend.sink_to(FileSink(f"{home}/spend", format="parquet"), uid="spend-files")
    suspicious = spend.get_side_output(SUSPICIOUS)
    suspicious.sink_to(FileSink(f"{home}/suspicious", format="parquet"), uid="suspicious-files")


def main(home: Path) -> int:
    """Tell the story in a folder; 0 if it ends well."""
    write_orders(home / "orders")
    say(f"{FILES * ORDERS_A_FILE:,} orders of {USERS} users are in {FILES} files")
    with stderr_into(home / "spark.log"):
        env = StreamEnvironment(parallelism=2, storage=f"{home}/checkpoints", checkpointing="1s")
    say("Spark is up; the job reads file by file in two slots, and takes a checkpoint each second")
    build(env, home)
    job = env.execute_async("spend")
    watch(job)
    say(f"the job has {job.result().value}")
    is_same = [compare(env, home, name) for name in SAME_IN_SQL]
    env.spark.stop()
    return 0 if job.failures and all(is_same) else 1


def watch(job: JobHandle) -> None:
    """Say what happens until the job has ended; kill a slot when a third of the orders is in."""
    told: set[str] = set()
    victim = None
    while not job.status.is_final:
        for fact in facts(job):
            if fact not in told:
                say(fact)
                told.add(fact)
        orders_in = sum(source["rows"] for source in job.metrics()["sources"].values())
        if victim is None and orders_in >= FILES * ORDERS_A_FILE // 3:
            victim = job.slot_pids()[1]
            say(f"{orders_in:,} orders are in; kill -9 {victim}: slot 1 is gone, with its state")
            os.kill(victim, signal.SIGKILL)
        clock.sleep_s(0.05)


def facts(job: JobHandle) -> Iterator[str]:
    """What can be said of the job now."""
    last = job.checkpoints().last_completed
    if job.status is JobStatus.RUNNING:
        yield f"the job runs; its slots are processes {job.slot_pids()[0]} and {job.slot_pids()[1]}"
    if job.status is JobStatus.RESTARTING:
        yield f"the job fails: {job.failures[-1]}"
        yield f"it starts again, from checkpoint {last.checkpoint_id}" if last else "it starts anew"
    elif last:
        yield f"checkpoint {last.checkpoint_id} is complete, after {last.duration_ms} ms"


def compare(env: StreamEnvironment, home: Path, name: str) -> bool:
    """Whether what the stream has committed is what Spark SQL finds in the files, row for row."""
    spark = env.spark
    spark.read.schema(ORDER).json(f"{home}/orders").createOrReplaceTempView("orders")
    computed = sorted(spark.sql(SAME_IN_SQL[name]).collect())
    committed = sorted(spark.read.parquet(f"{home}/{name}").collect())
    verdict = "the same, row for row" if committed == computed else "NOT THE SAME"
    say(f"{name}: {len(committed):,} rows committed, {len(computed):,} by Spark SQL: {verdict}")
    return committed == computed


def order(number: int) -> str:
    """A line of JSON; now and then a very large order."""
    amount = 2000 if number % 61 == 0 else number * 31 % 97 + 1
    return json.dumps({"number": number, "user": f"user-{number * 7919 % USERS}", "amount": amount})


def write_orders(folder: Path) -> None:
    """Files for the stream to read one after the other."""
    folder.mkdir()
    for file in range(FILES):
        numbers = range(file * ORDERS_A_FILE, (file + 1) * ORDERS_A_FILE)
        path = folder / f"{file:03}.json"
        path.write_text("\n".join(map(order, numbers)))
        os.utime(path, (file, file))  # Spark reads the oldest file first


@contextmanager
def stderr_into(log: Path) -> Iterator[None]:
    """Programs started inside write to a file what they would say here: Spark says a lot."""
    terminal = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except Exception:
        os.write(terminal, log.read_bytes())
        raise
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def say(line: str) -> None:
    """One line of the story, and when it happened."""
    print(f"{clock.monotonic_s() - began_s:6.1f} s  {line}", flush=True)


if __name__ == "__main__":
    logging.getLogger("holdfast").setLevel(logging.ERROR)  # the story tells what it would warn of
    # A JVM that lives for half a minute does better not to optimize what it runs.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as directory:
        sys.exit(main(Path(directory)))
