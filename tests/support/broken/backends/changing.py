"""Backends whose blocks of rows are wrong, or whose timers cannot be replayed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from threading import get_ident

import msgspec

from holdfast.backends import ByteTableStore, KeyGroupRange, TableStore
from holdfast.backends.blocks.block import NO_VALUES, Block, Column
from holdfast.backends.blocks.columns import join_values, split_values
from holdfast.backends.state.heap_timers import HeapTimerQueue
from holdfast.backends.tables.contract import Rows, TableSpec
from holdfast.backends.tables.timer_queues import TimerQueue
from support.broken.backends.register import Altered, Store, breaks
from support.states.counting_byte_store import MemoryStore


@breaks("rows_make_the_same_table", says="values, keys of type int")
class LosesTheLastRow(Store):
    def blocks(self, spec: TableSpec, rows: Rows) -> Iterator[Block]:
        for block in super().blocks(spec, rows):
            yield block.rows(0, block.count - 1)


@breaks("blocks_of_rows_are_by_key_group", says="the key groups of rows by int")
class TellsNoGroups(Store):
    def blocks(self, spec: TableSpec, rows: Rows) -> Iterator[Block]:
        for block in super().blocks(spec, rows):
            yield msgspec.structs.replace(block, groups=bytes(len(block.groups)))


@breaks("rows_of_an_address_stay_in_order", says="values that were set in turns|lists whose")
class TakesTheLastFirst(Store):
    def blocks(self, spec: TableSpec, rows: Rows) -> Iterator[Block]:
        backwards = [
            None if each is None else each[::-1]
            for each in (rows.addresses, rows.map_keys, rows.cells)
        ]
        return super().blocks(spec, Rows(backwards[0] or (), *backwards[1:]))


@breaks("blocks_of_rows_have_all_their_parts", says="rows with all their parts")
class StampsRowsWithZero(Store):
    def blocks(self, spec: TableSpec, rows: Rows) -> Iterator[Block]:
        for block in super().blocks(spec, rows):
            stamps = None if block.stamps is None else bytes(len(block.stamps))
            yield msgspec.structs.replace(block, stamps=stamps)


@breaks("many_rows_make_several_blocks", says="rows must make more than 1 blocks")
class MakesOneBlock(Store):
    def blocks(self, spec: TableSpec, rows: Rows) -> Iterator[Block]:
        every = list(super().blocks(spec, rows))
        columns = [each.keys.to_list(each.count) for each in every]
        values = [split_values(spec.values, each.values, spec.name) for each in every if rows.cells]
        yield Block(
            count=sum(each.count for each in every),
            groups=b"".join(each.groups for each in every),
            keys=Column.of([key for column in columns for key in column]),
            namespaces=None,
            map_keys=None,
            values=join_values(spec.values, [v for each in values for v in each]) or NO_VALUES,
            stamps=None,
        )


@breaks("rows_without_cells_are_unloaded", says="maps of which entries were unloaded")
class NamesNoEntries(Store):
    def blocks(self, spec: TableSpec, rows: Rows) -> Iterator[Block]:
        return super().blocks(spec, rows if rows.cells is not None else Rows(rows.addresses))


@breaks("making_blocks_changes_nothing", says="the table that is there")
class WritesWhatItMakes(Store):
    """Through the table, which it takes for the one that the rows are of."""

    def blocks(self, spec: TableSpec, rows: Rows) -> Iterator[Block]:
        for block in super().blocks(spec, rows):
            table = self._tables.get(spec.name)
            if table is not None and table.spec == spec and rows.cells is not None:
                table.load(block)
            yield block


@breaks("another_thread_makes_blocks", says="the blocks that another thread makes")
class WorksForItsOwnerOnly(Store):
    def __init__(self, max_parallelism: int) -> None:
        super().__init__(max_parallelism)
        self.owner = get_ident()

    def blocks(self, spec: TableSpec, rows: Rows) -> Iterator[Block]:
        return super().blocks(spec, rows if get_ident() == self.owner else Rows(()))


class _TimersOfOneMoment(ByteTableStore):
    """Takes the moment of the first of its rows for that of all."""

    def blocks(self, spec: TableSpec, rows: Rows) -> Iterator[Block]:
        if spec.is_timers and rows.map_keys is not None:
            rows = replace(rows, map_keys=[rows.map_keys[0]] * len(rows.addresses))
        return super().blocks(spec, rows)


@breaks("timers_are_rows_with_their_moments", says="timers as rows")
class TimersOfOneMoment(Altered):
    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        return _TimersOfOneMoment(MemoryStore(), key_groups, max_parallelism)


class _EagerQueue(HeapTimerQueue):
    """Reads its table when it is made."""

    def __init__(self, store: TableStore, spec: TableSpec) -> None:
        super().__init__(store, spec)
        self._read()


@breaks("timers_change_before_they_are_read", says="the first timer after a replay")
class ReadsTimersAtOnce(Store):
    def timer_queue(self, spec: TableSpec) -> TimerQueue:
        return _EagerQueue(self, spec)
