"""The sink that writes files: formats, names, and the two phases of their commit.

It imports `api` and `columns`.
"""

from __future__ import annotations

__all__: list[str] = []
