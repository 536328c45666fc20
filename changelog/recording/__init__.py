"""Tables that record what changes in them, over the tables of any backend.

Imports the room of backends, and nothing else of this room.
"""

from __future__ import annotations

__all__: list[str] = []
