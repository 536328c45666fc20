"""Runs conversions as a job of Spark, with a task for each piece of work."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import InheritableThread, SparkContext
from pyspark.accumulators import AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.runtime.spark.sessions.session_checks import on_this_machine
from holdfast.savepoints.conversion import PieceResult, PieceTask, PieceWorker
from holdfast.storage import HoldfastError, Invalid, SystemEntropy, Unavailable

__all__ = ["SparkRunner", "spark_error_line", "spark_runner"]

_APP = "holdfast conversion"
_EXCEPTION = re.compile(r"(?:[a-z]\w*\.)+\w*(?:Exception|Error)\b")
"""How a line of Java's text begins that names an error."""
_SHOWN_CHARACTERS = 4000
_CANCEL_AGAIN_S = 0.2
_JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"
_QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""Java does little here: the time of its optimizing compiler is better spent in Python."""
_OF_SPARK = (Py4JError, PySparkException)
"""A failed task raises either, depending on how the session is set up."""

_Answer = tuple[int, PieceResult | HoldfastError]


@dataclass(frozen=True, slots=True)
class _Ended:
    """The job of Spark is over."""

    error: Exception | None = None


class _Arriving(AccumulatorParam[list[_Answer]]):
    """Passes on the answers of each task when it ends, while the job continues.

    Spark applies what a task has added exactly once, when it has succeeded.
    """

    def __init__(self, arrived: SimpleQueue[_Answer | _Ended] | None) -> None:
        self._arrived = arrived

    def __reduce__(self) -> tuple[type[_Arriving], tuple[None]]:
        return _Arriving, (None,)

    def zero(self, value: list[_Answer]) -> list[_Answer]:
        del value
        return []

    def addInPlace(  # noqa: N802 - Spark calls it so
        self, value1: list[_Answer], value2: list[_Answer]
    ) -> list[_Answer]:
        if self._arrived is None:
            return value1 + value2
        for answer in value2:
            self._arrived.put(answer)
        return value1


@dataclass(frozen=True, slots=True)
class SparkRunner:
    """Runs pieces of work in tasks of Spark, which retries tasks that fail."""

    context: SparkContext

    @property
    def workers(self) -> int:
        """The number of cores that Spark has now."""
        return self.context.defaultParallelism

    def run(
        self, work: PieceWorker, tasks: Sequence[PieceTask]
    ) -> Iterator[tuple[PieceTask, PieceResult]]:
        """Run all tasks; see `Runner`.

        Raises:
            HoldfastError: that of a piece that failed.
            Unavailable: Spark has failed otherwise.
        """
        if not tasks:
            return
        arrived: SimpleQueue[_Answer | _Ended] = SimpleQueue()
        listed = dict(enumerate(tasks))
        with self._job(self._all(work, list(listed.items()), arrived), arrived):
            while True:
                answer = arrived.get()
                if isinstance(answer, _Ended):
                    break
                number, result = answer
                if isinstance(result, HoldfastError):
                    raise result
                yield listed.pop(number), result
        if answer.error is not None and not isinstance(answer.error, _OF_SPARK):
            raise answer.error
        if answer.error is not None or listed:
            why = str(answer.error or f"{len(listed)} pieces without an answer")
            raise Unavailable(
                "Spark could not do a piece of the conversion",
                found=why[:_SHOWN_CHARACTERS],
                fix="Run the same command again: what is done stays done",
            ) from answer.error

    def _all(
        self,
        work: PieceWorker,
        listed: list[tuple[int, PieceTask]],
        arrived: SimpleQueue[_Answer | _Ended],
    ) -> Callable[[], None]:
        """A job with a task for each piece, which is sent that piece only."""
        told = self.context.accumulator([], _Arriving(arrived))
        rows = self.context.parallelize(listed, len(listed))

        def do(row: tuple[int, PieceTask]) -> None:
            number, task = row
            try:
                told.add([(number, work.do(task))])
            except Unavailable:
                raise  # Spark tries the task again
            except HoldfastError as error:
                told.add([(number, error)])

        return lambda: rows.foreach(do)

    @contextmanager
    def _job(
        self, job: Callable[[], None], arrived: SimpleQueue[_Answer | _Ended]
    ) -> Iterator[None]:
        """Run the job in another thread until the context exits; by an error cancel it."""
        group = f"{_APP} {SystemEntropy().token()}"

        def run() -> None:
            try:
                self.context.setJobGroup(group, _APP)
                job()
            except Exception as error:  # noqa: BLE001 - the waiting thread raises it
                arrived.put(_Ended(error))
            else:
                arrived.put(_Ended())

        thread = InheritableThread(target=run, daemon=True)
        thread.start()
        try:
            yield
        except BaseException:
            while thread.is_alive():
                with suppress(*_OF_SPARK):
                    self.context.cancelJobGroup(group)
                thread.join(_CANCEL_AGAIN_S)
            raise
        thread.join()


@contextmanager
def spark_runner(master: str) -> Iterator[SparkRunner]:
    """A runner on the active session, or on a new one at this master, stopped at the end.

    Raises:
        Invalid: there can be no session there.
    """
    before = SparkSession.getActiveSession()
    spark = before or _session(master)
    try:
        yield SparkRunner(spark.sparkContext)
    finally:
        if before is None:
            spark.stop()


def _session(master: str) -> SparkSession:
    is_here = master.startswith("local")
    builder = SparkSession.builder.master(master)
    if is_here:
        # Over TCP each task would wait about 40 ms for a delayed acknowledgement.
        builder = on_this_machine(master).config("spark.python.unix.domain.socket.enabled", "true")
    try:
        with _java_options(_QUICK_COMPILER if is_here else ""):
            return builder.appName(_APP).getOrCreate()
    except Exception as error:  # Spark raises many kinds
        raise Invalid(
            "there can be no session of Spark at this master",
            expected="such as local[2] or spark://host:7077",
            found=f"{master}: {spark_error_line(error)}",
        ) from error


@contextmanager
def _java_options(more: str) -> Iterator[None]:
    """Start Java with one option more, besides those that the user has set."""
    before = os.environ.get(_JAVA_OPTIONS)
    os.environ[_JAVA_OPTIONS] = f"{before or ''} {more}".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ[_JAVA_OPTIONS]
        else:
            os.environ[_JAVA_OPTIONS] = before


def spark_error_line(error: Exception) -> str:
    """The line of an error that names the cause: Java's are followed by a whole stack."""
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    of_java = (line for line in lines if _EXCEPTION.match(line))
    return next(of_java, lines[0] if lines else repr(error))[:_SHOWN_CHARACTERS]
