"""Adding the name of the state to errors of a restore.

State is read in the middle of a user's `open`. Partly loaded tables are dropped on such an error,
so the backend stays usable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.storage.errors import Corrupt, Invalid

__all__ = ["restoring"]


@contextmanager
def restoring(what: str) -> Iterator[None]:
    """Errors from inside say that `what`, some state of an operator, cannot be restored."""
    try:
        yield
    except (Corrupt, Invalid) as error:
        raise error.replaced(what=f"{what} cannot be restored: {error.what}") from error
