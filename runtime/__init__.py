"""The room of the running job: functions, streams, sinks, checkpoints, and the environment.

`StreamEnvironment` is loaded when it is asked for, since it alone needs Spark: what runs in slots,
and tools that only look at checkpoints, do without.
"""

from typing import TYPE_CHECKING, Any

from holdfast.runtime.checkpoint import CheckpointOverview, CheckpointStatistics, CheckpointStatus
from holdfast.runtime.config import CheckpointConfig
from holdfast.runtime.driver.handle import JobHandle
from holdfast.runtime.driver.run import JobStatus
from holdfast.runtime.errors import JobFailed, OperatorFailed, UserCodeFailed
from holdfast.runtime.functions import (
    BatchContext,
    BatchOrder,
    Context,
    KeyedBatchFunction,
    KeyedContext,
    KeyedProcessFunction,
    OnTimerContext,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    TimeDomain,
    TimerAccess,
)
from holdfast.runtime.restarts import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
)
from holdfast.runtime.sinks import (
    CollectSink,
    FileSink,
    Sink,
    SinkWriter,
    TwoPhaseCommitSink,
    WriterContext,
)
from holdfast.runtime.stream import DataStream, GeneratedUidWarning, KeyedStream

if TYPE_CHECKING:
    from holdfast.runtime.spark import StreamEnvironment

__all__ = [
    "BatchContext",
    "BatchOrder",
    "CheckpointConfig",
    "CheckpointOverview",
    "CheckpointStatistics",
    "CheckpointStatus",
    "CollectSink",
    "Context",
    "DataStream",
    "ExponentialDelayRestart",
    "FailureRateRestart",
    "FileSink",
    "FixedDelayRestart",
    "GeneratedUidWarning",
    "JobFailed",
    "JobHandle",
    "JobStatus",
    "KeyedBatchFunction",
    "KeyedContext",
    "KeyedProcessFunction",
    "KeyedStream",
    "NoRestart",
    "OnTimerContext",
    "OperatorFailed",
    "OutputTag",
    "ProcessFunction",
    "RestartStrategy",
    "RuntimeContext",
    "Sink",
    "SinkWriter",
    "StreamEnvironment",
    "TimeDomain",
    "TimerAccess",
    "TwoPhaseCommitSink",
    "UserCodeFailed",
    "WriterContext",
]


def __getattr__(name: str) -> Any:
    if name != "StreamEnvironment":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.runtime.spark import StreamEnvironment  # noqa: PLC0415 - see above

    return StreamEnvironment
