"""Sinks: collected rows and files. Their contract is `api.sinks`, which users implement.

It imports `api` and `columns`.
"""

from holdfast.runtime.api.sinks import Sink, SinkWriter, TwoPhaseCommitSink, WriterContext
from holdfast.runtime.sinks.collect_sink import CollectSink, collected_table
from holdfast.runtime.sinks.files.sink import FileSink

__all__ = [
    "CollectSink",
    "FileSink",
    "Sink",
    "SinkWriter",
    "TwoPhaseCommitSink",
    "WriterContext",
    "collected_table",
]
