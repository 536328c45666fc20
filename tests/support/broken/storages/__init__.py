"""For each clause of the suite a storage that breaks it, each in one way.

They lie here and not beside the tests because other processes have to import them.
"""

from support.broken.storages import (
    creating,
    deleting,
    jobs,
    listing,
    locating,
    naming,
    reading,
    sharing,
    writing,
)
from support.broken.storages.register import BROKEN

__all__ = [
    "BROKEN",
    "creating",
    "deleting",
    "jobs",
    "listing",
    "locating",
    "naming",
    "reading",
    "sharing",
    "writing",
]
