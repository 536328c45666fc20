"""The tables of a snapshot, as blocks or typed columns: what there is, reading, row sums.

Imports the rooms of backends and storage, and nothing else of this room.
"""

from __future__ import annotations

__all__: list[str] = []
