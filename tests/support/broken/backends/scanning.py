"""Backends that lose their way through a table, or among tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import Any

from holdfast.backends.hashmap.tables import ObjectTable
from holdfast.backends.tables.contract import Table, TableSpec
from support.broken.backends.register import Lists, Maps, Store, Values, breaks


@breaks("addresses_are_named_once", says="how often each key of a list table is named")
class NamesEachElement(Lists):
    def addresses(self) -> Iterator[tuple[Any, Any]]:
        for address, owner in zip(self.entries.addresses(), super().addresses(), strict=True):
            yield from [owner] * len(self.get(address))


@breaks("keys_of_every_type_are_named", says="keys of type NamedTuple")
@breaks("keys_of_every_type", says="keys of type NamedTuple")
class ForgetsTheClassOfKeys(Values):
    def addresses(self) -> Iterator[tuple[Any, Any]]:
        for key, namespace in super().addresses():
            yield tuple(key) if isinstance(key, tuple) else key, namespace


@breaks("the_table_may_change_while_it_is_walked", says="how often a value table named")
@breaks("state_may_change_while_keys_are_walked", says="keys of value state that stayed")
class CountsItsSteps(Values):
    def addresses(self) -> Iterator[tuple[Any, Any]]:
        for place in count():
            found = list(islice(super().addresses(), place, place + 1))
            if not found:
                return
            yield from found


@breaks("a_sweep_returns_at_most_its_limit", says="a sweep of 1 answered")
class SweepsAll(Maps):
    def sweep(self, limit: int) -> Iterable[Any]:
        return self.entries.addresses()


@breaks(
    "sweeps_reach_every_address", says="addresses that sweeps of a value table left out in round 0"
)
@breaks("accesses_clean_up_expired_entries_that_are_not_read", says="keys after a hundred accesses")
class NeverSweeps(Values):
    def sweep(self, limit: int) -> Iterable[Any]:
        return ()


def _remove_all_that_begin_so(table: ObjectTable, address: Any) -> None:
    for other in table.entries.addresses():
        if str(other).startswith(str(address)):
            table.entries.remove(other)


@breaks("values_leave_their_neighbours_alone", says="what is left after")
class RemovesByPrefix(Values):
    def remove(self, address: Any) -> None:
        _remove_all_that_begin_so(self, address)


@breaks("lists_leave_their_neighbours_alone", says="what is left after")
class RemovesListsByPrefix(Lists):
    def remove(self, address: Any) -> None:
        _remove_all_that_begin_so(self, address)


@breaks("maps_leave_their_neighbours_alone", says="what is left after")
class RemovesMapsByPrefix(Maps):
    def remove(self, address: Any) -> None:
        _remove_all_that_begin_so(self, address)


@breaks("tables_are_apart", says="the value in table 'A|the value in table 'a'")
class KnowsNoCase(Store):
    def table(self, spec: TableSpec) -> ObjectTable:
        return self._tables.setdefault(spec.name.lower(), self.kinds[spec.kind](spec))


@breaks("a_dropped_table_opens_empty", says="a table of a name that was dropped")
class DropsNothing(Store):
    def drop_table(self, spec: TableSpec) -> None:
        pass


@breaks("a_table_is_opened_again_as_it_is", says="tables that were opened again")
class BeginsAnew(Store):
    def table(self, spec: TableSpec) -> Table:
        self._tables.pop(spec.name, None)
        return super().table(spec)


_kept: dict[str, ObjectTable] = {}


@breaks("state_is_apart", says="keys of its right half")
@breaks("a_snapshot_may_be_restored_often", says="the second")
class SharesItsTables(Store):
    def __init__(self, max_parallelism: int) -> None:
        super().__init__(max_parallelism)
        self._tables = _kept


@breaks("a_reopened_store_begins_empty", says="an operator that was opened again")
class KeepsItsTables(SharesItsTables):
    def close(self) -> None:
        pass
