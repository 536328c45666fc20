"""The assignment of a slot: everything that the slots of one attempt are given, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.backends import StateBackend
from holdfast.runtime.planning.job_plan import JobPlan
from holdfast.storage import JobStorage, StateFolder, StateSnapshot, load_storage
from holdfast.storage.registry import OpenStorage

__all__ = ["SlotAssignment"]


@dataclass(frozen=True, kw_only=True)
class SlotAssignment:
    """Everything that the driver gives to the slots of one attempt."""

    plan: JobPlan
    epoch: int
    attempt: int
    """The number of the attempt in this run of the job; the run's is `epoch`."""
    backend: StateBackend
    job: JobStorage
    restored: Mapping[str, Sequence[StateSnapshot]] = field(default_factory=dict)
    restored_from: StateFolder | None = None
    """The folder of the restored state; None: the job's own."""
    open_storage: OpenStorage = load_storage
    """Opens the storages of savepoints; see `storage_at`."""
    allow_pickle: bool = False
    allow_missing_output: bool = False
    """Whether prepared output that the restored checkpoint lists may be missing."""
    compression: str = ""
    first_checkpoint_id: int
    """A number that no checkpoint of an earlier attempt has had: this one's are numbered from here
    on, and so are files that are begun before a checkpoint refers to them."""
