"""The part of the runtime that is on Spark, and the only one that imports it.

Nothing is imported before it is asked for: what Spark's own processes load to read state is little.
"""

from typing import TYPE_CHECKING

from holdfast.savepoints.lazy_exports import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from holdfast.runtime.spark.environment import StreamEnvironment
    from holdfast.runtime.spark.state_frames.formats import register_formats
    from holdfast.runtime.spark.state_frames.savepoint_writer import SavepointWriter
else:
    __getattr__ = _lazy_exports(__name__)

__all__ = ["SavepointWriter", "StreamEnvironment", "register_formats"]
