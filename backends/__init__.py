"""Live keyed and operator state: state types, key groups, time to live, timers, and the backends.

A library of its own, without Spark. It imports `holdfast.storage` only. Folders, from the bottom:

| folder | content |
|---|---|
| `values`, `keys` | codecs of values and keys; key groups |
| `schema` | schema evolution |
| `blocks`, `arrow` | rows in the neutral form, and as typed Arrow columns |
| `tables` | the contract that a backend implements |
| `state` | descriptors, and the state objects that users hold |
| `snapshots` | writing, reading and migrating snapshots |
| `byte_tables` | tables over any ordered key-value store |
| `keyed`, `operator_state` | the state of one operator in one slot |
| `interface` | `StateBackend`, and finding a backend by name |
| `hashmap`, `rocksdb` | the built-in backends |
| `testing` | the conformance suite for backends |
"""

from holdfast.backends.byte_tables.contract import ByteEntry, ByteStore, ByteTable, FrozenBytes
from holdfast.backends.byte_tables.store import ByteTableStore
from holdfast.backends.hashmap import HashMapStateBackend
from holdfast.backends.interface import (
    BackendCapabilities,
    StateBackend,
    load_backend,
    registered_backends,
)
from holdfast.backends.keyed.backend import EarlyFiles, KeyedStateBackend
from holdfast.backends.keys.groups import (
    KeyGroupRange,
    default_max_parallelism,
    key_groups_of_slots,
)
from holdfast.backends.operator_state.backend import OperatorStateBackend
from holdfast.backends.operator_state.states import (
    BroadcastState,
    OperatorListState,
    ReadOnlyBroadcastState,
)
from holdfast.backends.snapshots.neutral import (
    Segments,
    SnapshotForm,
    SnapshotFuture,
    SnapshotTarget,
)
from holdfast.backends.snapshots.state_names import state_names
from holdfast.backends.state.base import State
from holdfast.backends.state.collection_states import ListState, MapState
from holdfast.backends.state.descriptors import (
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
from holdfast.backends.state.timers import TimerService
from holdfast.backends.state.value_states import AggregatingState, ReducingState, ValueState
from holdfast.backends.tables.contract import TableStore
from holdfast.backends.tables.metrics import StateMetrics
from holdfast.backends.tables.timer_queues import Timer, TimerQueue

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
