"""The formats that Holdfast adds to Spark, and how a session comes to know them.

Filters are not taken from Spark 4.1 to 4.3.0, which keeps the plan of a Python source, with what
was pushed, in an object that all queries of a DataFrame share: `df.where(…)` and then `df.count()`
answer too few rows. A test found that. Later versions keep it with the scan, which a field shows.
Until then keys are options of `load`, which are each DataFrame's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from holdfast.runtime.spark.state_frames.history_source import HistorySource
from holdfast.runtime.spark.state_frames.state_source import StateSource
from holdfast.runtime.spark.storage_settings import SessionStorages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register_formats"]

# What each session was told last: Spark warns of a format that takes the place of another one.
_TOLD: WeakKeyDictionary[SparkSession, dict[str, Any]] = WeakKeyDictionary()
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_SCAN_BUILDER = "org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder"


def register_formats(spark: SparkSession) -> None:
    """Let a session read the formats `holdfast`, state, and `holdfast-checkpoints`, their history.

    Again does no harm, and a `StreamEnvironment` does it. What the session says of HDFS and S3 by
    now (`spark.hadoop.*`) is how places there are opened: after a change of that, call it once
    more. Filters are taken from a Spark that keeps them apart, if the session hands them on:
    `spark.sql.python.filterPushdown.enabled`, which is set there unless the session has set it.
    """
    conf: Any = spark.conf
    takes_filters = _keeps_filters_apart(spark)
    if takes_filters:
        said = conf.get(_PUSHDOWN, None)
        if said is None:
            conf.set(_PUSHDOWN, "true")
        takes_filters = said is None or said.lower() == "true"
    told = {
        "conf": SessionStorages.of(spark).conf,
        "takes_filters": takes_filters,
        "__module__": __name__,
    }
    if _TOLD.get(spark) == told:
        return
    for source in (StateSource, HistorySource):
        # A class of its own travels to Spark's processes as it is, with what it was told.
        spark.dataSource.register(type(f"Session{source.__name__}", (source,), told))
    _TOLD[spark] = told


def _keeps_filters_apart(spark: Any) -> bool:
    """Whether what is pushed for one query is not seen by the next one of the same DataFrame.

    Spark 4.1 to 4.3.0 keep the plan of a Python source, with its filters, in what all queries of a
    DataFrame share: a query without filters, or the other half of a union, then reads what was
    left of the last one. A Spark that keeps it with the scan has a field for it there.
    """
    try:
        builder = spark._jvm.java.lang.Class.forName(_SCAN_BUILDER)
        return any(field.getName() == "readInfo" for field in builder.getDeclaredFields())
    except Exception:  # noqa: BLE001 - whatever a session without a JVM makes of it
        return False
