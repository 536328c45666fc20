"""The part of the runtime that is on Spark, and the only one that imports it."""

from holdfast.runtime.spark.environment import StreamEnvironment

__all__ = ["StreamEnvironment"]
