"""From pending state to tables: checks what was written against what is declared, and migrates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from holdfast.backends.columns import join_values, split_values
from holdfast.backends.entries import Block
from holdfast.backends.restores import PendingTable
from holdfast.backends.schema import (
    check_pickle_allowed,
    compare_keys,
    compare_values,
    migration_for,
)
from holdfast.backends.schema_steps import Verdict
from holdfast.backends.snapshots import TableInfo
from holdfast.backends.tables import TableSpec
from holdfast.storage import Invalid

__all__ = ["Loader"]


@dataclass(frozen=True, slots=True)
class Loader:
    """Loads one table as its spec asks; `kind` is the kind of state, `where` names the operator."""

    spec: TableSpec
    kind: str
    where: str
    allow_pickle: bool
    now_ms: int

    def blocks(self, pending: PendingTable) -> Iterator[Block]:
        """The pending blocks, in the types and with the stamps of the spec.

        Raises:
            Invalid: a value cannot be converted to what is declared.
            Corrupt: a file is damaged.
        """
        migrate = self._migration(pending.info)
        for block in pending.blocks():
            yield self._stamped(block if migrate is None else migrate(block))

    @property
    def _what(self) -> str:
        return f"state {self.spec.name!r}"

    def check(self, info: TableInfo) -> None:
        """Make sure that what was written can be read as what is declared.

        Raises:
            Invalid: it cannot; names both.
        """
        if info.kind != self.kind:
            raise Invalid(
                f"{self._what} is of another kind in the snapshot",
                where=self.where,
                expected=info.kind,
                found=self.kind,
                fix="Declare it as it was, or under another name",
            )
        pairs = (
            ("the namespaces", info.namespaces, self.spec.namespaces),
            ("the map keys", info.map_keys, self.spec.map_keys),
        )
        for part, written, codec in pairs:
            declared = None if codec is None else codec.describe()
            if (written is None) != (declared is None):
                raise Invalid(
                    f"{part} of {self._what} are not as in the snapshot",
                    where=self.where,
                    expected=str(written or "none"),
                    found=str(declared or "none"),
                )
            if written is not None and declared is not None:
                compare_keys(written, declared).require(f"{part} of {self._what}", where=self.where)
        check_pickle_allowed(
            info.values, allowed=self.allow_pickle, what=self._what, where=self.where
        )
        change = compare_values(info.values, self.spec.values.describe())
        change.require(self._what, where=self.where)

    def _migration(self, info: TableInfo) -> Callable[[Block], Block] | None:
        codec = self.spec.values
        if compare_values(info.values, codec.describe()).verdict is Verdict.COMPATIBLE_AS_IS:
            return None
        convert = migration_for(info.values, codec)

        def migrate(block: Block) -> Block:
            items: list[Any] = list(map(convert, split_values(codec, block.values, self._what)))
            values = join_values(codec, codec.encode_many(items))
            return msgspec.structs.replace(block, values=values)

        return migrate

    def _stamped(self, block: Block) -> Block:
        """With stamps if there is time to live now, without if there is none."""
        if self.spec.stamped == (block.stamps is not None):
            return block
        stamps = None
        if self.spec.stamped:
            stamps = np.full(block.count, self.now_ms, np.int64).tobytes()
        return msgspec.structs.replace(block, stamps=stamps)
