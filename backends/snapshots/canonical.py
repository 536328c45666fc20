"""Snapshots in the canonical form: a folder of Parquet files for each state (`table_parts`).

What a snapshot says of its tables is what it says in the neutral form. Here a segment is a file.

They are written from the blocks of a neutral snapshot, and read back into the same blocks, byte for
byte. So every backend has the form, a plug-in too, and restore, schema evolution and undeclared
state work as with the neutral one.

What is written is what is declared. A value that may be from before its class got a field is
written anew by the codec, where the job has asked for the state. Where nobody has, the default is
not known: a missing field is null, and where null could mean None as well, the whole record stays
MessagePack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import msgspec

from holdfast.backends.arrow.rows import TYPES, RowForm, TypedTable
from holdfast.backends.arrow.values import may_lack_fields
from holdfast.backends.blocks.block import Block
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.snapshots.neutral import (
    PARQUET_KIND,
    KeyedAttributes,
    SegmentInfo,
    Segments,
    SnapshotFuture,
    SnapshotTarget,
    TableInfo,
)
from holdfast.backends.snapshots.parquet import ParquetPart, write_parts
from holdfast.backends.snapshots.raw_tables import is_raw
from holdfast.backends.tables.contract import TableSpec
from holdfast.backends.values.codec import ValueCodec
from holdfast.backends.values.type_descriptions import Schema
from holdfast.storage import Corrupt, Handle, StateSnapshot, names

__all__ = ["CanonicalTable", "CanonicalWriter", "typed_table"]

_TIMERS = "_timers/"


@dataclass(frozen=True, slots=True)
class CanonicalTable:
    """A table to be written; `codec` is that of its values, where the job has asked for it.

    Where nobody has, its records are `whole` if it is known that each has all fields.
    """

    info: TableInfo
    blocks: Callable[[], Iterator[Block]]
    codec: ValueCodec[Any] | None = None
    whole: bool = False

    @classmethod
    def of(
        cls, spec: TableSpec, info: TableInfo, blocks: Callable[[], Iterator[Block]]
    ) -> CanonicalTable:
        """One that the store has."""
        return cls(info, blocks, None if is_raw(spec) else spec.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalWriter:
    """Writes the keyed state of one operator in one slot."""

    uid: str
    key_groups: KeyGroupRange
    max_parallelism: int
    keys: Schema | None
    target: SnapshotTarget
    checkpoint_id: int

    def write(self, tables: Sequence[CanonicalTable], future: SnapshotFuture) -> StateSnapshot:
        """Write the tables; the snapshot counts at once.

        Raises:
            CancelledError: the snapshot was given up.
            Corrupt: what was restored, and is only carried on, is not what its snapshot said.
            Unavailable: the storage failed.
        """
        handles: dict[str, Handle] = {}
        infos: list[TableInfo] = []
        for table in tables:
            name = table.info.name
            others = sum(name == info.name for info in infos)
            segments = []
            for number, part in enumerate(self._parts(table, others, future)):
                handle = f"_more/{others}/{name}/{number}" if others else f"{name}/{number}"
                handles[handle] = part.handle
                segments.append(SegmentInfo(handle, part.first_group, part.last_group, part.rows))
            infos.append(msgspec.structs.replace(table.info, segments=tuple(segments)))
        future.check()
        attributes = KeyedAttributes(
            uid=self.uid,
            max_parallelism=self.max_parallelism,
            keys=self.keys,
            tables=tuple(infos),
        )
        return StateSnapshot(
            kind=PARQUET_KIND,
            handles=handles,
            attributes=msgspec.to_builtins(attributes),
            key_groups=(self.key_groups.first, self.key_groups.last),
        )

    def _parts(
        self, table: CanonicalTable, others: int, future: SnapshotFuture
    ) -> Iterator[ParquetPart]:
        blocks = (block for block in table.blocks() if block.count)
        first = next(blocks, None)
        if first is None:
            return iter(())
        typed = typed_table(self.uid, self.max_parallelism, self.keys, table.info)
        is_known = table.codec is not None or table.whole
        is_complete = is_known or not may_lack_fields(table.info.values)
        form = RowForm(typed, table.codec, is_complete=is_complete)
        folder = _folder(table.info, others)
        begin = partial(self._begin, folder)
        return write_parts(begin, form, chain((first,), blocks), future)

    def _begin(self, folder: str, number: int) -> Segments:
        path = names.table_file(self.uid, folder, self.key_groups.first, number)
        return self.target.table_file(self.checkpoint_id, path)


def typed_table(uid: str, max_parallelism: int, keys: Schema | None, info: TableInfo) -> TypedTable:
    """What the files of a table of keyed state have.

    Raises:
        Corrupt: there is state, and it is not known of which type its keys are.
    """
    if keys is None:
        raise Corrupt(
            "a snapshot has state and does not say of which type its keys are",
            where=f"table {info.name!r} of operator {uid!r}",
            fix="Restore another checkpoint",
        )
    types = {
        "keys": keys,
        "namespaces": info.namespaces,
        "map_keys": info.map_keys,
        "values": info.values,
    }
    return TypedTable(
        name=info.name,
        kind=info.kind,
        keys=keys,
        namespaces=info.namespaces,
        map_keys=info.map_keys,
        values=info.values,
        stamped=info.stamped,
        metadata={
            "holdfast.format": PARQUET_KIND,
            "holdfast.uid": uid,
            "holdfast.state": info.name,
            "holdfast.kind": info.kind,
            "holdfast.max_parallelism": str(max_parallelism),
            TYPES: msgspec.json.encode(types, order="sorted").decode(),
        },
    )


def _folder(info: TableInfo, others: int) -> str:
    if info.kind == "timers" and info.name.startswith(_TIMERS):
        name, _, domain = info.name.removeprefix(_TIMERS).rpartition("/")
        return names.timers_table(name, domain, others)
    return names.state_table(info.name, others)
