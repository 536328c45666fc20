"""State without keys: lists and broadcast maps, redistributed at a restore.

Imports `state`, `snapshots` and below.
"""

__all__: list[str] = []
