"""The class with all clauses, from which the tests of a backend inherit."""

from __future__ import annotations

from holdfast.backends.testing.state_clauses.batches import BatchClauses
from holdfast.backends.testing.state_clauses.equality import ComparisonClauses
from holdfast.backends.testing.state_clauses.evolution import DamageClauses, EvolutionClauses
from holdfast.backends.testing.state_clauses.files import FileClauses
from holdfast.backends.testing.state_clauses.lifecycle import LifecycleClauses
from holdfast.backends.testing.state_clauses.metrics import MetricsClauses
from holdfast.backends.testing.state_clauses.namespaces import KeyClauses, NamespaceClauses
from holdfast.backends.testing.state_clauses.restores import ExchangeClauses, RestoreClauses
from holdfast.backends.testing.state_clauses.snapshots import SnapshotClauses
from holdfast.backends.testing.state_clauses.states import StateClauses
from holdfast.backends.testing.state_clauses.timers import TimerClauses, TimerCrowdClauses
from holdfast.backends.testing.state_clauses.ttl import TimeToLiveClauses
from holdfast.backends.testing.table_clauses.addresses import FormClauses
from holdfast.backends.testing.table_clauses.blocks import BlockClauses
from holdfast.backends.testing.table_clauses.cells import (
    ListTableClauses,
    MapTableClauses,
    ValueTableClauses,
)
from holdfast.backends.testing.table_clauses.changes import ChangeClauses
from holdfast.backends.testing.table_clauses.freezing import FreezeClauses
from holdfast.backends.testing.table_clauses.scans import NeighbourClauses, ScanClauses
from holdfast.backends.testing.table_clauses.unloading import UnloadClauses

__all__ = ["StateBackendConformance"]


class StateBackendConformance(
    FormClauses,
    ValueTableClauses,
    ListTableClauses,
    MapTableClauses,
    ScanClauses,
    NeighbourClauses,
    FreezeClauses,
    BlockClauses,
    UnloadClauses,
    ChangeClauses,
    StateClauses,
    BatchClauses,
    ComparisonClauses,
    NamespaceClauses,
    KeyClauses,
    TimeToLiveClauses,
    TimerClauses,
    TimerCrowdClauses,
    SnapshotClauses,
    RestoreClauses,
    ExchangeClauses,
    EvolutionClauses,
    DamageClauses,
    LifecycleClauses,
    FileClauses,
    MetricsClauses,
):
    """Inherit from it, and define the fixture `place`, which returns a `Place`."""
