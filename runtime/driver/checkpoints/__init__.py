"""Checkpoints and savepoints of a run: committed, and deleted when obsolete.

It imports `driver.events`, `driver.claiming`, and layers below the driver.
"""

from __future__ import annotations

__all__: list[str] = []
