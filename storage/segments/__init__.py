"""Segments: pieces of state, many to a file, each checked by block when it is read.

Imports the contract of storages and names; knows nothing of jobs, checkpoints or kinds of places.
"""

from __future__ import annotations

__all__: list[str] = []
