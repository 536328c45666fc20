"""Columns and rows of Arrow: types, conversion to Python values and back, event time.

It imports no other folder of the room.
"""

from __future__ import annotations

__all__: list[str] = []
