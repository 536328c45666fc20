"""What the driver gives every slot of one attempt to do. Plain data."""

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
    """What the driver gives every slot of one attempt to do."""

    plan: JobPlan
    epoch: int
    attempt: int
    """The number of the attempt in this run of the job; the run's is `epoch`."""
    backend: StateBackend
    job: JobStorage
    restored: Mapping[str, Sequence[StateSnapshot]] = field(default_factory=dict)
    restored_from: StateFolder | None = None
    """Where the restored state is, if not in the job's own folder."""
    open_storage: OpenStorage = load_storage
    """What opens the places of savepoints: see `storage_at`."""
    allow_pickle: bool = False
    allow_missing_output: bool = False
    """Whether what sinks have prepared for what is restored may be gone."""
    compression: str = ""
    first_checkpoint_id: int
    """A number that no checkpoint of an earlier attempt has had: this one's are numbered from here
    on, and so are files that are begun before a checkpoint refers to them."""
