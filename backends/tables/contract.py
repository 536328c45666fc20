"""The table contract: all that a state backend must supply, and all that state is built on.

State types, time to live, timers, snapshots and restore are written once, over tables. A table
holds *cells* at *addresses*. The store chooses what an address and a cell are: objects for a store
of Python dicts, bytes for a store of bytes. Other code only passes them on.

| kind | what is at an address | used by |
|---|---|---|
| `ValueTable` | a cell | value, reducing and aggregating state |
| `ListTable` | cells in order | list state |
| `MapTable` | cells by map key | map state, timers |

The one thread that owns the backend calls everything here, except `FrozenTables`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from holdfast.backends.blocks.block import Block
from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.tables.files import SourceFiles, TablesInFiles
from holdfast.backends.tables.metrics import StateMetrics
from holdfast.backends.tables.timer_queues import TimerQueue
from holdfast.backends.values.codec import ValueCodec

__all__ = [
    "NO_NAMESPACE",
    "CellForm",
    "FrozenTables",
    "HotEntries",
    "ListTable",
    "MapTable",
    "Rows",
    "StateKind",
    "Table",
    "TableFiles",
    "TableSpec",
    "TableStore",
    "ValueTable",
]


class _NoNamespace(Enum):
    NO_NAMESPACE = "no namespace"

    __hash__ = object.__hash__  # that of Enum is a function in Python


NO_NAMESPACE = _NoNamespace.NO_NAMESPACE
"""The namespace of state that has none."""


class StateKind(Enum):
    """What is at an address of a table."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """One table: its name, what is in it, and how that is written."""

    name: str
    kind: StateKind
    key_type: Callable[[], KeyCodec[Any]]
    """Answers the codec of the operator's keys, or raises `Invalid`: their type may become known
    only with the first key."""
    namespaces: KeyCodec[Any] | None
    map_keys: KeyCodec[Any] | None
    values: ValueCodec[Any]
    stamped: bool
    """Each cell carries the millisecond of its last use, for time to live."""
    is_timers: bool = False
    """A map with True at each moment of a timer, which a store may keep as a `TimerQueue`."""

    @property
    def keys(self) -> KeyCodec[Any]:
        """The codec of the operator's keys."""
        return self.key_type()


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one table in columns, with addresses and cells as its store has them.

    Without cells they say what was removed: the entries of a map with these map keys; or, without
    map keys as well, everything at the addresses. Timers are entries, with their moments
    as map keys, however the store keeps them.
    """

    addresses: Sequence[Any]
    map_keys: Sequence[Any] | None = None
    cells: Sequence[Any] | None = None


@dataclass(frozen=True, slots=True)
class CellForm:
    """How values become cells and come back.

    `encode` refuses what does not fit the type with `Invalid`. A cell is never None, not even that
    of a null in a map. A decoded value belongs to the caller; it equals what was encoded and has
    the same type. `exact` is the type, if there is one, whose instances are cells as they are: they
    need not pass through `encode` and `decode`.
    """

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    encode_many: Callable[[Sequence[Any]], list[Any]]
    decode_many: Callable[[Sequence[Any]], list[Any]]
    exact: type | None
    stamp: Callable[[int, Any], Any]
    """A stamped cell of milliseconds, within 64 bits and sign, and a cell."""
    unstamp: Callable[[Any], tuple[int, Any]]


class Table(ABC):
    """Operations of tables of every kind."""

    @abstractmethod
    def remove(self, address: Any) -> None:
        """Remove everything at the address; nothing happens if there is nothing."""

    @abstractmethod
    def addresses(self) -> Iterator[tuple[Any, Any]]:
        """`(key, namespace)` of everything in the table, each once, in no particular order.

        Keys are canonical; without namespaces the namespace is `NO_NAMESPACE`. The caller may
        change the table between two steps: an address that is added or removed meanwhile may be
        missed or shown, one that stays is shown once.
        """

    @abstractmethod
    def sweep(self, limit: int) -> Iterable[Any]:
        """The next at most `limit` addresses of a round through the table, for a clean-up.

        An address that stays in the table comes up in every round, whatever else is added or
        removed. A round of n addresses takes at most n / `limit` calls, plus two to begin and end
        it.
        """

    @abstractmethod
    def load(self, block: Block) -> None:
        """Add the entries of a block, whose stamps are as the table's spec asks.

        A list that begins in one block may go on in the next.
        """

    def load_together(self, blocks: Sequence[Block]) -> None:
        """`load` each block, in order. Override it where loading them together is faster."""
        for block in blocks:
            self.load(block)

    @abstractmethod
    def unload(self, block: Block) -> None:
        """Remove what the rows of a block name, which have no values; see `Rows`."""


class HotEntries(Protocol):
    """Optional power of a value table: its cells may be read and set without a call to it."""

    @property
    def hot(self) -> dict[Any, Any]:
        """Cells by address. A freeze replaces the dict. There may be cells that are not in it."""
        ...


class ValueTable(Table):
    """One cell at each address."""

    direct: HotEntries | None = None
    """Direct access to cells, if the table offers it."""
    write_mirror: HotEntries | None = None
    """Write-only mirror: direct writers must also set the cell here."""

    @abstractmethod
    def get(self, address: Any) -> Any:
        """The cell, or None."""

    @abstractmethod
    def put(self, address: Any, cell: Any) -> None:
        """Set the cell."""

    @abstractmethod
    def get_many(self, addresses: Sequence[Any]) -> list[Any]:
        """The cell or None for each address, in their order; addresses may repeat."""

    @abstractmethod
    def put_many(self, addresses: Sequence[Any], cells: Sequence[Any]) -> None:
        """Set many cells; the last one for an address wins."""

    @abstractmethod
    def remove_many(self, addresses: Sequence[Any]) -> None:
        """Remove many; addresses may be absent, or repeat."""


class ListTable(Table):
    """Cells in order at each address. An empty list is the same as none."""

    @abstractmethod
    def get(self, address: Any) -> list[Any]:
        """The cells, in a list that the caller may keep."""

    @abstractmethod
    def put(self, address: Any, cells: Sequence[Any]) -> None:
        """Replace the list. The table does not keep the sequence."""

    @abstractmethod
    def extend(self, address: Any, cells: Sequence[Any]) -> None:
        """Append to the list. The table does not keep the sequence."""


class MapTable(Table):
    """Cells by map key at each address. An empty map is the same as none."""

    @abstractmethod
    def get(self, address: Any, map_key: Any) -> Any:
        """The cell, or None."""

    @abstractmethod
    def put(self, address: Any, map_key: Any, cell: Any) -> None:
        """Set the cell."""

    @abstractmethod
    def put_all(self, address: Any, cells: Iterable[tuple[Any, Any]]) -> None:
        """Set many cells, each with its map key; the last one for a map key wins."""

    @abstractmethod
    def remove_entry(self, address: Any, map_key: Any) -> None:
        """Remove the cell, if there is one."""

    @abstractmethod
    def items(self, address: Any) -> list[tuple[Any, Any]]:
        """`(map key, cell)` of everything at the address, in a list that the caller may keep."""


class FrozenTables(ABC):
    """The tables as they were at one moment.

    One background thread reads it while the owner goes on; what it reads does not change. Another
    background thread may at the same time read tables that were frozen at another moment.
    """

    @abstractmethod
    def blocks(self, spec: TableSpec, keep_from_ms: int | None) -> Iterator[Block]:
        """The entries of one table, which was there at that moment, by ascending key group.

        The order holds within a block and from one to the next; the key group is that of the
        key's hash. A list has a row for each element, in order and with no other between them; a
        map one for each entry. Rows whose stamp is below `keep_from_ms` are left out. An empty
        table has no blocks, or none with rows, also when the type of keys is not known yet.
        """

    @abstractmethod
    def release(self) -> None:
        """Release the frozen tables; called exactly once."""


class TableFiles(ABC):
    """The files of a store of tables. Called by the thread that owns the backend."""

    format: str
    """As `ByteFiles.format`."""
    is_preferred: bool
    """As `ByteFiles.is_preferred`."""

    @abstractmethod
    def freeze(self) -> TablesInFiles:
        """All tables as they are now; the only part of a snapshot that processing waits for."""

    @abstractmethod
    def directory(self) -> Path:
        """As `ByteFiles.directory`."""

    @abstractmethod
    def restore(self, sources: Sequence[SourceFiles]) -> SourceFiles | None:
        """Make the tables of the sources, with what they have of this store's key groups.

        Answers and raises as `ByteFiles.restore` does. `TableStore.table` opens one by its name,
        in the layout that it is kept in.
        """

    @abstractmethod
    def claim(self, name: str, spec: TableSpec) -> bool:
        """Make the restored table `name` the one of this spec, with which it was written.

        False where that cannot be, because such a table is kept in another layout now; it must be
        read and written anew then.
        """


class TableStore(ABC):
    """Where the tables of one operator in one slot are kept."""

    files: TableFiles | None = None
    """Snapshots as files of the store, if it supports them."""

    @abstractmethod
    def form(self, spec: TableSpec) -> CellForm:
        """How values of this table become cells. The table need not be there."""

    @abstractmethod
    def address(self, spec: TableSpec, key: Any, namespace: Any) -> Any:
        """The address of a key that its codec answered as canonical.

        Can be hashed. Equal for equal keys and namespaces, and for no others; namespaces are
        canonical too, or `NO_NAMESPACE`.
        """

    @abstractmethod
    def addresses(self, spec: TableSpec, keys: Sequence[Any], namespace: Any) -> Sequence[Any]:
        """The address of each of many canonical keys in one namespace."""

    def order(self, addresses: Sequence[Any]) -> npt.NDArray[np.uint64] | None:
        """The indexes of the addresses in the order in which access is fastest; None for any."""
        del addresses
        return None

    @abstractmethod
    def blocks(self, spec: TableSpec, rows: Rows) -> Iterator[Block]:
        """Rows of a table, which is there or was, as blocks by ascending key group.

        Rows of one address stay in their order. Cells are stamped if the spec says so. Any thread:
        nothing is read or changed.
        """

    @abstractmethod
    def table(self, spec: TableSpec) -> Table:
        """Make a table of this name, or open the one that there is; of the kind in the spec."""

    def timer_queue(self, spec: TableSpec) -> TimerQueue | None:
        """Make a queue of timers of this name, or open the one that there is.

        It takes little memory however many timers are in it, and is dropped and frozen as tables
        are. None if the store has no such queue: timers are then kept in a map table, with an index
        of all of them in memory.

        Before the first call of a method of the queue, `table` of its spec may load and unload
        blocks.
        """
        return None

    @abstractmethod
    def drop_table(self, spec: TableSpec) -> None:
        """Remove a table with its content, if it exists, as if it had never been made.

        A table of the same name may be made again, of another kind and other types. Tables that are
        already frozen are not touched.
        """

    @abstractmethod
    def freeze(self) -> FrozenTables:
        """All tables as they are now; the only part of a snapshot that processing waits for.

        Several frozen states may be held at once, and are released in any order.
        """

    def walk(self, spec: TableSpec) -> Iterator[Block]:
        """The entries of one table as `FrozenTables.blocks` has them.

        The caller does nothing else with the table until the last block. Override it where that
        allows a cheaper way.
        """
        frozen = self.freeze()
        try:
            yield from frozen.blocks(spec, None)
        finally:
            frozen.release()

    @abstractmethod
    def settle(self, stop: Callable[[], bool]) -> None:
        """Do background maintenance that the owner, which goes on, does not notice.

        Called by a thread that has read frozen tables, after it has released them. Other frozen
        tables may still be held, but no thread reads them meanwhile. Returns soon once `stop`
        answers True.
        """

    def metrics(self) -> StateMetrics:
        """Metrics of the store, by table and as a whole; by default none.

        Monitoring asks for them about once a second, so they may take a millisecond. The call
        changes nothing. Where a metric is listed in docs/metrics.md, use that name.
        """
        return StateMetrics()

    @abstractmethod
    def close(self) -> None:
        """Release everything, files too; what is in no snapshot is lost.

        Called once, by any thread, when no frozen tables are held.
        """
