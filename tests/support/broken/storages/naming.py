"""Storages that have names of their own."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from holdfast.storage import Buffer, NotFound, ObjectInfo, ObjectWriter
from holdfast.storage.names import is_legal
from support.broken.storages.register import Local, Through, WithWriter, breaks


class Renames(Local):
    """Keeps each object under another name, and lists it under that."""

    def kept_as(self, name: str) -> str:
        raise NotImplementedError

    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        return super().read_range(self.kept_as(name), offset, length)

    def writer(self, name: str) -> ObjectWriter:
        return super().writer(self.kept_as(name))

    def create(self, name: str, data: Buffer) -> bytes | None:
        return super().create(self.kept_as(name), data)

    def delete(self, names: Iterable[str]) -> None:
        super().delete(self.kept_as(name) for name in names)


@breaks("every_legal_character_is_kept", says="a legal name")
class LosesTildes(Renames):
    def kept_as(self, name: str) -> str:
        return name.replace("~", "-")


@breaks("names_that_look_alike_stay_apart", says="a legal name")
class FoldsCase(Renames):
    def kept_as(self, name: str) -> str:
        return name.lower()


@breaks("long_names_are_kept", says="every legal name must be listed")
class CutsLongNames(Renames):
    def kept_as(self, name: str) -> str:
        return "/".join(part[:128] for part in name.split("/"))


@breaks("an_illegal_name_is_no_other_name", says="after delete and write of folder//object")
class TidiesNames(Renames):
    def kept_as(self, name: str) -> str:
        return posixpath.normpath(name).lstrip("/")


@breaks("checkpoints_are_in_order_of_number", says="exists already")
class CutsNumbers(Renames):
    def kept_as(self, name: str) -> str:
        return name.replace("chk-0000000000", "chk-").replace("chk-1000000000", "chk-")


@breaks("no_legal_name_is_hidden", says="every legal name must be listed")
class HidesWhatLooksUnfinished(Local):
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        found = super().list(prefix)
        return (info for info in found if not info.name.endswith((".unfinished", ".tmp")))


@breaks("an_illegal_name_is_refused_by_every_verb", says="read of '': Invalid is owed")
class FindsNoIllegalNames(Local):
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        if not is_legal(name):
            raise NotFound("no such object", where=self.url_of(name))
        return super().read_range(name, offset, length)


@breaks("a_name_below_another_is_kept_or_refused", says="write-a/b is missing")
class LosesWhatLiesBelow(WithWriter):
    def writer(self, name: str) -> ObjectWriter:
        parent = posixpath.dirname(name)
        if any(info.name == parent for info in self.list(parent)):
            return _Nowhere(self, name, self.sound_writer(f"{name.replace('/', '-')}-lost"))
        return super().writer(name)


class _Nowhere(Through):
    def commit(self) -> None:
        self.inner.abort()
