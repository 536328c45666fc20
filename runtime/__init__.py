"""The room of the running job: functions, streams, sinks, checkpoints, and the environment.

Nothing is imported before it is asked for: the command `holdfast`, and slots, need little of it.
"""

from typing import TYPE_CHECKING

from holdfast.savepoints.lazy_exports import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from holdfast.runtime.api.checkpoint_config import CheckpointConfig
    from holdfast.runtime.api.errors import JobFailed, NotEnded, OperatorFailed, UserCodeFailed
    from holdfast.runtime.api.functions import (
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
    from holdfast.runtime.api.network_config import NetworkConfig
    from holdfast.runtime.api.restart_strategies import (
        ExponentialDelayRestart,
        FailureRateRestart,
        FixedDelayRestart,
        NoRestart,
        RestartStrategy,
    )
    from holdfast.runtime.checkpoint import (
        CheckpointOverview,
        CheckpointStatistics,
        CheckpointStatus,
    )
    from holdfast.runtime.control.history import checkpoint_history
    from holdfast.runtime.driver.failure.failure import Failure
    from holdfast.runtime.driver.handle import JobHandle
    from holdfast.runtime.driver.run import JobStatus
    from holdfast.runtime.sinks import (
        CollectSink,
        FileSink,
        Sink,
        SinkWriter,
        TwoPhaseCommitSink,
        WriterContext,
    )
    from holdfast.runtime.spark import SavepointWriter, StreamEnvironment, register_formats
    from holdfast.runtime.stream import DataStream, GeneratedUidWarning, KeyedStream
    from holdfast.savepoints import read_state
else:
    __getattr__ = _lazy_exports(
        __name__,
        {
            "CheckpointOverview": "holdfast.runtime.checkpoint",
            "CheckpointStatistics": "holdfast.runtime.checkpoint",
            "CheckpointStatus": "holdfast.runtime.checkpoint",
            "CheckpointConfig": "holdfast.runtime.api.checkpoint_config",
            "Failure": "holdfast.runtime.driver.failure.failure",
            "JobHandle": "holdfast.runtime.driver.handle",
            "JobStatus": "holdfast.runtime.driver.run",
            "JobFailed": "holdfast.runtime.api.errors",
            "NotEnded": "holdfast.runtime.api.errors",
            "OperatorFailed": "holdfast.runtime.api.errors",
            "UserCodeFailed": "holdfast.runtime.api.errors",
            "BatchContext": "holdfast.runtime.api.functions",
            "BatchOrder": "holdfast.runtime.api.functions",
            "Context": "holdfast.runtime.api.functions",
            "KeyedBatchFunction": "holdfast.runtime.api.functions",
            "KeyedContext": "holdfast.runtime.api.functions",
            "KeyedProcessFunction": "holdfast.runtime.api.functions",
            "OnTimerContext": "holdfast.runtime.api.functions",
            "OutputTag": "holdfast.runtime.api.functions",
            "ProcessFunction": "holdfast.runtime.api.functions",
            "RuntimeContext": "holdfast.runtime.api.functions",
            "TimeDomain": "holdfast.runtime.api.functions",
            "TimerAccess": "holdfast.runtime.api.functions",
            "NetworkConfig": "holdfast.runtime.api.network_config",
            "ExponentialDelayRestart": "holdfast.runtime.api.restart_strategies",
            "FailureRateRestart": "holdfast.runtime.api.restart_strategies",
            "FixedDelayRestart": "holdfast.runtime.api.restart_strategies",
            "NoRestart": "holdfast.runtime.api.restart_strategies",
            "RestartStrategy": "holdfast.runtime.api.restart_strategies",
            "CollectSink": "holdfast.runtime.sinks",
            "FileSink": "holdfast.runtime.sinks",
            "Sink": "holdfast.runtime.sinks",
            "SinkWriter": "holdfast.runtime.sinks",
            "TwoPhaseCommitSink": "holdfast.runtime.sinks",
            "WriterContext": "holdfast.runtime.sinks",
            "checkpoint_history": "holdfast.runtime.control.history",
            "read_state": "holdfast.savepoints",
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
