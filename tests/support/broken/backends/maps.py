"""Backends whose map tables are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from holdfast.backends.blocks.block import Block
from holdfast.backends.hashmap.blocks import NULL
from holdfast.backends.tables.contract import TableSpec
from support.broken.backends.register import Maps, breaks


@breaks("entries_are_kept_by_map_key", says="what was put")
class KeepsTheFirst(Maps):
    def put(self, address: Any, map_key: Any, cell: Any) -> None:
        if self.get(address, map_key) is None:
            super().put(address, map_key, cell)


@breaks("a_null_entry_is_there", says="null and absent")
@breaks("a_map_tells_null_from_absent", says="an entry that is null")
class PutsNoNull(Maps):
    def put(self, address: Any, map_key: Any, cell: Any) -> None:
        if cell is not NULL:
            super().put(address, map_key, cell)


@breaks("many_entries_are_put_as_one_by_one", says="entries put at once")
class ReplacesTheMap(Maps):
    def put_all(self, address: Any, cells: Iterable[tuple[Any, Any]]) -> None:
        self.remove(address)
        super().put_all(address, cells)


@breaks("a_removed_entry_is_gone", says="keys, after the last entry of one was removed")
class KeepsEmptyMaps(Maps):
    def remove_entry(self, address: Any, map_key: Any) -> None:
        there = self.entries.get(address)
        if there is not None:
            there.pop(map_key, None)


@breaks("a_deleted_timer_does_not_fire", says="and after a restore")
class RemovesNoEntry(Maps):
    def remove_entry(self, address: Any, map_key: Any) -> None:
        pass


@breaks("entries_may_be_kept", says="entries that were handed out")
class HasOneList(Maps):
    def __init__(self, spec: TableSpec) -> None:
        super().__init__(spec)
        self.handed_out: list[tuple[Any, Any]] = []

    def items(self, address: Any) -> list[tuple[Any, Any]]:
        self.handed_out[:] = super().items(address)
        return self.handed_out


@breaks("map_keys_of_every_type", says="types of NamedTuple")
class ForgetsTheClassOfMapKeys(Maps):
    def items(self, address: Any) -> list[tuple[Any, Any]]:
        found = super().items(address)
        return [
            (tuple(map_key) if isinstance(map_key, tuple) else map_key, cell)
            for map_key, cell in found
        ]


@breaks("a_removed_map_is_gone", says="a map that was removed")
class RemovesOnePage(Maps):
    def remove(self, address: Any) -> None:
        for map_key, _ in self.items(address)[:1024]:
            self.remove_entry(address, map_key)


@breaks("frozen_maps_do_not_change", says="entries in frozen tables")
@breaks("a_snapshot_is_the_state_at_its_barrier", says="state at the barrier")
class PutsInPlace(Maps):
    def put(self, address: Any, map_key: Any, cell: Any) -> None:
        there = self.entries.get(address)
        if there is None:
            super().put(address, map_key, cell)
        else:
            there[map_key] = cell


@breaks("a_map_may_change_while_it_is_walked", says="values that were walked")
class WalksWhatThereIs(Maps):
    def items(self, address: Any) -> Any:
        return self.walk(address, len(super().items(address)))

    def walk(self, address: Any, length: int) -> Iterator[tuple[Any, Any]]:
        for place in count():
            found = super().items(address)
            if place >= min(length, len(found)):
                return
            yield found[place]


@breaks("values_are_migrated", says="state of a class that has changed")
class LoadsNoNull(Maps):
    def load(self, block: Block) -> None:
        super().load(block)
        for address in self.entries.addresses():
            for map_key, cell in self.items(address):
                if self.spec.values.decode(cell) is None:
                    self.remove_entry(address, map_key)
