"""Backends whose value tables are wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.backends.hashmap.layered import LayeredDict
from holdfast.backends.tables.contract import NO_NAMESPACE, TableSpec
from support.broken.backends.register import Values, breaks


@breaks("a_cell_is_read_back", says="what was put")
@breaks("added_values_are_reduced", says="what values were added to")
@breaks("reading_renews_where_it_should", says="what is read again and again")
class KeepsTheFirst(Values):
    def put(self, address: Any, cell: Any) -> None:
        if self.get(address) is None:
            super().put(address, cell)


@breaks("a_removed_cell_is_gone", says="after removing one")
@breaks("an_expired_value_may_be_returned_once", says="what is past its time")
class RemovesNothing(Values):
    def remove(self, address: Any) -> None:
        pass

    def remove_many(self, addresses: Sequence[Any]) -> None:
        pass


@breaks("none_clears_a_value", says="a cleared value")
class ClearsToZero(Values):
    def remove(self, address: Any) -> None:
        self.put(address, 0)


@breaks("empty_and_zero_values_are_kept", says="an empty value")
class TakesEmptyForAbsent(Values):
    def get(self, address: Any) -> Any:
        return super().get(address) or None


@breaks("an_absent_value_is_the_default", says="a value that was never set")
@breaks("values_come_in_columns", says="values of type int64")
class TakesAbsentForZero(Values):
    def get(self, address: Any) -> Any:
        return super().get(address) or 0

    def get_many(self, addresses: Sequence[Any]) -> list[Any]:
        return [cell or 0 for cell in super().get_many(addresses)]


@breaks("many_are_read_as_one_by_one", says="many, read at once")
class ReadsEachOnce(Values):
    def get_many(self, addresses: Sequence[Any]) -> list[Any]:
        return super().get_many(list(dict.fromkeys(addresses)))


@breaks("values_are_not_compared", says="a value was compared")
class LooksForNoneByComparing(Values):
    def get_many(self, addresses: Sequence[Any]) -> list[Any]:
        found = super().get_many(addresses)
        return found if None in found else list(found)


@breaks("many_are_put_as_one_by_one", says="after many were put")
class PutsTheFirstLast(Values):
    def put_many(self, addresses: Sequence[Any], cells: Sequence[Any]) -> None:
        super().put_many(addresses[::-1], cells[::-1])


@breaks("reducing_a_batch_is_adding_its_rows", says="add by the batch")
@breaks("aggregating_a_batch_is_adding_its_rows", says="aggregates by the batch")
class PutsManyOnlyWhereNothingIs(Values):
    def put_many(self, addresses: Sequence[Any], cells: Sequence[Any]) -> None:
        for address, cell in zip(addresses, cells, strict=True):
            if self.get(address) is None:
                self.put(address, cell)


@breaks("many_are_removed_as_one_by_one", says="after many were removed")
@breaks("the_last_of_a_batch_counts", says="values after a batch with nulls")
class RemovesTheFirstOfMany(Values):
    def remove_many(self, addresses: Sequence[Any]) -> None:
        super().remove_many(addresses[:1])


@breaks("cells_set_directly_are_read", says="what was set directly")
class OffersAnotherDict(Values):
    def __init__(self, spec: TableSpec) -> None:
        super().__init__(spec)
        self.direct = LayeredDict()


@breaks("rows_and_batches_are_one_state", says="a value by the row")
class GathersBatches(Values):
    """Writes what was put by the batch when the next batch is read."""

    def __init__(self, spec: TableSpec) -> None:
        super().__init__(spec)
        self.gathered: list[tuple[Any, Any]] = []

    def put_many(self, addresses: Sequence[Any], cells: Sequence[Any]) -> None:
        self.gathered += zip(addresses, cells, strict=True)

    def get_many(self, addresses: Sequence[Any]) -> list[Any]:
        self.entries.put_many(self.gathered)
        self.gathered.clear()
        return super().get_many(addresses)


@breaks("keys_are_those_that_have_the_state", says="keys of value state")
class RemembersWhoHadIt(Values):
    def __init__(self, spec: TableSpec) -> None:
        super().__init__(spec)
        self.removed: set[Any] = set()

    def remove(self, address: Any) -> None:
        self.removed.add(address)
        super().remove(address)

    def addresses(self) -> Iterator[tuple[Any, Any]]:
        there = dict(super().addresses())
        gone = ((address, NO_NAMESPACE) for address in self.removed if address not in there)
        return iter([*there.items(), *gone])


@breaks("many_entries", says="many keys")
class NamesTenThousand(Values):
    def addresses(self) -> Iterator[tuple[Any, Any]]:
        return iter(list(super().addresses())[:10_000])
