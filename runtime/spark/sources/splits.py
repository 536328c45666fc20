"""Divides the rows of a DataFrame of a fixed size into splits, the same ones in each attempt.

A position says how many splits are done, so a split must have the same rows whenever it is read.
Splits of files, ranges and rows of the driver can be described, so a later run can check that it
has the same ones. Those of a shuffle, a join of partitions or a database cannot: a new plan may
divide the rows otherwise. They are planned once in a run and kept, with the files of the shuffles,
and no other run can use them. On a cluster, splits of files are kept likewise, since Spark sizes
them by the number of cores at that moment.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from holdfast.runtime.spark.sources.push import PUSHED_SCHEMA, Pusher
from holdfast.runtime.spark.sources.source_parts import use_long_batches
from holdfast.storage import Entropy

__all__ = ["Division"]

_KEPT = "kept "
_ALWAYS_AS_MANY_CORES = re.compile(r"local(\[|$)")
_RANGE = re.compile(r"Range \([^)]*\)")


class Division:
    """The splits of one DataFrame, for all attempts of one run. Used by one thread at a time."""

    def __init__(self, frame: DataFrame, entropy: Entropy) -> None:
        self._frame = frame
        self._entropy = entropy
        self._planned: DataFrame | None = None
        self._fingerprint: str | None = None
        self.is_repeatable = True
        """Whether another run can check that it has the same splits. Set by `plan`."""

    def plan(self) -> bool:
        """Divide the rows, unless an earlier attempt did; False if so. Shuffles run now."""
        if self._planned is not None:
            return False
        context = self._frame.sparkSession.sparkContext
        own = self._frame.sparkSession._jsparkSession.cloneSession()
        session = SparkSession(context, own)
        jvm: Any = session._jvm
        plan = self._frame._jdf.queryExecution().analyzed()
        frame = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(own, plan), session)
        use_long_batches(frame)
        rows = frame._jdf.queryExecution().toRdd()
        facts = _description(jvm, frame)
        if facts is None or not _ALWAYS_AS_MANY_CORES.match(str(context.master)):
            kept = own.internalCreateDataFrame(rows, frame._jdf.schema(), False)
            frame = DataFrame(kept, session)
            self._fingerprint = _KEPT + self._entropy.token() if facts is None else _hash(facts)
        self.is_repeatable = facts is not None
        self._planned = frame
        return True

    def pushed_by(self, push: Pusher) -> tuple[RDD[Any], str]:
        """An RDD that pushes each split when it is computed, and a fingerprint of the splits."""
        assert self._planned is not None
        pushed = self._planned.mapInArrow(push, PUSHED_SCHEMA)
        splits = pushed.rdd
        if self._fingerprint is not None:
            return splits, self._fingerprint
        facts = _description(pushed.sparkSession._jvm, pushed)
        return splits, _KEPT + self._entropy.token() if facts is None else _hash(facts)


def _hash(facts: list[str]) -> str:
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]


def _description(jvm: Any, frame: DataFrame) -> list[str] | None:
    """What each split of a DataFrame holds, in order; None if that cannot be described."""
    execution = frame._jdf.queryExecution()
    partitions = execution.toRdd().partitions()  # an adaptive plan is final only after this
    ranges = list(dict.fromkeys(_RANGE.findall(str(execution.executedPlan().toString()))))
    try:
        facts = [_described(jvm, partition) for partition in partitions]
    except Py4JError:  # another class of the same simple name
        return None
    told = [fact for fact in facts if fact is not None]
    return [*ranges, *told] if len(told) == len(facts) else None


def _described(jvm: Any, partition: Any) -> str | None:
    match str(partition.getClass().getSimpleName()):
        case "FilePartition":
            return "; ".join(
                f"{file.toString()}, {file.fileSize()} bytes of {file.modificationTime()}"
                for file in partition.files()
            )
        case "DataSourceRDDPartition":
            inner = partition.inputPartition()
            return _described(jvm, inner.get()) if inner.isDefined() else "empty"
        case "UnionPartition":
            return _described(jvm, partition.parentPartition())
        case "ParallelCollectionPartition":
            values = jvm.scala.jdk.javaapi.CollectionConverters.asJava(partition.values())
            return f"values of hash {jvm.java.util.Arrays.deepHashCode(values.toArray())}"
    return None
