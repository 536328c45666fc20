"""How a run begins: what it is restored from, and what is said and checked before."""

from __future__ import annotations

__all__: list[str] = []
