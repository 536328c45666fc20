"""Loading stored state as it is declared now: checks that it can be read, and migrates values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from holdfast.backends.blocks.block import Block
from holdfast.backends.blocks.changes import Added, Change, Removed
from holdfast.backends.blocks.columns import join_values, split_values
from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.schema.evolution import (
    check_pickle_allowed,
    compare_keys,
    compare_values,
    migration_for,
)
from holdfast.backends.schema.steps import Verdict
from holdfast.backends.snapshots.logs import PendingChanges
from holdfast.backends.snapshots.neutral import TableInfo
from holdfast.backends.snapshots.restores import PendingTable
from holdfast.backends.tables.contract import TableSpec
from holdfast.backends.values.codec import ValueCodec
from holdfast.backends.values.type_descriptions import Schema, are_alike
from holdfast.storage import Invalid

__all__ = ["Loader", "Reading"]


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads one state as it is declared now; `where` names the operator."""

    name: str
    where: str
    allow_pickle: bool

    def check(
        self,
        kinds: tuple[str, str],
        keys: Mapping[str, tuple[Schema | None, KeyCodec[Any] | None]],
        values: tuple[Schema, ValueCodec[Any]],
    ) -> None:
        """Check that the state can be read: of each part, what is written and what is declared.

        `keys` are map keys and namespaces, whose types cannot change.

        Raises:
            Invalid: it cannot; has both schemas.
        """
        what = f"state {self.name!r}"
        if kinds[0] != kinds[1]:
            raise Invalid(
                f"{what} is of another kind in the snapshot",
                where=self.where,
                expected=kinds[0],
                found=kinds[1],
                fix="Declare it as it was, or under another name",
            )
        for part, (written, codec) in keys.items():
            declared = None if codec is None else codec.describe()
            if written is not None and declared is not None:
                compare_keys(written, declared).require(f"{part} of {what}", where=self.where)
            elif written is not declared:
                raise Invalid(
                    f"{part} of {what} are not as in the snapshot",
                    where=self.where,
                    expected=str(written or "none"),
                    found=str(declared or "none"),
                )
        schema, values_codec = values
        check_pickle_allowed(schema, allowed=self.allow_pickle, what=what, where=self.where)
        compare_values(schema, values_codec.describe()).require(what, where=self.where)

    def migration(self, written: Schema, codec: ValueCodec[Any]) -> Callable[[Block], Block]:
        """The conversion of blocks to the declared type.

        A converted value is as if it were put into state now, with all its fields.
        """
        if _has_same_bytes(written, codec):
            return lambda block: block
        convert = migration_for(written, codec)

        def migrate(block: Block) -> Block:
            what = f"state {self.name!r}"
            items: list[Any] = list(map(convert, split_values(codec, block.values, what)))
            values = join_values(codec, codec.encode_many(items))
            return msgspec.structs.replace(block, values=values)

        return migrate


@dataclass(frozen=True, slots=True)
class Loader:
    """Loads one table as its spec asks; `kind` is the kind of state."""

    spec: TableSpec
    kind: str
    reading: Reading
    now_ms: int

    def blocks(self, pending: PendingTable) -> Iterator[Block]:
        """The pending blocks, in the types and with the stamps of the spec.

        Raises:
            Invalid: a value cannot be converted to what is declared.
            Corrupt: a file is damaged.
        """
        migrate = self.reading.migration(pending.info.values, self.spec.values)
        for block in pending.blocks():
            yield self._stamped(migrate(block))

    def changes(self, pending: PendingChanges) -> Iterator[Change]:
        """The pending changes, converted like blocks; raises as `blocks` does."""
        migrate = self.reading.migration(pending.info.values, self.spec.values)
        for change in pending.changes():
            if isinstance(change, Removed):
                yield change
            else:
                yield Added(self._stamped(migrate(change.block)))

    def is_as_written(self, info: TableInfo) -> bool:
        """Whether a stored table that passes `check` has the bytes that would be written now."""
        is_same = _has_same_bytes(info.values, self.spec.values)
        return is_same and info.stamped == self.spec.stamped

    def is_described_so(self, info: TableInfo) -> bool:
        """Whether a snapshot would describe the table now as this one does."""
        is_alike = are_alike(info.values, self.spec.values.describe())
        return is_alike and info.stamped == self.spec.stamped

    def check(self, info: TableInfo) -> None:
        """Check that a stored table can be read as it is declared.

        Raises:
            Invalid: it cannot; names both schemas.
        """
        spec = self.spec
        keys = {
            "the namespaces": (info.namespaces, spec.namespaces),
            "the map keys": (info.map_keys, spec.map_keys),
        }
        self.reading.check((info.kind, self.kind), keys, (info.values, spec.values))

    def _stamped(self, block: Block) -> Block:
        """The block with stamps if the state has a time to live now, else without."""
        if self.spec.stamped == (block.stamps is not None):
            return block
        stamps = None
        if self.spec.stamped:
            stamps = np.full(block.count, self.now_ms, np.int64).tobytes()
        return msgspec.structs.replace(block, stamps=stamps)


def _has_same_bytes(written: Schema, codec: ValueCodec[Any]) -> bool:
    return compare_values(written, codec.describe()).verdict is Verdict.COMPATIBLE_AS_IS
