"""Where a sink's files are: a local directory, or a file system of fsspec.

A place knows two kinds of names, both relative to its root: *hidden* ones, in the folder
`_holdfast`, which readers such as Spark pass over, and *final* ones, which they see. A file is
written under a hidden name, and moved to a final one as a whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow as pa

from holdfast.storage import HoldfastError, Invalid, Unavailable
from holdfast.storage.places import local
from holdfast.storage.places.file_errors import translated
from holdfast.storage.places.fsspec.urls import without_password

__all__ = ["HIDDEN_FOLDER", "HiddenFile", "OutputFolder", "local_path", "translating"]

HIDDEN_FOLDER = "_holdfast"


class HiddenFile(ABC):
    """A file that is being written. Looks enough like a file of Python for pyarrow to write to."""

    mode = "wb"
    closed = False

    def __init__(self, file: BinaryIO, where: str) -> None:
        self._file = file
        self._written = 0
        self.where = where

    def write(self, data: Any) -> int:
        self._file.write(data)
        size_bytes = memoryview(data).nbytes
        self._written += size_bytes
        return size_bytes

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Does nothing: `finish` makes the file durable."""

    def close(self) -> None:
        """Does nothing: a writer on top must not end the file before it is durable."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    @abstractmethod
    def finish(self) -> int:
        """Make the file whole and durable, still under its hidden name; answers its length."""

    @abstractmethod
    def discard(self) -> None:
        """Abandon the file, finished or not, and remove it if possible."""


class OutputFolder(ABC):
    """A root with files. Light; safe to use from any thread.

    Every method lets errors of the operating system and of libraries out as they are: callers
    wrap them in `translating`.
    """

    def __init__(self, root: str, shown_url: str) -> None:
        self._root = root
        self.url = shown_url
        """The URL without a password, for messages and committables."""

    def where(self, name: str) -> str:
        """A file's full name without a password, for messages."""
        return f"{self.url.rstrip('/')}/{name}"

    def path(self, name: str) -> str:
        """A file's full name, for the file system."""
        return f"{self._root}/{name}"

    @abstractmethod
    def create(self, hidden: str) -> HiddenFile:
        """A new file, and the folders above it."""

    @abstractmethod
    def size_bytes(self, name: str) -> int | None:
        """The length of a file; None when there is none."""

    @abstractmethod
    def move(self, hidden: str, final: str) -> None:
        """Give a hidden file its final name; readers see it as a whole or not at all."""

    @abstractmethod
    def make_durable(self, finals: Sequence[str]) -> None:
        """Make the final names of these files durable, whichever process moved them."""

    @abstractmethod
    def remove(self, hidden: str) -> None:
        """Remove a file, if it is there."""

    @abstractmethod
    def listed(self, folder: str) -> list[str]:
        """The names of the files in a hidden folder; none when there is no such folder."""


@contextmanager
def translating(
    action: str, where: str, shown: Callable[[str], str] = without_password
) -> Iterator[None]:
    """Raise errors of libraries and of the operating system as Holdfast's errors.

    `shown` masks secrets in their texts.

    Raises:
        Invalid: the place cannot be used so, or the rows do not fit.
        Unavailable: it did not do it this time.
    """
    try:
        yield
    except HoldfastError:
        raise
    except OSError as error:
        raise translated(error, action, where, purpose="the output", shown=shown) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        first_line = shown(str(error)).partition("\n")[0]
        raise Invalid(f"cannot {action}", where=where, found=first_line) from error
    except Exception as error:
        first_line = shown(str(error)).partition("\n")[0]
        raise Unavailable(
            f"cannot {action}", where=where, found=f"{type(error).__name__}: {first_line}"
        ) from error


def local_path(url: str) -> str | None:
    """The absolute path that a path or a `file:` URL names; None for any other URL.

    Raises:
        Invalid: it names no place.
    """
    return local.local_path(url, what="the URL of a sink")
