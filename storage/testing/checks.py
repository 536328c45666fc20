"""The checks that clauses make on a storage, each with a message about what the storage owes.

The messages are written out, because pytest shows values only for test files of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from holdfast.storage.errors import HoldfastError, NotFound
from holdfast.storage.interface import ObjectStorage

__all__ = [
    "is_absent",
    "names_in",
    "names_place",
    "nothing_left",
    "outcome_of",
    "owed",
    "pattern",
    "reads",
    "require",
    "same",
]

_SHOWN = 200


def pattern(size_bytes: int, seed: int | str = 0) -> bytes:
    """Bytes without repetition, so that a misplaced piece is detected."""
    return hashlib.shake_128(str(seed).encode()).digest(size_bytes)


def require(fact: object, what: str) -> None:
    """Fail with `what`, which says what the storage owes, unless the fact holds."""
    if not fact:
        raise AssertionError(what)


def same(found: object, expected: object, what: str) -> None:
    """Fail unless both are equal; long values are cut where they begin to differ."""
    if found == expected:
        return
    if isinstance(found, bytes) and isinstance(expected, bytes):
        pairs = zip(found, expected, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(found), len(expected)))
        raise AssertionError(
            f"{what}: expected {len(expected)} bytes, found {len(found)}, different from byte "
            f"{at} on: {expected[at : at + 16]!r} against {found[at : at + 16]!r}"
        )
    raise AssertionError(f"{what}: expected {_short(expected)}, found {_short(found)}")


def reads(storage: ObjectStorage, name: str, expected: bytes, what: str) -> None:
    """Fail unless the object exists with exactly these bytes."""
    try:
        found = storage.read(name)
    except NotFound as error:
        raise AssertionError(f"{what}: {name} is missing ({error})") from error
    same(found, expected, f"{what}: {name}")


def names_place(message: str, storage: ObjectStorage, what: str) -> None:
    """Fail unless an error names the place, as the URL does or as an unquoted path."""
    root = storage.url.partition("://")[2]
    require(root in message or unquote(root) in message, f"{what} must name {root}: {message}")


def is_absent(storage: ObjectStorage, name: str, what: str) -> None:
    """Fail if a reader or a listing can see the object."""
    with owed(NotFound, f"{what}: read of {name}"):
        storage.read(name)
    require(name not in names_in(storage), f"{what}: {name} is listed")


def names_in(storage: ObjectStorage, prefix: str = "") -> list[str]:
    """The names in a listing."""
    return [info.name for info in storage.list(prefix)]


def nothing_left(storage: ObjectStorage, count: Callable[[], int] | None, what: str) -> None:
    """Fail if the place holds anything: an object, an unfinished write, or a hidden leftover."""
    same(names_in(storage), [], f"{what}: objects that are left")
    same(list(storage.unfinished("")), [], f"{what}: unfinished writes that are left")
    if count is not None:
        same(count(), 0, f"{what}: files that are left at the place")


@contextmanager
def owed(kind: type[HoldfastError], what: str) -> Iterator[list[HoldfastError]]:
    """Fail unless the block raises `kind`; the list then holds the error."""
    caught: list[HoldfastError] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    except Exception as error:
        raise AssertionError(
            f"{what}: {kind.__name__} is owed, but {error!r} was raised"
        ) from error
    else:
        raise AssertionError(f"{what}: {kind.__name__} is owed, but nothing was raised")


def outcome_of(call: Callable[[], object]) -> object:
    """The answer of the call, or the error of Holdfast that it raises."""
    try:
        return call()
    except HoldfastError as error:
        return error


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
