"""The room of the running job: functions, streams, sinks, checkpoints, and the environment."""

from holdfast.runtime.checkpoint import CheckpointOverview, CheckpointStatistics, CheckpointStatus
from holdfast.runtime.config import CheckpointConfig
from holdfast.runtime.driver.failures import Failure
from holdfast.runtime.driver.handle import JobHandle
from holdfast.runtime.driver.run import JobStatus
from holdfast.runtime.errors import JobFailed, NotEnded, OperatorFailed, UserCodeFailed
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
from holdfast.runtime.spark import StreamEnvironment
from holdfast.runtime.stream import DataStream, GeneratedUidWarning, KeyedStream

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
    "Failure",
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
    "NotEnded",
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
