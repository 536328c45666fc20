"""The backend under test: how the suite makes it, and optional checks of its files and errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.backends.interface import StateBackend

__all__ = ["Place"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of one test: it is empty at first, and used by no other test.

    `count` and `unusable` are optional; clauses that need a missing one are skipped, with that
    reason.
    """

    open: Callable[[], StateBackend]
    """Makes a backend. All backends that it makes keep their files at the same place."""

    count: Callable[[], int] | None = None
    """Counts the files at the place without help of the backend. With it the suite sees files
    that a backend silently leaves behind."""

    unusable: Callable[[], StateBackend] | None = None
    """Makes a backend of the same kind that cannot work: its folder is a file, or a library is
    missing. With it the suite sees that errors of libraries are translated."""
