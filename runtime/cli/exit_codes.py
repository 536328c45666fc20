"""Exit codes of the command `holdfast` that shells give a meaning."""

from __future__ import annotations

__all__ = ["INTERRUPTED", "TERMINATED"]

INTERRUPTED = 130
"""Stopped by Ctrl-C: 128 and the number of SIGINT."""
TERMINATED = 143
"""Stopped by SIGTERM, likewise."""
