"""The room of the changelog: makes the checkpoints of any state backend incremental."""

from __future__ import annotations

from holdfast.changelog.backend import ChangelogStateBackend
from holdfast.changelog.options import ChangelogOptions
from holdfast.changelog.writing.storages import StateChangelogStorage

__all__ = ["ChangelogOptions", "ChangelogStateBackend", "StateChangelogStorage"]
