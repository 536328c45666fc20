"""The formats that Holdfast adds to Spark, and how a session comes to know them.

Filters are not accepted from Spark 4.1 to 4.3.0, which keeps the plan of a Python source, with the
filters, in an object that all queries of a DataFrame share: `df.count()` after `df.where(…)` would
return too few rows. A test found that. Later versions keep it with the scan. On older ones, select
keys by options of `load`, which belong to one DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from holdfast.runtime.control.history import history_of
from holdfast.runtime.spark.state_frames.session_source import SessionSource
from holdfast.runtime.spark.state_frames.state_source import StateSource
from holdfast.runtime.spark.storage_settings import SessionStorages
from holdfast.savepoints.history import HISTORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HistorySource", "register_formats"]

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


class HistorySource(SessionSource):
    """What `checkpoint_history` answers; `path` is the name of a running job, or a place."""

    @classmethod
    def name(cls) -> str:
        return "holdfast-checkpoints"

    def schema(self) -> StructType:
        return from_arrow_schema(HISTORY)

    def reader(self, schema: StructType) -> DataSourceReader:
        """See `DataSource.reader`. Called when a query is planned, on the driver's machine."""
        del schema
        asked = self._asked("path")
        return _Reader(history_of(asked["path"], self._open_storage()).to_pylist())


class _Reader(DataSourceReader):
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        del partition
        for row in self._rows:
            operators = row["operators"]
            shown = {**row, "operators": None if operators is None else dict(operators)}
            yield tuple(shown.values())
