"""Tables written as a savepoint: keys and values out of columns, blocks, parts, commit.

Imports `finding` and `reading`.
"""

from __future__ import annotations

__all__: list[str] = []
