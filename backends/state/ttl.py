"""Time to live, as a decorator of tables: entries carry the millisecond of their last use.

States do not know of it. An entry is expired when its time to live has passed since its stamp.
Python's integers do not overflow, so a huge time to live means never.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from holdfast.backends.blocks.block import Block
from holdfast.backends.state.descriptors import StateTtlConfig, StateVisibility, TtlUpdateType
from holdfast.backends.tables.contract import CellForm, ListTable, MapTable, Table, ValueTable
from holdfast.storage.clock import Clock

__all__ = ["TtlListTable", "TtlMapTable", "TtlValueTable", "oldest_alive_ms"]


_T = TypeVar("_T", bound=Table)


def oldest_alive_ms(config: StateTtlConfig, now_ms: int) -> int:
    """The oldest stamp of an entry that is not expired, within 64 bits."""
    return max(now_ms - config.ttl_ms + 1, -(2**63))


class _TtlTable(Table, Generic[_T]):
    """Base of the three kinds of tables."""

    def __init__(self, inner: _T, form: CellForm, config: StateTtlConfig, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self._config = config
        self._stamp = form.stamp
        self._unstamp = form.unstamp
        self._renews = config.update_type is TtlUpdateType.ON_READ_AND_WRITE
        self._shows_expired = config.visibility is StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP

    def remove(self, address: Any) -> None:
        self._inner.remove(address)

    def addresses(self) -> Iterator[tuple[Any, Any]]:
        return self._inner.addresses()

    def sweep(self, limit: int) -> Iterable[Any]:
        return self._inner.sweep(limit)

    def load(self, block: Block) -> None:
        self._inner.load(block)

    def unload(self, block: Block) -> None:
        self._inner.unload(block)

    def _now(self) -> int:
        return self._clock.now_ms()

    def _is_expired(self, stamp: int) -> bool:
        return stamp + self._config.ttl_ms <= self._now()

    def _stamped(self, cells: Iterable[Any]) -> list[Any]:
        now = self._now()
        return [self._stamp(now, cell) for cell in cells]


class TtlValueTable(_TtlTable[ValueTable], ValueTable):
    """Values that expire."""

    def get(self, address: Any) -> Any:
        self._clean()
        stamped = self._inner.get(address)
        if stamped is None:
            return None
        stamp, cell = self._unstamp(stamped)
        if self._is_expired(stamp):
            self._inner.remove(address)
            return cell if self._shows_expired else None
        if self._renews:
            self._inner.put(address, self._stamp(self._now(), cell))
        return cell

    def put(self, address: Any, cell: Any) -> None:
        self._clean()
        self._inner.put(address, self._stamp(self._now(), cell))

    def get_many(self, addresses: Sequence[Any]) -> list[Any]:
        self._clean()
        unstamp, shows_expired = self._unstamp, self._shows_expired
        alive_from = oldest_alive_ms(self._config, self._now())
        found: list[Any] = []
        expired, renewed = [], []
        for address, stamped in zip(addresses, self._inner.get_many(addresses), strict=True):
            stamp, cell = (alive_from, None) if stamped is None else unstamp(stamped)
            if stamp < alive_from:
                expired.append(address)
                cell = cell if shows_expired else None
            elif cell is not None:
                renewed.append((address, cell))
            found.append(cell)
        self._inner.remove_many(expired)
        if self._renews and renewed:
            self.put_many(*zip(*renewed, strict=True))
        return found

    def put_many(self, addresses: Sequence[Any], cells: Sequence[Any]) -> None:
        self._inner.put_many(addresses, self._stamped(cells))

    def remove_many(self, addresses: Sequence[Any]) -> None:
        self._inner.remove_many(addresses)

    def _clean(self) -> None:
        limit = self._config.cleanup_entries
        if limit:
            for address in self._inner.sweep(limit):
                stamped = self._inner.get(address)
                if stamped is not None and self._is_expired(self._unstamp(stamped)[0]):
                    self._inner.remove(address)


class TtlListTable(_TtlTable[ListTable], ListTable):
    """Lists whose elements expire one by one."""

    def get(self, address: Any) -> list[Any]:
        self._clean()
        stamped = self._inner.get(address)
        entries = list(map(self._unstamp, stamped))
        alive = [cell for stamp, cell in entries if not self._is_expired(stamp)]
        if self._renews and alive:
            self._inner.put(address, self._stamped(alive))
        elif len(alive) < len(entries):
            self._drop_expired(address, stamped)
        return [cell for _, cell in entries] if self._shows_expired else alive

    def put(self, address: Any, cells: Sequence[Any]) -> None:
        self._inner.put(address, self._stamped(cells))

    def extend(self, address: Any, cells: Sequence[Any]) -> None:
        self._clean()
        self._inner.extend(address, self._stamped(cells))

    def _drop_expired(self, address: Any, stamped: list[Any]) -> None:
        alive = [each for each in stamped if not self._is_expired(self._unstamp(each)[0])]
        if len(alive) < len(stamped):
            self._inner.put(address, alive)

    def _clean(self) -> None:
        limit = self._config.cleanup_entries
        if limit:
            for address in self._inner.sweep(limit):
                self._drop_expired(address, self._inner.get(address))


class TtlMapTable(_TtlTable[MapTable], MapTable):
    """Maps whose entries expire one by one."""

    def get(self, address: Any, map_key: Any) -> Any:
        self._clean()
        stamped = self._inner.get(address, map_key)
        return None if stamped is None else self._alive(address, map_key, stamped)

    def put(self, address: Any, map_key: Any, cell: Any) -> None:
        self._clean()
        self._inner.put(address, map_key, self._stamp(self._now(), cell))

    def put_all(self, address: Any, cells: Iterable[tuple[Any, Any]]) -> None:
        now = self._now()
        self._inner.put_all(address, [(key, self._stamp(now, cell)) for key, cell in cells])

    def remove_entry(self, address: Any, map_key: Any) -> None:
        self._inner.remove_entry(address, map_key)

    def items(self, address: Any) -> list[tuple[Any, Any]]:
        self._clean()
        found = []
        for map_key, stamped in self._inner.items(address):
            cell = self._alive(address, map_key, stamped)
            if cell is not None:
                found.append((map_key, cell))
        return found

    def _alive(self, address: Any, map_key: Any, stamped: Any) -> Any:
        """The cell if a reader may see it; removes or renews the entry as configured."""
        stamp, cell = self._unstamp(stamped)
        if self._is_expired(stamp):
            self._inner.remove_entry(address, map_key)
            return cell if self._shows_expired else None
        if self._renews:
            self._inner.put(address, map_key, self._stamp(self._now(), cell))
        return cell

    def _clean(self) -> None:
        limit = self._config.cleanup_entries
        if limit:
            for address in self._inner.sweep(limit):
                for map_key, stamped in self._inner.items(address):
                    if self._is_expired(self._unstamp(stamped)[0]):
                        self._inner.remove_entry(address, map_key)
