"""Whether a Spark session can carry a job: made for it, or checked before the job starts."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from pyspark.sql import SparkSession

from holdfast.storage import Invalid

__all__ = ["SessionFacts", "check_session", "make_session"]

_CORES_FOR_SOURCES = 2
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """Where the driver and the slots listen."""

    driver_host: str
    slot_host: str | None
    """None: each slot at its executor's interface."""


def make_session(parallelism: int) -> SparkSession:
    """A session on this machine with room for so many slots, and for reading sources beside them.

    Raises:
        Invalid: there is a session already, whose size cannot be changed.
    """
    there = SparkSession.getActiveSession()
    if there is not None:
        return there
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    return (
        SparkSession.builder.master(f"local[{parallelism + _CORES_FOR_SOURCES}]")
        .appName("holdfast")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", _LOOPBACK)
        .config("spark.driver.host", _LOOPBACK)
        .config("spark.sql.shuffle.partitions", str(_CORES_FOR_SOURCES))
        .getOrCreate()
    )


def check_session(spark: SparkSession, parallelism: int) -> SessionFacts:
    """Make sure that the slots of a job can run here.

    Raises:
        Invalid: it is a session of Spark Connect, allocates executors as it likes, has not enough
            task slots, or an executor has not this Holdfast; says what to do.
    """
    _check_classic(spark)
    context: Any = spark.sparkContext
    _check_allocation(context)
    _check_size(context, parallelism)
    _check_executors(spark)
    if context.master.startswith("local[") or context.master == "local":
        return SessionFacts(_LOOPBACK, _LOOPBACK)
    return SessionFacts(context.getConf().get("spark.driver.host") or _LOOPBACK, None)


def _check_classic(spark: Any) -> None:
    if not isinstance(spark, SparkSession) or not hasattr(spark, "_jsparkSession"):
        raise Invalid(
            "this session cannot carry a job",
            expected="a classic SparkSession, in the driver's own process",
            found=f"{type(spark).__module__}.{type(spark).__qualname__}",
            fix="Spark Connect hides the driver; start the job with spark-submit or a local master",
        )


def _check_allocation(context: Any) -> None:
    if context.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise Invalid(
            "dynamic allocation would take executors away from slots, or start them too late",
            expected="spark.dynamicAllocation.enabled=false",
            found="true",
            fix="Set it to false, and spark.executor.instances to the number that you want",
        )


def _check_size(context: Any, parallelism: int) -> None:
    jvm = context._jsc.sc()
    profile = jvm.resourceProfileManager().defaultResourceProfile()
    there = int(jvm.maxNumConcurrentTasks(profile))
    if there < parallelism + 1:
        fix = f"Start the session with more cores, or pass a parallelism of at most {there - 1}"
        if context.master.startswith("local"):
            fix = f'Use master("local[{parallelism + _CORES_FOR_SOURCES}]"), or a lower parallelism'
        raise Invalid(
            "the session is too small for the job",
            where=f"master {context.master}",
            expected=f"at least {parallelism + 1} task slots: {parallelism} for the job's slots, "
            "which run all the time, and one or more to read sources",
            found=str(there),
            fix=fix,
        )


def _check_executors(spark: SparkSession) -> None:
    """Ask every executor which Python and which Holdfast it has."""
    tasks = spark.sparkContext.defaultParallelism

    # Nested, so that it travels as code: an executor without Holdfast could not import it.
    def probe(batches: Iterable[Any]) -> Iterator[Any]:
        import platform  # noqa: PLC0415
        import socket  # noqa: PLC0415
        from importlib import metadata  # noqa: PLC0415

        import pyarrow  # noqa: PLC0415, ICN001

        for _ in batches:
            pass
        try:
            found = metadata.version("holdfast")
            import holdfast.runtime.slot_process  # noqa: F401, PLC0415
        except (ImportError, metadata.PackageNotFoundError) as error:
            found = f"none ({error})"
        fact = [f"{platform.python_version()}|{found}|{socket.gethostname()}"]
        yield pyarrow.RecordBatch.from_pydict({"fact": pyarrow.array(fact)})

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(probe, "fact string").collect()
    mine = version("holdfast")
    for fact in sorted({row.fact for row in rows}):
        python, found, host = fact.split("|", 2)
        if found != mine:
            raise Invalid(
                "an executor has not the Holdfast of the driver",
                where=host,
                expected=mine,
                found=found,
                fix="Install the same version on every executor, or pass it by --py-files",
            )
        if python.rpartition(".")[0] != platform.python_version().rpartition(".")[0]:
            raise Invalid(
                "an executor has not the Python of the driver",
                where=host,
                expected=platform.python_version(),
                found=python,
                fix="Set PYSPARK_PYTHON to an interpreter of the same version",
            )
