"""Where results go: the contracts of sinks, and those of the house."""

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
