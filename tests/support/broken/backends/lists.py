"""Backends whose list tables are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.backends.blocks.block import Block
from holdfast.backends.hashmap.blocks import rows_of
from support.broken.backends.register import Lists, breaks


@breaks("elements_keep_their_order", says="lists that were appended to")
class AppendsInFront(Lists):
    def extend(self, address: Any, cells: Sequence[Any]) -> None:
        super().put(address, [*cells, *self.get(address)])


@breaks("a_put_list_replaces_the_other", says="a list that replaced a longer one")
class PutsOver(Lists):
    def put(self, address: Any, cells: Sequence[Any]) -> None:
        super().put(address, [*cells, *self.get(address)[len(cells) :]])


@breaks("none_is_an_element_like_others", says="elements of 'plain', restored")
class DropsNone(Lists):
    def extend(self, address: Any, cells: Sequence[Any]) -> None:
        super().extend(address, [cell for cell in cells if cell is not None])


@breaks("an_empty_list_has_no_address", says="what has a list, when all are empty")
class KeepsEmptyLists(Lists):
    def put(self, address: Any, cells: Sequence[Any]) -> None:
        self.entries.put(address, list(cells))


@breaks("an_empty_list_is_absent", says="an empty list")
class PutsNoEmptyList(Lists):
    def put(self, address: Any, cells: Sequence[Any]) -> None:
        if cells:
            super().put(address, cells)


@breaks("a_list_may_be_kept", says="a list handed out before an append")
class HandsOutItsOwn(Lists):
    def get(self, address: Any) -> list[Any]:
        return self.entries.get(address) or []


@breaks("long_lists_are_whole", says="a list of many appends")
class ReadsOnePage(Lists):
    def get(self, address: Any) -> list[Any]:
        return super().get(address)[:1024]


@breaks("frozen_lists_do_not_change", says="frozen lists")
class AppendsInPlace(Lists):
    def extend(self, address: Any, cells: Sequence[Any]) -> None:
        there = self.entries.get(address)
        if there is None:
            self.put(address, cells)
        else:
            there.extend(cells)


@breaks("a_list_may_be_loaded_in_pieces", says="a list that was loaded in pieces")
class LoadsTheLastPiece(Lists):
    def load(self, block: Block) -> None:
        for address in set(rows_of(self.spec, block).addresses):
            self.remove(address)
        super().load(block)


@breaks("the_backend_reads_snapshots_of_another_one", says="state from another backend")
@breaks("snapshots_come_from_several_backends", says="state of key groups")
class LoadsBackwards(Lists):
    def load(self, block: Block) -> None:
        super().load(block)
        for address in set(rows_of(self.spec, block).addresses):
            self.put(address, self.get(address)[::-1])


@breaks("elements_and_entries_expire_one_by_one", says="elements and entries that still live")
class HasOneStampForAll(Lists):
    def get(self, address: Any) -> list[Any]:
        found = super().get(address)
        return [(found[-1][0], cell) for _, cell in found]


@breaks("a_clean_up_keeps_live_entries", says="what a clean-up left")
class DropsWhatGetsShorter(Lists):
    def put(self, address: Any, cells: Sequence[Any]) -> None:
        super().put(address, [] if len(cells) < len(self.get(address)) else cells)


@breaks("namespaces_are_merged", says="keys with state in the sources")
@breaks("a_merge_may_name_its_target", says="a merge that names its target")
class ClearsNothing(Lists):
    def remove(self, address: Any) -> None:
        pass
