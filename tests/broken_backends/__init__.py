"""For each clause of the suite a backend that breaks it, each in one way.

They lie here and not beside the tests because other processes have to import them.
"""

from broken_backends import (
    blocks,
    changing,
    forms,
    freezing,
    lifecycle,
    lists,
    maps,
    metrics,
    scanning,
    states,
    timers,
    unloading,
    values,
)
from broken_backends.register import BROKEN

__all__ = [
    "BROKEN",
    "blocks",
    "changing",
    "forms",
    "freezing",
    "lifecycle",
    "lists",
    "maps",
    "metrics",
    "scanning",
    "states",
    "timers",
    "unloading",
    "values",
]
