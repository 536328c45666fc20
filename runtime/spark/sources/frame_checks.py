"""Checks of a DataFrame that is to be a source, by its plan, before anything starts.

`cleanSource` is refused: Spark removes files by its own commits, which run ahead of checkpoints.
For sources of third parties it is not known whether they drop what Spark has committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from holdfast.storage import Invalid

__all__ = ["check_classic", "check_rewindable", "check_supported"]

_WITH_STATE = (
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "FlatMapGroupsInPandasWithState",
    "FlatMapGroupsWithState",
    "GlobalLimit",
    "TransformWithState",
    "TransformWithStateInPandas",
    "TransformWithStateInPySpark",
)
_SWITCH = "spark.sql.streaming.unsupportedOperationCheck"
"""By which a user turns off the check of `check_supported`."""


def check_classic(frame: Any, uid: str) -> None:
    """Check that an object is a DataFrame whose plan is in this process.

    Raises:
        Invalid: it is of Spark Connect, or no DataFrame at all.
    """
    if not isinstance(frame, ClassicDataFrame):
        kind = type(frame)
        raise Invalid(
            f"source {uid!r} is not a DataFrame of the session that the job runs on",
            expected="a DataFrame of a classic SparkSession",
            found=f"{kind.__module__}.{kind.__qualname__}",
            fix="Read it with the environment's own session; Spark Connect hides the driver"
            if "connect" in kind.__module__
            else "Read it by the environment's spark, such as env.spark.readStream.json(path)",
        )


def check_rewindable(frame: DataFrame, uid: str) -> None:
    """Check that a streaming DataFrame can be read again from an earlier position.

    Raises:
        Invalid: it keeps state of its own in Spark, or has Spark remove what it has read.
    """
    plan = frame._jdf.queryExecution().analyzed()
    keeping = _first_with_state(plan)
    if keeping is not None:
        raise Invalid(
            f"source {uid!r} keeps state of its own in Spark, which no checkpoint of Holdfast has",
            expected="selections, filters, maps, and joins with DataFrames of a fixed size",
            found=keeping,
            fix="Do that part of the work in the job, by key_by and a function with state",
        )
    for name, value in _options(frame, plan):
        if name.lower() == "cleansource" and value.lower() != "off":
            raise Invalid(
                f"source {uid!r} has Spark remove files as soon as it has read them, and the job "
                "may yet have to read them again",
                expected="the option cleanSource not set, or off",
                found=f"{name}={value}",
                fix="Leave the option out; files that older checkpoints have read may be removed",
            )


def _first_with_state(plan: Any) -> str | None:
    """The name of an operator in a plan of Spark that keeps state from batch to batch."""
    if not plan.isStreaming():
        return None
    children = _listed(plan.children())
    name = str(plan.nodeName())
    if name in _WITH_STATE:
        return name
    if name == "Join" and all(child.isStreaming() for child in children):
        return "Join of two streams"
    return next(filter(None, map(_first_with_state, children)), None)


def _options(frame: DataFrame, plan: Any) -> Iterator[tuple[str, str]]:
    """The options of all streams in a plan, as they were written."""
    jvm: Any = frame.sparkSession._jvm
    as_java = jvm.scala.jdk.javaapi.CollectionConverters.asJava
    for leaf in _listed(plan.collectLeaves()):
        kind, old = leaf.getClass().getSimpleName(), None
        if kind == "StreamingRelationV2":
            yield from dict(leaf.extraOptions()).items()
            old = leaf.v1Relation().get() if leaf.v1Relation().isDefined() else None
        elif kind == "StreamingRelation":
            old = leaf
        if old is not None:
            yield from dict(as_java(old.dataSource().options())).items()


def _listed(found: Any) -> list[Any]:
    return [found.apply(place) for place in range(found.size())]


def check_supported(frame: DataFrame, uid: str) -> None:
    """Run the check that Spark runs when the query starts, which is long after the job has.

    Raises:
        Invalid: it is a stream that Spark cannot process, such as one that is to be sorted.
    """
    spark: Any = frame.sparkSession
    if str(spark.conf.get(_SWITCH, "true")).lower() == "false":
        return  # switched off for all queries of the session
    plan, sql = frame._jdf.queryExecution().analyzed(), spark._jvm.org.apache.spark.sql
    append = sql.streaming.OutputMode.Append()
    try:
        sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, append)
    except AnalysisException as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise Invalid(
            f"Spark cannot process source {uid!r} as a stream",
            where="from_stream",
            found=lines[0] if lines else repr(error),
            fix="Leave that out of the DataFrame, and do it in the job",
        ) from error
