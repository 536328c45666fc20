"""DataFrames as sources: queries and splits, their positions, and pushes into slots.

It imports no other folder of `spark`, and the driver for the contract of a source.
"""

from __future__ import annotations

__all__: list[str] = []
