"""Keyed state of one operator in one slot.

Imports `state`, `snapshots` and below.
"""

__all__: list[str] = []
