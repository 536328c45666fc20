"""A store of the backend under test, and tables in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from holdfast.backends.blocks.block import Block
from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.tables.contract import (
    NO_NAMESPACE,
    FrozenTables,
    StateKind,
    TableSpec,
    TableStore,
)
from holdfast.backends.testing.place import Place, opened
from holdfast.backends.testing.table_clauses.table_access import Cells, Lists, Maps, Values
from holdfast.backends.values.codec import value_codec_for

__all__ = ["GROUPS", "Tables", "blocks_of", "tables"]

GROUPS = 128
"""The max parallelism of the stores that are tried."""


@dataclass(frozen=True)
class _Keys:
    """The type of keys, known from the start."""

    codec: KeyCodec[Any]


class Tables:
    """A store, and tables in it."""

    def __init__(self, store: TableStore) -> None:
        self.store = store

    def values(self, name: str = "values", **spec: Any) -> Values:
        """A value table; without more said, of ints by str."""
        return Values(self.store, self.spec(name, StateKind.VALUE, **spec))

    def lists(self, name: str = "lists", **spec: Any) -> Lists:
        """A list table; without more said, of ints by str."""
        return Lists(self.store, self.spec(name, StateKind.LIST, **spec))

    def maps(self, name: str = "maps", *, map_keys: Any = str, **spec: Any) -> Maps:
        """A map table; without more said, of ints or None by str, by str."""
        spec = {"values": int | None, **spec}
        return Maps(self.store, self.spec(name, StateKind.MAP, map_keys=map_keys, **spec))

    @staticmethod
    def spec(
        name: str,
        kind: StateKind,
        *,
        keys: Any = str,
        namespaces: Any = NO_NAMESPACE,
        map_keys: Any = NO_NAMESPACE,
        values: Any = int,
        stamped: bool = False,
    ) -> TableSpec:
        """A spec by types; NO_NAMESPACE stands for the parts that there are not."""

        def codec(annotation: Any) -> KeyCodec[Any] | None:
            return None if annotation is NO_NAMESPACE else key_codec_for(annotation)

        return TableSpec(
            name=name,
            kind=kind,
            key_type=_Keys(key_codec_for(keys)),
            namespaces=codec(namespaces),
            map_keys=codec(map_keys),
            values=value_codec_for(values),
            stamped=stamped,
        )

    @contextmanager
    def frozen(self) -> Iterator[FrozenTables]:
        """The tables as they are now, released in the end."""
        frozen = self.store.freeze()
        try:
            yield frozen
        finally:
            frozen.release()


@contextmanager
def tables(place: Place) -> Iterator[Tables]:
    """A store of the backend under test, with all key groups, closed in the end."""
    store = opened(place).open_store("tables", KeyGroupRange(0, GROUPS - 1), GROUPS)
    try:
        yield Tables(store)
    finally:
        store.close()


def blocks_of(cells: Cells) -> list[Block]:
    """The blocks of a table as it is now."""
    with Tables(cells.store).frozen() as frozen:
        return list(frozen.blocks(cells.spec, None))
