"""State and checkpoints as DataFrames: read, written to savepoints, converted."""

from __future__ import annotations

__all__: list[str] = []
