"""Checkpoints in a directory: of this machine, or of any file system that fsspec knows."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import unquote

from holdfast.storage.clock import Clock
from holdfast.storage.entropy import Entropy
from holdfast.storage.errors import Invalid
from holdfast.storage.interface import Capabilities
from holdfast.storage.places.delegating import DelegatingStorage, Verbs
from holdfast.storage.places.fsspec.objects import FsspecObjects
from holdfast.storage.places.fsspec.urls import without_password
from holdfast.storage.places.local import LocalObjects, local_path

__all__ = ["FileSystemCheckpointStorage"]

_WHAT = "the URL of a checkpoint directory"


class _Objects(Verbs, Protocol):
    """The verbs of a kind of file system, with its capabilities and identity."""

    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def identity(self) -> str: ...


class FileSystemCheckpointStorage(DelegatingStorage):
    """Keeps checkpoints in a directory.

    `url` is a path, a `file:` URL, or a URL of any file system that fsspec knows, to which
    `storage_options` go. The directory is made when it is first written to.
    """

    def __init__(
        self,
        url: str,
        *,
        storage_options: Mapping[str, Any] | None = None,
        allow_unsafe_commit: bool = False,
        inline_limit_bytes: int = 20 * 1024,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        """Name a directory; nothing is touched before it is used.

        `allow_unsafe_commit` admits a file system on which two drivers of one job could both
        believe that they committed, and on which a move that is really a copy may show half a
        file; never needed for the local one.
        """
        super().__init__(inline_limit_bytes=inline_limit_bytes, clock=clock, entropy=entropy)
        path = local_path(url, what=_WHAT)
        self._objects: _Objects
        if path is not None:
            if storage_options or allow_unsafe_commit:
                raise Invalid(
                    "an option does not apply to a local directory",
                    where=url,
                    found="storage_options" if storage_options else "allow_unsafe_commit",
                    fix="Leave it out",
                )
            self._url = _file_url(path)
            self._objects = LocalObjects(path, self.entropy)
        else:
            self._url = without_password(url)
            objects = FsspecObjects(
                url,
                dict(storage_options or {}),
                self.entropy,
                allow_unsafe_commit=allow_unsafe_commit,
            )
            objects.warn_of_secrets()
            self._objects = objects

    @property
    def url(self) -> str:
        return self._url

    @property
    def identity(self) -> str:
        return self._objects.identity

    def at(self, url: str) -> FileSystemCheckpointStorage | None:
        objects = self._objects_at(url)
        if objects is None:
            return None
        other = copy.copy(self)
        path = local_path(url, what=_WHAT)
        other._url = without_password(url) if path is None else _file_url(path)
        other._objects = objects
        return other

    def _objects_at(self, url: str) -> _Objects | None:
        try:
            path = local_path(url, what=_WHAT)
        except Invalid:
            return None
        mine = self._objects
        if isinstance(mine, FsspecObjects):
            return None if path is not None else mine.at(url)
        return None if path is None else LocalObjects(path, self.entropy)

    @property
    def capabilities(self) -> Capabilities:
        return self._objects.capabilities

    @property
    def _verbs(self) -> Verbs:
        return self._objects


def _file_url(path: str) -> str:
    """The URL of an absolute path, which `local_path` reverses; as readable as possible."""
    return f"file://{path if unquote(path) == path else path.replace('%', '%25')}"
