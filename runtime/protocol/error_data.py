"""Holdfast's errors as data, so that an error of one process can be raised in another."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.storage import (
    Corrupt,
    Fenced,
    HoldfastError,
    Invalid,
    NotFound,
    Taken,
    TooLarge,
    Unavailable,
)

__all__ = ["ERROR_KINDS", "ErrorData", "data_of_error", "error_of_data"]

_ALL = (HoldfastError, Corrupt, Fenced, Invalid, NotFound, Taken, TooLarge, Unavailable)
ERROR_KINDS: Mapping[str, type[HoldfastError]] = {kind.__name__: kind for kind in _ALL}
"""The error classes of storage by name. Both sides must know the same ones."""


class ErrorData(msgspec.Struct, frozen=True):
    """The class and the parts of an error."""

    kind: str
    what: str
    where: str = ""
    expected: str = ""
    found: str = ""
    fix: str = ""


def data_of_error(
    error: HoldfastError, kinds: Mapping[str, type[HoldfastError]] = ERROR_KINDS
) -> ErrorData:
    """The error as data, as the nearest known base class."""
    known = next(kind for kind in type(error).__mro__ if kind in kinds.values())
    return ErrorData(
        known.__name__, error.what, error.where, error.expected, error.found, error.fix
    )


def error_of_data(
    data: ErrorData, kinds: Mapping[str, type[HoldfastError]] = ERROR_KINDS
) -> HoldfastError:
    """The error for the data, to be raised."""
    return kinds.get(data.kind, HoldfastError)(
        data.what, where=data.where, expected=data.expected, found=data.found, fix=data.fix
    )
