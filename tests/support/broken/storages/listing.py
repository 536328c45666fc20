"""Storages that list wrongly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter

from holdfast.storage import ObjectInfo, SystemClock
from support.broken.storages.register import Local, breaks


@breaks("a_listing_shows_names_and_sizes", says="the listing")
class ListsNoSizes(Local):
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return (replace(info, size_bytes=0) for info in super().list(prefix))


@breaks("a_listing_is_in_the_order_of_names", says="the order of the listing of ''")
class ListsFolderByFolder(Local):
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return iter(sorted(super().list(prefix), key=lambda info: info.name.split("/")))


@breaks("many_numbers_are_listed_in_order", says="the listing of 1100 checkpoints")
class ListsOnePage(Local):
    def __init__(self, url: str) -> None:
        super().__init__(f"memory://{url}")

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return iter([*super().list(prefix)][:1000])


@breaks("a_prefix_is_plain_text", says="the listing of prefix 'A/b'")
class ListsFolders(Local):
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return super().list(prefix and f"{prefix.rstrip('/')}/")


@breaks("an_illegal_prefix_lists_nothing", says="the listing of prefix '/'")
class ForgivesPrefixes(Local):
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return super().list(prefix.lstrip("/"))


@breaks("an_unfinished_write_is_not_listed", says="while writing")
class ListsUnfinishedWrites(Local):
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        begun = [ObjectInfo(found.target, found.size_bytes) for found in self.unfinished(prefix)]
        return iter(sorted([*super().list(prefix), *begun], key=attrgetter("name")))


@breaks("a_deleted_object_is_not_listed", says="was deleted")
class ListsTheDeleted(Local):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.gone: list[str] = []

    def delete(self, names: Iterable[str]) -> None:
        self.gone += names
        super().delete(self.gone)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        gone = [ObjectInfo(name, 0) for name in self.gone if name.startswith(prefix)]
        return iter(sorted([*super().list(prefix), *gone], key=attrgetter("name")))


@breaks("a_listing_is_right_beside_changes", says="all that stayed|each once, in order")
class CountsItsPages(Local):
    """Goes on at a position, which means another object once one before it has come or gone."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        position = 0
        while page := [*super().list(prefix)][position : position + 10]:
            yield from page
            position += 10
            SystemClock().sleep_s(0.001)
