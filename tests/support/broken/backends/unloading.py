"""Backends that unload too little, too much, or too late."""

from __future__ import annotations

from typing import Any

from holdfast.backends.blocks.block import Block
from holdfast.backends.hashmap.blocks import rows_of
from holdfast.backends.hashmap.tables import ObjectTable
from support.broken.backends.register import Lists, Maps, Values, breaks


@breaks("unloaded_values_are_gone", says="values by int after some were unloaded")
class UnloadsTheFirst(Values):
    def unload(self, block: Block) -> None:
        super().unload(block.rows(0, 1))


@breaks("unloaded_lists_are_gone", says="lists after some were unloaded")
class UnloadsOneElement(Lists):
    """An element for each row."""

    def unload(self, block: Block) -> None:
        for address in rows_of(self.spec, block).addresses:
            self.put(address, self.get(address)[1:])


@breaks("unloaded_maps_are_gone", says="maps after some were unloaded")
class UnloadsOnePage(Maps):
    def unload(self, block: Block) -> None:
        if block.map_keys is not None:
            super().unload(block)
            return
        for address in rows_of(self.spec, block).addresses:
            for map_key, _ in self.items(address)[:1024]:
                self.remove_entry(address, map_key)


@breaks("unloaded_entries_are_gone", says="what has entries by int after some were unloaded")
class UnloadsWholeMaps(Maps):
    def unload(self, block: Block) -> None:
        ObjectTable.unload(self, block)


@breaks("unloading_heeds_namespaces", says="namespaces of values after one was unloaded")
class UnloadsEveryNamespace(Values):
    def unload(self, block: Block) -> None:
        if self.spec.namespaces is None:
            super().unload(block)
            return
        keys = {key for key, _ in rows_of(self.spec, block).addresses}
        for address in self.entries.addresses():
            if address[0] in keys:
                self.remove(address)


@breaks("absent_rows_may_be_unloaded", says="lists that were unloaded from an empty table")
class UnloadsToEmptyLists(Lists):
    def unload(self, block: Block) -> None:
        for address in rows_of(self.spec, block).addresses:
            self.entries.put(address, [])


@breaks("unloading_does_not_change_frozen_tables", says="frozen entries, one unloaded since")
class UnloadsInPlace(Maps):
    def unload(self, block: Block) -> None:
        if block.map_keys is None:
            super().unload(block)
            return
        rows = rows_of(self.spec, block)
        for address, map_key in zip(rows.addresses, rows.map_keys or (), strict=True):
            self.entries.get(address).pop(map_key, None)


@breaks("loading_and_unloading_take_turns", says="lists loaded in turns")
class UnloadsWhenRead(Lists):
    """Collects what it is to unload, until the next read."""

    def __init__(self, spec: Any) -> None:
        super().__init__(spec)
        self.gathered: list[Block] = []

    def unload(self, block: Block) -> None:
        self.gathered.append(block)

    def addresses(self) -> Any:
        while self.gathered:
            super().unload(self.gathered.pop())
        return super().addresses()
