"""DataFrames as sources: queries and splits, their positions, and pushes into slots."""

from __future__ import annotations

__all__: list[str] = []
