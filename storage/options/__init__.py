"""Typed options and settings: durations, checks of values. Imports `errors` only.

It lives in the lowest room so that each room can state its own options.
"""

from __future__ import annotations

__all__: list[str] = []
