"""The backends that searches and kill tests try, by name; a child process has them too."""

from __future__ import annotations

from holdfast.backends import StateBackend, load_backend
from holdfast_sqlite import SqliteStateBackend
from lossy_backends import LOSSES, LossyBackend

TRIED = ("hashmap", "sqlite")


def backend_named(name: str) -> StateBackend:
    """One of those, or one that is broken on purpose."""
    if name in LOSSES:
        return LossyBackend(name)
    return SqliteStateBackend() if name == "sqlite" else load_backend(name)
