"""Operators as they run in a slot: user functions over rows and batches, event time, and sinks.

It imports `planning` and all below, and no sink: these reach it by their contract in `api`.
"""

from holdfast.runtime.operators.key_columns import key_type_of
from holdfast.runtime.operators.keyed_batch_operator import KeyedBatchSpec
from holdfast.runtime.operators.process_operator import KeyedProcessSpec, ProcessSpec
from holdfast.runtime.operators.row_functions import FilterSpec, FlatMapSpec, MapSpec
from holdfast.runtime.operators.user_code import UserFunctionSpec
from holdfast.runtime.operators.watermark_operator import WatermarkSpec

__all__ = [
    "FilterSpec",
    "FlatMapSpec",
    "KeyedBatchSpec",
    "KeyedProcessSpec",
    "MapSpec",
    "ProcessSpec",
    "UserFunctionSpec",
    "WatermarkSpec",
    "key_type_of",
]
