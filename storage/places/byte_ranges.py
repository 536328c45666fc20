"""Arithmetic of byte ranges, the same for every storage."""

from __future__ import annotations

from holdfast.storage.errors import Invalid

__all__ = ["check_range"]


def check_range(name: str, offset: int, length: int | None) -> int | None:
    """The end of the range, None for the object's end.

    Raises:
        Invalid: offset or length is negative.
    """
    if offset < 0 or (length is not None and length < 0):
        raise Invalid(
            f"a range of object {name!r} is not legal",
            expected="offset and length of 0 or more",
            found=f"offset {offset}, length {length}",
        )
    return None if length is None else offset + length
