"""What made an attempt fail, and whether the same failure repeats."""

from __future__ import annotations

__all__: list[str] = []
