"""Whether a Spark session can carry a job: checked before the job starts."""

from __future__ import annotations

import logging
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from holdfast.runtime.spark.sessions.task_slots import (
    LIVE_JOBS,
    SlotHold,
    most_task_slots,
    task_slots,
)
from holdfast.storage import Invalid, SystemClock
from holdfast.storage.distribution import DISTRIBUTION, holdfast_version

__all__ = [
    "CORES_FOR_SOURCES",
    "CRASH_REPORTS",
    "check_classic",
    "check_session",
    "on_this_machine",
    "session_of_slots",
    "with_this_python",
]

_MISSING = re.compile(r"ModuleNotFoundError: [^\n]+")

CRASH_REPORTS = "spark.sql.execution.pyspark.udf.faulthandler.enabled"
"""Has Python say how it ends when it crashes."""
CORES_FOR_SOURCES = 2
"""Task slots that a session on this machine has beside those of a job's slots."""
_LOOPBACK = "127.0.0.1"
_LOOK_S = 0.2

_logger = logging.getLogger(__name__)


def on_this_machine(master: str) -> SparkSession.Builder:
    """What makes a session at a master that begins processes on this machine only.

    Its workers are this Python: another one may not have Holdfast. Other machines cannot reach it.
    """
    with_this_python()
    os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    return (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", _LOOPBACK)
        .config("spark.driver.host", _LOOPBACK)
    )


def with_this_python() -> None:
    """Have workers on this machine be this Python: another one may not have Holdfast."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def check_session(
    spark: SparkSession, parallelism: int, job: str, *, wait_s: float = 0.0
) -> SlotHold:
    """Make sure that the slots of a job can run here, and hold the task slots that they need.

    These are to be released when the job has ended.

    Executors that have not registered yet are waited for, so long at most. Where no more can come
    that is not done.

    Raises:
        Invalid: it is a session of Spark Connect, allocates executors as it likes, has not enough
            task slots that other jobs of this process leave free, or an executor has not this
            Holdfast; says what to do.
    """
    check_classic(spark)
    context: Any = spark.sparkContext
    _check_allocation(context)
    hold = _held_in_time(context, parallelism, job, wait_s)
    try:
        session_of_slots(spark)
        return hold
    except BaseException:
        hold.release()
        raise


def session_of_slots(spark: SparkSession) -> SparkSession:
    """A session of the same application whose Python says how it ends when it crashes.

    Its executors have been asked what they have. As long as none comes and nothing changes of what
    they run, later jobs need not ask again.

    Raises:
        Invalid: an executor has not this Holdfast, or not this Python.
    """
    global _asked  # noqa: PLW0603 - a session of Spark lives in one process
    context: Any = spark.sparkContext
    facts = (
        context.applicationId,
        context._jsc.sc().getExecutorMemoryStatus().keySet().toString(),
        context.pythonExec,
        dict(context.environment),
        list(context._python_includes),
    )
    if _asked is None or _asked[0] != facts:
        # Not in the user's session, whose settings are the user's.
        session = spark.newSession()
        session.conf.set(CRASH_REPORTS, "true")
        _check_executors(session)
        _asked = (facts, session)
    return _asked[1]


_asked: tuple[Any, SparkSession] | None = None


def check_classic(spark: Any) -> None:
    """Make sure that a session has its driver in this process.

    Raises:
        Invalid: it has not, or is no session.
    """
    if not isinstance(spark, SparkSession) or not hasattr(spark, "_jsparkSession"):
        raise Invalid(
            "this session cannot carry a job",
            expected="a classic SparkSession, in the driver's own process",
            found=f"{type(spark).__module__}.{type(spark).__qualname__}",
            fix="Spark Connect hides the driver; start the job with spark-submit or a local master"
            if "connect" in type(spark).__module__
            else "Pass a SparkSession, such as SparkSession.builder.getOrCreate(), or nothing",
        )


def _check_allocation(context: Any) -> None:
    if context.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise Invalid(
            "dynamic allocation would take executors away from slots, or start them too late",
            expected="spark.dynamicAllocation.enabled=false",
            found="true",
            fix="Set it to false, and spark.executor.instances to the number that you want",
        )


def _held_in_time(context: Any, parallelism: int, job: str, wait_s: float) -> SlotHold:
    clock = SystemClock()
    end_s = clock.monotonic_s() + wait_s
    is_told = False
    while True:
        there = task_slots(context)
        held = LIVE_JOBS.hold(context.applicationId, job, parallelism, there)
        if isinstance(held, SlotHold):
            return held
        needed = sum(held.values()) + parallelism + 1
        most = most_task_slots(context.master, dict(context.getConf().getAll()), there)
        if clock.monotonic_s() >= end_s or (most is not None and most < needed):
            raise _too_small(context, parallelism, there, held)
        if not is_told:
            is_told = True
            _logger.warning(
                "job %r waits for executors, %g s at most (slot.request.timeout): it needs %d task "
                "slots, and %d have registered",
                job,
                wait_s,
                needed,
                there,
            )
        clock.sleep_s(_LOOK_S)


def _too_small(context: Any, parallelism: int, there: int, held: Mapping[str, int]) -> Invalid:
    taken = sum(held.values())
    more = "a session with more cores"
    if context.master.startswith("local"):
        wide = f"local[{taken + parallelism + CORES_FOR_SOURCES}]"
        more = f'master("{wide}"), or spark-submit --master "{wide}"'
    fix = f"Use {more}, or a lower parallelism"
    if held:
        fix += ", or cancel a job that is not needed"
    others = ", ".join(f"{slots} by job {name!r}" for name, slots in held.items())
    return Invalid(
        "the session has too few free task slots for the job"
        if held
        else "the session is too small for the job",
        where=f"master {context.master}",
        expected=f"at least {parallelism + 1} task slots: {parallelism} for the job's slots, "
        "which run all the time, and one or more to read sources",
        found=f"{there - taken} free: of {there}, {taken} are held ({others})"
        if held
        else str(there),
        fix=fix,
    )


def _check_executors(spark: SparkSession) -> None:
    """Ask every executor which Python and which Holdfast it has."""
    tasks, distribution = spark.sparkContext.defaultParallelism, DISTRIBUTION

    # Nested, so that it travels as code: an executor without Holdfast could not import it.
    def probe(batches: Iterable[Any]) -> Iterator[Any]:
        import platform  # noqa: PLC0415
        import socket  # noqa: PLC0415
        from importlib import metadata  # noqa: PLC0415

        import pyarrow  # noqa: PLC0415, ICN001

        for _ in batches:
            pass
        try:
            found = metadata.version(distribution)
            import holdfast.runtime.slot_process  # noqa: F401, PLC0415
        except (ImportError, metadata.PackageNotFoundError) as error:
            found = f"none ({error})"
        fact = [f"{platform.python_version()}|{found}|{socket.gethostname()}"]
        yield pyarrow.RecordBatch.from_pydict({"fact": pyarrow.array(fact)})

    # In the session of the slots: what runs this is there for them then.
    one_each = spark.range(0, tasks, 1, tasks)
    try:
        rows = one_each.mapInArrow(probe, "fact string").collect()
    except PythonException as error:
        missing = _MISSING.search(str(error))
        if missing is None:
            raise
        raise Invalid(
            "the Python of an executor lacks what Spark and Holdfast need",
            where=str(spark.sparkContext.pythonExec),
            expected="an interpreter that has Holdfast installed, with what that needs",
            found=missing.group(),
            fix=f"Set PYSPARK_PYTHON before the session is made; here it would be {sys.executable}",
        ) from None
    mine = holdfast_version()
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
