"""Checkpoints and savepoints of a run: committed, remembered, and deleted when obsolete."""

from __future__ import annotations

__all__: list[str] = []
