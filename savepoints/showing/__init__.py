"""State for people and programs: what a snapshot has, and rows of a state by selections.

Imports `finding` and `reading`.
"""

from __future__ import annotations

__all__: list[str] = []
