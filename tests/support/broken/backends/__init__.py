"""For each clause of the suite a backend that breaks it, each in one way.

They lie here and not beside the tests because other processes have to import them.
"""

from support.broken.backends import (
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
from support.broken.backends.register import BROKEN

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
