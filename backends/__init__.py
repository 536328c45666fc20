"""The room of live state: state types, key groups, time to live, timers, and the backends.

Useful alone, as a library; knows nothing of Spark.
"""

from holdfast.backends.byte_store import ByteEntry, ByteStore, ByteTable, FrozenBytes
from holdfast.backends.byte_tables import ByteTableStore
from holdfast.backends.collection_states import ListState, MapState
from holdfast.backends.descriptors import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    StateVisibility,
    TtlUpdateType,
    ValueStateDescriptor,
)
from holdfast.backends.hashmap import HashMapStateBackend
from holdfast.backends.interface import BackendCapabilities, StateBackend
from holdfast.backends.key_groups import KeyGroupRange, default_max_parallelism, key_groups_of_slots
from holdfast.backends.keyed import EarlyFiles, KeyedStateBackend
from holdfast.backends.metrics import StateMetrics
from holdfast.backends.operator_backend import OperatorStateBackend
from holdfast.backends.operator_states import (
    BroadcastState,
    OperatorListState,
    ReadOnlyBroadcastState,
)
from holdfast.backends.registry import load_backend, registered_backends
from holdfast.backends.single_states import AggregatingState, ReducingState, ValueState
from holdfast.backends.snapshots import Segments, SnapshotForm, SnapshotFuture, SnapshotTarget
from holdfast.backends.state_names import state_names
from holdfast.backends.states import State
from holdfast.backends.tables import TableStore
from holdfast.backends.timer_queues import Timer, TimerQueue
from holdfast.backends.timers import TimerService

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "BackendCapabilities",
    "BroadcastState",
    "ByteEntry",
    "ByteStore",
    "ByteTable",
    "ByteTableStore",
    "EarlyFiles",
    "FrozenBytes",
    "HashMapStateBackend",
    "KeyGroupRange",
    "KeyedStateBackend",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "OperatorListState",
    "OperatorStateBackend",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "Segments",
    "SnapshotForm",
    "SnapshotFuture",
    "SnapshotTarget",
    "State",
    "StateBackend",
    "StateDescriptor",
    "StateMetrics",
    "StateTtlConfig",
    "StateVisibility",
    "TableStore",
    "Timer",
    "TimerQueue",
    "TimerService",
    "TtlUpdateType",
    "ValueState",
    "ValueStateDescriptor",
    "default_max_parallelism",
    "key_groups_of_slots",
    "load_backend",
    "registered_backends",
    "state_names",
]
