"""State and checkpoints as DataFrames: read, written to savepoints, converted.

It imports `spark.launching` and `spark.sessions`, and the room of savepoints.
"""

from __future__ import annotations

__all__: list[str] = []
