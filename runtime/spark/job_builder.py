"""What the streams of one job need of Spark while the job is written."""

from __future__ import annotations

import traceback
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from holdfast.runtime.planning.graph import Graph
from holdfast.runtime.spark.launching.pickling import pickled
from holdfast.storage import Invalid

__all__ = ["JobBuilder"]


class JobBuilder:
    """What the streams of one job need of their environment: see `StreamBuilder`."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def arrow_schema(self, schema: Any, where: str) -> pa.Schema:
        if isinstance(schema, pa.Schema):
            return schema
        try:
            if isinstance(schema, str):
                schema = StructType.fromDDL(schema)
            if not isinstance(schema, StructType):
                raise Invalid(
                    "this is no schema",
                    where=where,
                    expected='DDL such as "user string, total long", or a schema of Spark or Arrow',
                    found=repr(schema),
                )
            return to_arrow_schema(schema, timezone="UTC")
        except PySparkException as error:
            raise Invalid(
                "a schema cannot be read",
                where=where,
                expected="DDL as Spark has it",
                found=next(filter(None, map(str.strip, str(error).splitlines())), ""),
            ) from error

    def pickled(self, function: Any, where: str) -> bytes:
        try:
            return pickled(function)
        except Exception as error:
            raise Invalid(
                "a function cannot be pickled, so it cannot get into slots",
                where=where,
                expected="a function whose attributes and closures can be pickled",
                found="".join(traceback.format_exception_only(error)).strip(),
                fix="Make such things (locks, connections, sessions) in its method open",
            ) from error
