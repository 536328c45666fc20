"""What a caller's buffer means in bytes, the same for every storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.storage.interface import Buffer

__all__ = ["flat"]


def flat(data: Buffer) -> Buffer:
    """The same bytes, side by side and counted one by one, so that `len` is their number.

    A view of wider items counts all their bytes, and one with gaps those that it shows. Copied is
    only what does not lie side by side.
    """
    if not isinstance(data, memoryview):
        return data
    if data.format == "B" and data.ndim == 1 and data.c_contiguous:
        return data
    try:
        return data.cast("B")
    except (TypeError, ValueError):
        return data.tobytes()
