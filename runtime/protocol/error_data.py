"""Errors of the house as data: what one process raises, another one raises too."""

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
"""The kinds that both sides know, by name."""


class ToldError(msgspec.Struct, frozen=True):
    """An error with its parts."""

    kind: str
    what: str
    where: str = ""
    expected: str = ""
    found: str = ""
    fix: str = ""


def told_kinds(*others: type[HoldfastError]) -> ErrorKinds:
    """The kinds that storage has, and these."""
    kinds: list[type[HoldfastError]] = [HoldfastError, Corrupt, Fenced, Invalid, NotFound, Taken]
    return {kind.__name__: kind for kind in (*kinds, TooLarge, Unavailable, *others)}


def tell_error(error: HoldfastError, kinds: ErrorKinds) -> ToldError:
    """The error as the nearest kind that is known."""
    known = next(kind for kind in type(error).__mro__ if kind in kinds.values())
    return ToldError(
        known.__name__, error.what, error.where, error.expected, error.found, error.fix
    )


def told_error(told: ToldError, kinds: ErrorKinds) -> HoldfastError:
    """The error that was told, to be raised."""
    return kinds.get(told.kind, HoldfastError)(
        told.what, where=told.where, expected=told.expected, found=told.found, fix=told.fix
    )
