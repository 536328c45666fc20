"""All clauses together: the class that the tests of a backend inherit from."""

from __future__ import annotations

from holdfast.backends.testing.batching import BatchClauses
from holdfast.backends.testing.blocking import BlockClauses
from holdfast.backends.testing.changing import ChangeClauses
from holdfast.backends.testing.comparisons import ComparisonClauses
from holdfast.backends.testing.evolving import DamageClauses, EvolutionClauses
from holdfast.backends.testing.filing import FileClauses
from holdfast.backends.testing.forming import FormClauses
from holdfast.backends.testing.freezing import FreezeClauses
from holdfast.backends.testing.keeping import ListTableClauses, MapTableClauses, ValueTableClauses
from holdfast.backends.testing.lifecycle import LifecycleClauses
from holdfast.backends.testing.living import TimeToLiveClauses
from holdfast.backends.testing.measuring import MetricsClauses
from holdfast.backends.testing.merging import KeyClauses, NamespaceClauses
from holdfast.backends.testing.restoring import ExchangeClauses, RestoreClauses
from holdfast.backends.testing.scanning import NeighbourClauses, ScanClauses
from holdfast.backends.testing.snapshotting import SnapshotClauses
from holdfast.backends.testing.stating import StateClauses
from holdfast.backends.testing.timing import TimerClauses, TimerCrowdClauses
from holdfast.backends.testing.unloading import UnloadClauses

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
    """Inherit, and define the fixture `place`, which answers a `Place`; nothing else is needed."""
