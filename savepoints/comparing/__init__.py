"""Whether two snapshots have the same entries, and which they do not share.

Imports `finding`, `reading` and `showing`.
"""

from __future__ import annotations

__all__: list[str] = []
