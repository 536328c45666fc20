"""Where results go: the contracts of sinks, and those of the house."""

from holdfast.runtime.sinks.collect_sink import CollectSink, collected_table
from holdfast.runtime.sinks.file_sink import FileSink
from holdfast.runtime.sinks.sink import Sink, SinkWriter, TwoPhaseCommitSink, WriterContext

__all__ = [
    "CollectSink",
    "FileSink",
    "Sink",
    "SinkWriter",
    "TwoPhaseCommitSink",
    "WriterContext",
    "collected_table",
]
