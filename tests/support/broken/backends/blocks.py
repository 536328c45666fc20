"""Backends whose blocks are wrong, or wrongly loaded."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from holdfast.backends.blocks.block import Block
from holdfast.backends.blocks.columns import join_values, split_values
from holdfast.backends.tables.contract import StateKind, TableSpec
from support.broken.backends.register import FrozenThrough, Values, WithFrozen, breaks


class _WithBlocks(WithFrozen):
    """A store that changes the blocks of a table before they are read."""

    def changed(self, blocks: list[Block], spec: TableSpec) -> list[Block]:
        raise NotImplementedError

    class Frozen(FrozenThrough):
        store: _WithBlocks

        def blocks(self, spec: TableSpec, keep_from_ms: int | None) -> Iterator[Block]:
            return iter(self.store.changed(list(super().blocks(spec, keep_from_ms)), spec))


@breaks("rows_come_by_ascending_key_group", says="the key groups of keys of type int")
@breaks("timers_move_with_their_keys", says="keys with timers in a slot")
@breaks("key_groups_may_be_spread_anew", says="keys in slot 0 to 42")
@breaks("a_part_of_the_key_groups_is_enough", says="keys in key groups 0 to 0")
@breaks("keys_of_every_type_move", says="keys of type int in a slot")
class PutsAllIntoOneGroup(_WithBlocks):
    def changed(self, blocks: list[Block], spec: TableSpec) -> list[Block]:
        return [msgspec.structs.replace(each, groups=bytes(len(each.groups))) for each in blocks]


@breaks("blocks_have_every_row_once", says="rows of a large table")
class LosesTheLastOfManyBlocks(_WithBlocks):
    def changed(self, blocks: list[Block], spec: TableSpec) -> list[Block]:
        return blocks[:-1] or blocks


@breaks("rows_have_all_their_parts", says="rows with all their parts")
class StampsWithZero(_WithBlocks):
    def changed(self, blocks: list[Block], spec: TableSpec) -> list[Block]:
        return [
            each
            if each.stamps is None
            else msgspec.structs.replace(each, stamps=bytes(len(each.stamps)))
            for each in blocks
        ]


@breaks("a_list_s_rows_are_in_order", says="lists, from their rows")
@breaks("another_backend_reads_its_snapshots", says="state from another backend")
class WritesListsBackwards(_WithBlocks):
    """The values of the rows that have one key, the other way round."""

    def changed(self, blocks: list[Block], spec: TableSpec) -> list[Block]:
        return [self.backwards(each, spec) for each in blocks]

    def backwards(self, block: Block, spec: TableSpec) -> Block:
        if spec.kind is not StateKind.LIST:
            return block
        owners = block.keys.to_list(block.count)
        if block.namespaces is not None:
            spaces = block.namespaces.to_list(block.count)
            owners = [key + space for key, space in zip(owners, spaces, strict=True)]
        values = split_values(spec.values, block.values, spec.name)
        left = {owner: [] for owner in owners}  # type: dict[bytes, list[bytes]]
        for owner, value in zip(owners, values, strict=True):
            left[owner].append(value)
        return msgspec.structs.replace(
            block, values=join_values(spec.values, [left[owner].pop() for owner in owners])
        )


@breaks("expired_rows_can_be_left_out", says="stamps of rows that are kept from")
@breaks("snapshots_leave_out_expired_entries", says="keys after the restore")
class LeavesNothingOut(WithFrozen):
    class Frozen(FrozenThrough):
        def blocks(self, spec: TableSpec, keep_from_ms: int | None) -> Iterator[Block]:
            return super().blocks(spec, None)


@breaks("timers_are_in_snapshots", says="timers, int keys")
class WritesNoTimers(_WithBlocks):
    def changed(self, blocks: list[Block], spec: TableSpec) -> list[Block]:
        return [] if spec.name.startswith("_timers") else blocks


@breaks("a_loaded_table_is_the_one_written", says="keys of type int, loaded")
@breaks("time_goes_on_over_a_restore", says="just before their time")
@breaks("time_to_live_may_be_added_and_removed", says="a value that is mortal since the restore")
class LoadsAllAsOld(Values):
    def load(self, block: Block) -> None:
        if block.stamps is not None:
            block = msgspec.structs.replace(block, stamps=np.zeros(block.count, np.int64).tobytes())
        super().load(block)
