"""A changelog over any state backend: checkpoints cost what has changed, not what there is.

Imports backends and storage. From the top: `backend` wraps a state backend, `snapshots` decides
what a checkpoint refers to, `materialization` when state is written as a whole, `operator_log`
where each change is, `writing/` uploads pieces while the job runs, `change_sets` encodes
changes, `recording/` notes them as they happen.
"""

from __future__ import annotations

from holdfast.changelog.backend import ChangelogStateBackend
from holdfast.changelog.options import ChangelogOptions
from holdfast.changelog.writing.storages import StateChangelogStorage

__all__ = ["ChangelogOptions", "ChangelogStateBackend", "StateChangelogStorage"]
