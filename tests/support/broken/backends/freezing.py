"""Backends whose frozen tables thaw, or hold others back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

from holdfast.backends.blocks.block import Block
from holdfast.backends.hashmap.layered import LayeredDict
from holdfast.backends.tables.contract import FrozenTables, TableSpec
from holdfast.storage import Invalid
from support.broken.backends.register import FrozenThrough, Store, Values, WithFrozen, breaks


@breaks("frozen_values_do_not_change", says="values in frozen tables")
@breaks("another_thread_reads_frozen_tables", says="what another thread read")
@breaks("many_snapshots_may_be_under_way", says="state at barrier 0")
class FreezesWhenItIsRead(WithFrozen):
    class Frozen(FrozenThrough):
        thawed: FrozenTables | None = None

        def blocks(self, spec: TableSpec, keep_from_ms: int | None) -> Iterator[Block]:
            if self.thawed is None:
                self.thawed = self.store.soundly_frozen()
            return self.thawed.blocks(spec, keep_from_ms)

        def release(self) -> None:
            super().release()
            if self.thawed is not None:
                self.thawed.release()


@breaks("a_dropped_table_stays_frozen", says="a table dropped later")
class DropsWhatIsFrozen(WithFrozen):
    def drop_table(self, spec: TableSpec) -> None:
        self.dropped = {*getattr(self, "dropped", ()), spec.name}
        super().drop_table(spec)

    class Frozen(FrozenThrough):
        store: DropsWhatIsFrozen

        def blocks(self, spec: TableSpec, keep_from_ms: int | None) -> Iterator[Block]:
            if spec.name in self.store.dropped:
                return iter(())
            return super().blocks(spec, keep_from_ms)


@breaks("each_freeze_has_its_own_moment", says="the tables of moment 3")
class HasOneMoment(WithFrozen):
    """As long as frozen tables are held, they serve for the next freeze too."""

    held: FrozenTables | None = None
    holders = 0

    def soundly_frozen(self) -> FrozenTables:
        if self.held is None:
            self.held = super().soundly_frozen()
        self.holders += 1
        return self.held

    class Frozen(FrozenThrough):
        store: HasOneMoment

        def release(self) -> None:
            self.store.holders -= 1
            if self.store.holders == 0:
                super().release()
                self.store.held = None


@breaks("changes_between_freezes_are_not_lost", says="tables frozen often")
@breaks("state_goes_on_over_many_snapshots", says="state after")
class SettlesForTheNewest(Store):
    def settle(self, stop: Callable[[], bool]) -> None:
        for table in list(self._tables.values()):
            entries = table.entries
            if not entries._views:
                entries._frozen = entries._frozen[-1:]


class _WithoutLock(LayeredDict):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self._walk: Any = nullcontext()

    def addresses(self) -> list[Any]:
        """Entry by entry, so that the other thread does come between two of them."""
        layers = (*self._frozen, self.hot)
        return [
            address
            for number, layer in enumerate(layers)
            for address, value in layer.items()
            if value is not None and not any(address in above for above in layers[number + 1 :])
        ]


@breaks("the_owner_goes_on_while_the_store_settles", says="the owner failed beside a thread")
class FoldsUnderItsOwnerSFeet(Values):
    def __init__(self, spec: TableSpec) -> None:
        super().__init__(spec)
        self.entries = _WithoutLock()
        self.direct = self.entries


@breaks("settling_stops_when_told_to", says="went on when told to stop")
class DoesNotStop(Store):
    def settle(self, stop: Callable[[], bool]) -> None:
        def hears_and_goes_on() -> bool:
            return stop() and False

        super().settle(hears_and_goes_on)


@breaks("a_failed_snapshot_harms_nothing", says="state after a snapshot failed")
class ForgetsWhatNobodyRead(WithFrozen):
    class Frozen(FrozenThrough):
        was_read = False

        def blocks(self, spec: TableSpec, keep_from_ms: int | None) -> Iterator[Block]:
            self.was_read = True
            return super().blocks(spec, keep_from_ms)

        def release(self) -> None:
            super().release()
            if not self.was_read:
                for table in self.store._tables.values():
                    for address in table.entries.addresses():
                        table.remove(address)


@breaks("an_empty_table_has_no_rows", says="nothing to read")
@breaks("an_empty_snapshot_is_restored", says="nothing to read")
class CannotReadNothing(WithFrozen):
    class Frozen(FrozenThrough):
        def blocks(self, spec: TableSpec, keep_from_ms: int | None) -> Iterator[Block]:
            found = list(super().blocks(spec, keep_from_ms))
            if not found:
                raise Invalid("there is nothing to read")
            return iter(found)
