"""Where each broken backend says which clause it breaks, and what the clause has to say of it.

All are the hashmap backend, but for one part: a kind of table, the store, or the keyed state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeAlias, TypeVar

from holdfast.backends import HashMapStateBackend, KeyGroupRange, StateBackend
from holdfast.backends.blocks.block import Block
from holdfast.backends.hashmap.tables import (
    ObjectListTable,
    ObjectMapTable,
    ObjectTable,
    ObjectTableStore,
    ObjectValueTable,
)
from holdfast.backends.keyed.backend import KeyedStateBackend, Opening
from holdfast.backends.tables.contract import (
    CellForm,
    FrozenTables,
    StateKind,
    TableSpec,
    TableStore,
)
from support.broken.register import Register

WAIT_S = 60

Values: TypeAlias = ObjectValueTable
Lists: TypeAlias = ObjectListTable
Maps: TypeAlias = ObjectMapTable
Store: TypeAlias = ObjectTableStore
Keyed: TypeAlias = KeyedStateBackend
"""What all of them are, but for one thing."""

Part: TypeAlias = type[ObjectTable | ObjectTableStore | KeyedStateBackend | StateBackend]
AnyPart = TypeVar("AnyPart", bound=Part)

BROKEN: Register[Callable[[str], StateBackend]] = Register()
"""By clause, how to make what breaks it; it gets a folder."""


def breaks(clause: str, *, says: str) -> Callable[[AnyPart], AnyPart]:
    """Note that a backend with this part breaks the clause."""

    def note(part: AnyPart) -> AnyPart:
        BROKEN.note(clause, says, partial(_backend_with, part))
        return part

    return note


@dataclass(frozen=True)
class Altered(HashMapStateBackend):
    """The hashmap backend with another part; `folder` is for those that keep files."""

    folder: str = ""
    kinds: tuple[type[ObjectTable], ...] = ()
    store: type[ObjectTableStore] = ObjectTableStore
    keyed: type[KeyedStateBackend] = KeyedStateBackend

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        if self.kinds:
            return WithTables(max_parallelism, self.kinds)
        return self.store(max_parallelism)

    def open_keyed(self, opening: Opening) -> KeyedStateBackend:
        return self.keyed(
            partial(self.open_store, opening.uid, opening.key_groups, opening.max_parallelism),
            opening,
        )


class WithTables(ObjectTableStore):
    """A store with other tables of some kinds."""

    def __init__(self, max_parallelism: int, kinds: tuple[type[ObjectTable], ...]) -> None:
        super().__init__(max_parallelism)
        others: Mapping[StateKind, type[ObjectTable]] = {
            kind: table
            for kind, sound in Store.kinds.items()
            for table in kinds
            if issubclass(table, sound)
        }
        self.kinds = {**Store.kinds, **others}  # type: ignore[misc]


class WithForm(ObjectTableStore):
    """A store whose cells are of another form."""

    def form(self, spec: TableSpec) -> CellForm:
        return self.altered(super().form(spec), spec)

    def altered(self, form: CellForm, spec: TableSpec) -> CellForm:
        """The other form."""
        raise NotImplementedError


class FrozenThrough(FrozenTables):
    """Frozen tables that pass everything on."""

    def __init__(self, store: WithFrozen, inner: FrozenTables) -> None:
        self.store = store
        self.inner = inner

    def blocks(self, spec: TableSpec, keep_from_ms: int | None) -> Iterator[Block]:
        return self.inner.blocks(spec, keep_from_ms)

    def release(self) -> None:
        self.inner.release()


class WithFrozen(ObjectTableStore):
    """A store whose frozen tables are of one kind."""

    Frozen: ClassVar[type[FrozenThrough]] = FrozenThrough

    def freeze(self) -> FrozenTables:
        return self.Frozen(self, self.soundly_frozen())

    def soundly_frozen(self) -> FrozenTables:
        return super().freeze()


def _backend_with(part: Part, folder: str) -> StateBackend:
    if issubclass(part, ObjectTable):
        return Altered(folder, kinds=(part,))
    if issubclass(part, ObjectTableStore):
        return Altered(folder, store=part)
    if issubclass(part, KeyedStateBackend):
        return Altered(folder, keyed=part)
    assert issubclass(part, Altered)
    return part(folder)
