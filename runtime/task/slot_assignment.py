"""The assignment of a slot: everything that the slots of one attempt are given, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.runtime.planning.job_plan import JobPlan
from holdfast.runtime.protocol.operator import AttemptFacts
from holdfast.storage import StateSnapshot, load_storage
from holdfast.storage.registry import OpenStorage

__all__ = ["SlotAssignment"]


@dataclass(frozen=True, kw_only=True)
class SlotAssignment(AttemptFacts):
    """Everything that the driver gives to the slots of one attempt."""

    plan: JobPlan
    restored: Mapping[str, Sequence[StateSnapshot]] = field(default_factory=dict)
    """By uid of the operator."""
    checkpoint_mode: str = "exactly-once"
    """The `mode` of `CheckpointConfig`."""
    sync_timeout_s: float = 0.0
    """Its `sync_phase_timeout`."""
    in_flight: Sequence[StateSnapshot] = ()
    """Rows that were on the way in what is restored, of all slots."""
    source_alignment_ms: int = 200
    """How long a barrier waits behind rows of a source before it overtakes them."""
    open_storage: OpenStorage = load_storage
    """Opens the storages of savepoints; see `storage_at`."""
