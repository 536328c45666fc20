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

__all__ = ["ErrorKinds", "ToldError", "tell_error", "told_error", "told_kinds"]

ErrorKinds = Mapping[str, type[HoldfastError]]
"""Error classes that both sides know, by name."""


class ToldError(msgspec.Struct, frozen=True):
    """The class and the parts of an error."""

    kind: str
    what: str
    where: str = ""
    expected: str = ""
    found: str = ""
    fix: str = ""


def told_kinds(*others: type[HoldfastError]) -> ErrorKinds:
    """The error classes of storage, and the given ones, by name."""
    kinds: list[type[HoldfastError]] = [HoldfastError, Corrupt, Fenced, Invalid, NotFound, Taken]
    return {kind.__name__: kind for kind in (*kinds, TooLarge, Unavailable, *others)}


def tell_error(error: HoldfastError, kinds: ErrorKinds) -> ToldError:
    """The error as data, as the nearest known base class."""
    known = next(kind for kind in type(error).__mro__ if kind in kinds.values())
    return ToldError(
        known.__name__, error.what, error.where, error.expected, error.found, error.fix
    )


def told_error(told: ToldError, kinds: ErrorKinds) -> HoldfastError:
    """The error for the data, to be raised."""
    return kinds.get(told.kind, HoldfastError)(
        told.what, where=told.where, expected=told.expected, found=told.found, fix=told.fix
    )
