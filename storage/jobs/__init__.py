"""A job's checkpoints: metadata, commit, ownership, retention, deletion; and savepoints' folders.

Imports segments, the contract of storages and names; knows no kind of place.
"""

from __future__ import annotations

__all__: list[str] = []
