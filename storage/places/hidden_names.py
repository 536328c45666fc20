"""The hidden names under which storages write before they move a file; listings without them.

<folder>/<name>  is written as  <folder>/.<name>.<token>.unfinished
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from holdfast.storage.entropy import Entropy
from holdfast.storage.interface import ObjectInfo, UnfinishedWrite
from holdfast.storage.names import is_legal

__all__ = [
    "UNFINISHED_SUFFIX",
    "hidden_name",
    "objects_in",
    "target_of",
    "unfinished_in",
    "walk",
]

_Entry = TypeVar("_Entry")

UNFINISHED_SUFFIX = ".unfinished"


def hidden_name(name: str, entropy: Entropy) -> str:
    """A name beside `name` that no listing shows and no other writer uses."""
    folder, separator, target = name.rpartition("/")
    return f"{folder}{separator}.{target}.{entropy.token()}{UNFINISHED_SUFFIX}"


def target_of(hidden: str) -> str | None:
    """The name that `hidden_name` was given; None when it is no such name."""
    folder, separator, last = hidden.rpartition("/")
    if not (last.startswith(".") and last.endswith(UNFINISHED_SUFFIX)):
        return None
    target = last[1:].removesuffix(UNFINISHED_SUFFIX).rpartition(".")[0]
    return f"{folder}{separator}{target}" if target else None


def walk(
    prefix: str, entries: Callable[[str], Iterable[tuple[str, _Entry]]]
) -> Iterator[tuple[str, _Entry]]:
    """All files whose folder can hold the prefix, in order of name, hidden ones too.

    `entries` answers the sorted content of a folder, whose name ends with a slash or is empty for
    the root; names of folders in it end with a slash. Hidden files are matched against the prefix
    by the name that they will have.
    """
    folder = prefix.rpartition("/")[0]
    if folder and not is_legal(folder):
        return  # no name begins so, and the path could lead out of the root
    yield from _walk(f"{folder}/" if folder else "", prefix, entries)


def _walk(
    folder: str, prefix: str, entries: Callable[[str], Iterable[tuple[str, _Entry]]]
) -> Iterator[tuple[str, _Entry]]:
    for suffix, entry in entries(folder):
        name = folder + suffix
        if suffix.endswith("/"):
            if name.startswith(prefix) or prefix.startswith(name):
                yield from _walk(name, prefix, entries)
        elif name.startswith(prefix) or (folder + suffix.lstrip(".")).startswith(prefix):
            yield name, entry


def objects_in(files: Iterable[tuple[str, int]], prefix: str) -> Iterator[ObjectInfo]:
    """The objects among files with their sizes: those that are not hidden."""
    for name, size_bytes in files:
        if name.startswith(prefix) and not name.rpartition("/")[2].startswith("."):
            yield ObjectInfo(name, size_bytes)


def unfinished_in(files: Iterable[tuple[str, int]], prefix: str) -> Iterator[UnfinishedWrite]:
    """The unfinished writes among files with their sizes, by the names that they will have."""
    for name, size_bytes in files:
        target = target_of(name)
        if target is not None and target.startswith(prefix):
            yield UnfinishedWrite(name, target, size_bytes)
