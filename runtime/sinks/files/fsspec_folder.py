"""Files of a sink in any file system that fsspec knows and that can make a file appear whole.

- Stores of objects (`s3`, `gs`, `abfs` and the like, and `memory`) copy an object as a whole; the
  hidden one is removed afterwards. A crash between the two leaves both, which a repeated commit
  sees.
- Others must have a rename of their own (`hdfs`, `sftp`, `ftp` and the like). Where fsspec would
  copy a file piece by piece to its final name, readers could see half of it: refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from holdfast.runtime.sinks.files.output_folder import HiddenFile, OutputFolder, translating
from holdfast.storage import Invalid
from holdfast.storage.distribution import install_line
from holdfast.storage.places.fsspec.urls import FsspecAddress, file_system_class, without_password

__all__ = ["FsspecOutputFolder"]

_OBJECT_STORES = frozenset(
    {"memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci"}
)
_EXTRAS = {
    "s3": ("s3fs", "s3"),
    "s3a": ("s3fs", "s3"),
    "hdfs": ("hdfs_native", "hdfs"),
    "viewfs": ("hdfs_native", "hdfs"),
}


class FsspecOutputFolder(OutputFolder):
    """A folder of a file system of fsspec."""

    def __init__(
        self, url: str, storage_options: Mapping[str, Any], *, like: OutputFolder | None = None
    ) -> None:
        """Name a place; it is looked at, but nothing in it is touched.

        The URL says which server, and as whom; `storage_options` count before it. One without a
        password has that of the place `like`, if it is of the same server and user; another server
        than that of `like` is told nothing of the options.

        Raises:
            Invalid: no such file system is known, its package is not installed, it cannot make a
                file appear whole, or cannot be set up so.
            Unavailable: there is no way to its server.
        """
        shown_url = without_password(url)
        scheme = url.partition("://")[0]
        kind = _class_of(scheme, shown_url)
        self._copies = scheme in _OBJECT_STORES
        if not self._copies and kind.mv is AbstractFileSystem.mv:
            raise Invalid(
                f"a {scheme} file system cannot make a file appear as a whole",
                where=shown_url,
                expected="one that renames, or copies whole objects: file, hdfs, s3, gs, abfs",
                fix="Choose another place for the output",
            )
        self.address = FsspecAddress(kind, url, storage_options)
        if isinstance(like, FsspecOutputFolder) and self.address.server != like.address.server:
            # The URL comes from a checkpoint, which may have been forged to collect passwords.
            self.address = FsspecAddress(kind, url, {})
        elif isinstance(like, FsspecOutputFolder):
            self.address = self.address.led_by(like.address) or self.address
        with translating("open the place of a sink", shown_url, self.address.shown):
            self._files = self.address.files
        super().__init__(self.address.root, shown_url)

    def create(self, hidden: str) -> HiddenFile:
        path = self.path(hidden)
        if not self._copies:
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        return _RemoteFile(self._files, path, self.where(hidden))

    def size_bytes(self, name: str) -> int | None:
        try:
            return int(self._files.info(self.path(name))["size"])
        except FileNotFoundError:
            return None

    def move(self, hidden: str, final: str) -> None:
        source, target = self.path(hidden), self.path(final)
        if self._copies:
            self._files.cp_file(source, target)
            self.remove(hidden)
        else:
            self._files.mv(source, target)

    def make_durable(self, finals: Sequence[str]) -> None:
        """These file systems answer when the change is safe, or know of no sync."""

    def remove(self, hidden: str) -> None:
        with suppress(FileNotFoundError):
            self._files.rm_file(self.path(hidden))

    def listed(self, folder: str) -> list[str]:
        try:
            found = self._files.ls(self.path(folder), detail=True)
        except FileNotFoundError:
            return []
        return sorted(info["name"].rpartition("/")[2] for info in found if info["type"] == "file")


class _RemoteFile(HiddenFile):
    def __init__(self, files: Any, path: str, where: str) -> None:
        super().__init__(files.open(path, "wb"), where)
        self._files = files
        self._path = path

    def finish(self) -> int:
        self._file.close()
        return self._written

    def discard(self) -> None:
        if isinstance(self._file, AbstractBufferedFile) and not self._file.closed:
            self._file.discard()  # else the parts of an upload would become an object
            self._file.closed = True  # nor shall that happen when it is collected
        else:
            self._file.close()
        with suppress(FileNotFoundError):
            self._files.rm_file(self._path)


def _class_of(scheme: str, shown_url: str) -> type[AbstractFileSystem]:
    package, extra = _EXTRAS.get(scheme, ("", ""))
    if package and find_spec(package) is None:
        raise Invalid(
            f"a package that {scheme} URLs need is not installed",
            where=shown_url,
            found=f"no package {package}",
            fix=install_line(extra),
        )
    kind: type[AbstractFileSystem] = file_system_class(scheme, shown_url, kind="file system")
    return kind
