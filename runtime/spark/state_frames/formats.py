"""The formats that Holdfast adds to Spark, and how a session comes to know them.

Filters are not accepted from Spark 4.1 to 4.3.0, which keeps the plan of a Python source, with the
filters, in an object that all queries of a DataFrame share: `df.count()` after `df.where(…)` would
return too few rows. A test found that. Later versions keep it with the scan. On older ones, select
keys by options of `load`, which belong to one DataFrame.
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

# What was registered last in each session: Spark warns when a format replaces another one.
_REGISTERED: WeakKeyDictionary[SparkSession, dict[str, Any]] = WeakKeyDictionary()
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_SCAN_BUILDER = "org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder"


def register_formats(spark: SparkSession) -> None:
    """Let a session read the formats `holdfast` (state) and `holdfast-checkpoints` (their history).

    A `StreamEnvironment` does this by itself; it may be repeated. Storages are opened with what the
    session says of HDFS and S3 at this moment (`spark.hadoop.*`): after a change of that, call it
    again. Filters are accepted from versions of Spark that keep them with the query, if
    `spark.sql.python.filterPushdown.enabled` is on; it is set there unless the session has set it.
    """
    conf: Any = spark.conf
    takes_filters = _keeps_filters_apart(spark)
    if takes_filters:
        said = conf.get(_PUSHDOWN, None)
        if said is None:
            conf.set(_PUSHDOWN, "true")
        takes_filters = said is None or said.lower() == "true"
    attributes = {
        "conf": SessionStorages.of(spark).conf,
        "takes_filters": takes_filters,
        "__module__": __name__,
    }
    if _REGISTERED.get(spark) == attributes:
        return
    for source in (StateSource, HistorySource):
        # A new class is pickled by value into Spark's processes, with these attributes.
        spark.dataSource.register(type(f"Session{source.__name__}", (source,), attributes))
    _REGISTERED[spark] = attributes


def _keeps_filters_apart(spark: Any) -> bool:
    """Whether filters of one query do not reach the next one of the same DataFrame.

    A Spark that keeps them with the scan has a field for them there.
    """
    try:
        builder = spark._jvm.java.lang.Class.forName(_SCAN_BUILDER)
        return any(field.getName() == "readInfo" for field in builder.getDeclaredFields())
    except Exception:  # noqa: BLE001 - a session without a JVM may raise anything
        return False
