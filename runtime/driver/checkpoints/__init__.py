"""Checkpoints and savepoints of a run: committed, and deleted when obsolete.

It imports `driver.events`, `driver.claiming`, and layers below the driver.
"""

__all__: list[str] = []
