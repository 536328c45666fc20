"""Storages that read wrongly."""

from __future__ import annotations

from holdfast.storage import NotFound
from support.broken.storages.register import Local, breaks


@breaks("reads_back_what_was_written", says="what was written")
class ReadsAsText(Local):
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        return super().read_range(name, offset, length).replace(b"\r\n", b"\n")


@breaks("a_range_is_just_its_bytes", says=r"\d bytes from \d")
class ReadsToTheEnd(Local):
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        data = super().read_range(name, offset, length)
        return data and super().read_range(name, offset, None)


@breaks("a_range_past_the_end_answers_what_is_there", says="of 9")
class PadsPastTheEnd(Local):
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        data = super().read_range(name, offset, length)
        return data if length is None else data.ljust(min(length, 1000), b"\0")


@breaks("a_range_of_no_bytes_is_empty", says="no bytes from 0")
class TakesZeroForAll(Local):
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        return super().read_range(name, offset, length or None)


@breaks("a_negative_range_is_invalid", says="Invalid is owed, but nothing was raised")
class CountsFromTheEnd(Local):
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        return super().read_range(name, 0, None)[offset:][:length]


@breaks("an_empty_object_is_not_a_missing_one", says="empty is missing")
class MissesEmptyObjects(Local):
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        if not super().read_range(name, 0, None):
            raise NotFound("no such object", where=self.url_of(name))
        return super().read_range(name, offset, length)


@breaks("a_missing_object_is_not_found", says="NotFound is owed, but nothing was raised")
class ReadsNothingOfNothing(Local):
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        try:
            return super().read_range(name, offset, length)
        except NotFound:
            return b""


@breaks("a_missing_object_is_named", says="must name the object")
class NamesNothing(Local):
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        try:
            return super().read_range(name, offset, length)
        except NotFound:
            raise NotFound("no such object", where=self.url) from None


@breaks("a_folder_is_not_an_object", says="NotFound is owed, but nothing was raised")
class ReadsFolders(Local):
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        if any(self.list(f"{name}/")):
            return b""
        return super().read_range(name, offset, length)
