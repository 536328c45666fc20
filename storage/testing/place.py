"""The storage under test: how to open it, and a little more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from holdfast.storage.checkpoint_storage import CheckpointStorage

__all__ = ["Place", "opened"]

_REASONS = {
    "shared_between_processes": "the storage does not declare that processes share it",
    "durable": "the storage does not declare that what it keeps survives the loss of power",
    "atomic_create": "the storage does not declare that its create has one winner",
    "keeps_segment_files": "the storage declares that it keeps no segment files",
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one test works: empty at its start, and used by no other test.

    Of `count` and `unusable` a storage gives what it can; without them the clauses that need them
    are skipped, with that reason.
    """

    open: Callable[[], CheckpointStorage]
    """A storage object on this place. Each call opens the same place again: what the answer of
    an earlier call has kept is there. In memory, that may have to be the same object."""

    count: Callable[[], int] | None = None
    """How many files (uploads, rows, …) are at the place, hidden and half-written ones too, found
    without the storage's help. By it the suite sees what a storage leaves without a word."""

    rounds: int = 20
    """How often many threads create one object at once, which is not the same each time. A store
    that lets them wait for each other may take fewer."""

    unusable: Callable[[], CheckpointStorage] | None = None
    """A storage of the same kind that cannot work: nothing answers, or its root is a file. By it
    the suite sees that no error of a library below gets out."""


def opened(place: Place, *needed: str) -> CheckpointStorage:
    """A storage on the place; skips the test when it does not declare a needed capability."""
    storage = place.open()
    for capability in needed:
        if not getattr(storage.capabilities, capability):
            pytest.skip(_REASONS[capability])
    return storage
