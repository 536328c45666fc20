"""What the suite must know of the backend that it tries: how to make it, and a little more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from holdfast.backends.interface import StateBackend

__all__ = ["Place", "opened"]

_REASONS = {
    "keeps_files": "the backend does not declare that it keeps files while a store is open",
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one test works: empty at its start, and used by no other test.

    Of `count` and `unusable` a backend gives what it can; without them the clauses that need them
    are skipped, with that reason.
    """

    open: Callable[[], StateBackend]
    """A backend. What it keeps on this machine, each answer keeps at the same place."""

    count: Callable[[], int] | None = None
    """How many files are at the place, found without the backend's help. By it the suite sees
    what a backend leaves behind without a word."""

    unusable: Callable[[], StateBackend] | None = None
    """A backend of the same kind that cannot work: its folder is a file, a library is missing. By
    it the suite sees that no error of a library below gets out."""


def opened(place: Place, *needed: str) -> StateBackend:
    """A backend of the place; skips the test when it does not declare a needed capability."""
    backend = place.open()
    for capability in needed:
        if not getattr(backend.capabilities, capability):
            pytest.skip(_REASONS[capability])
    return backend
