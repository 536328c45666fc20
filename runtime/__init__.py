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
    from holdfast.runtime.checkpoint.statistics import (
        CheckpointOverview,
        CheckpointStatistics,
        CheckpointStatus,
    )
    from holdfast.runtime.control.history import checkpoint_history
    from holdfast.runtime.driver.failure.failures import Failure
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
    __getattr__ = _lazy_exports(__name__)

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
