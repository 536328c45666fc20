"""Errors from deep below, told with the name of the state that they are about.

State is read in the middle of a user's `open`. What was made of a table before such an error is
dropped, so the backend stays usable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.storage.errors import Corrupt, Invalid

__all__ = ["restoring"]


@contextmanager
def restoring(what: str) -> Iterator[None]:
    """Errors from inside say that `what`, which is some state of an operator, is not restored."""
    try:
        yield
    except (Corrupt, Invalid) as error:
        raise type(error)(
            f"{what} cannot be restored: {error.what}",
            where=error.where,
            expected=error.expected,
            found=error.found,
            fix=error.fix,
        ) from error
