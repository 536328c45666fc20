"""The room of the running job: functions, streams, sinks, checkpoints, and the environment.

Nothing is imported before it is asked for: the command `holdfast`, and slots, need little of it.
"""

from typing import TYPE_CHECKING

from holdfast.runtime.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from holdfast.runtime.checkpoint import (
        CheckpointOverview,
        CheckpointStatistics,
        CheckpointStatus,
    )
    from holdfast.runtime.config import CheckpointConfig
    from holdfast.runtime.control.history import checkpoint_history
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
    from holdfast.runtime.network_config import NetworkConfig
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
    from holdfast.runtime.snapshots import read_state
    from holdfast.runtime.spark import SavepointWriter, StreamEnvironment, register_formats
    from holdfast.runtime.stream import DataStream, GeneratedUidWarning, KeyedStream
else:
    __getattr__ = _lazy_exports(
        __name__,
        {
            "CheckpointOverview": "holdfast.runtime.checkpoint",
            "CheckpointStatistics": "holdfast.runtime.checkpoint",
            "CheckpointStatus": "holdfast.runtime.checkpoint",
            "CheckpointConfig": "holdfast.runtime.config",
            "Failure": "holdfast.runtime.driver.failures",
            "JobHandle": "holdfast.runtime.driver.handle",
            "JobStatus": "holdfast.runtime.driver.run",
            "JobFailed": "holdfast.runtime.errors",
            "NotEnded": "holdfast.runtime.errors",
            "OperatorFailed": "holdfast.runtime.errors",
            "UserCodeFailed": "holdfast.runtime.errors",
            "BatchContext": "holdfast.runtime.functions",
            "BatchOrder": "holdfast.runtime.functions",
            "Context": "holdfast.runtime.functions",
            "KeyedBatchFunction": "holdfast.runtime.functions",
            "KeyedContext": "holdfast.runtime.functions",
            "KeyedProcessFunction": "holdfast.runtime.functions",
            "OnTimerContext": "holdfast.runtime.functions",
            "OutputTag": "holdfast.runtime.functions",
            "ProcessFunction": "holdfast.runtime.functions",
            "RuntimeContext": "holdfast.runtime.functions",
            "TimeDomain": "holdfast.runtime.functions",
            "TimerAccess": "holdfast.runtime.functions",
            "NetworkConfig": "holdfast.runtime.network_config",
            "ExponentialDelayRestart": "holdfast.runtime.restarts",
            "FailureRateRestart": "holdfast.runtime.restarts",
            "FixedDelayRestart": "holdfast.runtime.restarts",
            "NoRestart": "holdfast.runtime.restarts",
            "RestartStrategy": "holdfast.runtime.restarts",
            "CollectSink": "holdfast.runtime.sinks",
            "FileSink": "holdfast.runtime.sinks",
            "Sink": "holdfast.runtime.sinks",
            "SinkWriter": "holdfast.runtime.sinks",
            "TwoPhaseCommitSink": "holdfast.runtime.sinks",
            "WriterContext": "holdfast.runtime.sinks",
            "checkpoint_history": "holdfast.runtime.control.history",
            "read_state": "holdfast.runtime.snapshots",
            "SavepointWriter": "holdfast.runtime.spark",
            "StreamEnvironment": "holdfast.runtime.spark",
            "register_formats": "holdfast.runtime.spark",
            "DataStream": "holdfast.runtime.stream",
            "GeneratedUidWarning": "holdfast.runtime.stream",
            "KeyedStream": "holdfast.runtime.stream",
        },
    )

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
    "NetworkConfig",
    "NoRestart",
    "NotEnded",
    "OnTimerContext",
    "OperatorFailed",
    "OutputTag",
    "ProcessFunction",
    "RestartStrategy",
    "RuntimeContext",
    "SavepointWriter",
    "Sink",
    "SinkWriter",
    "StreamEnvironment",
    "TimeDomain",
    "TimerAccess",
    "TwoPhaseCommitSink",
    "UserCodeFailed",
    "WriterContext",
    "checkpoint_history",
    "read_state",
    "register_formats",
]
