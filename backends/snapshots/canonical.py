"""Snapshots in the canonical form: a folder of Parquet files for each state (`parquet.py`).

The attributes of a snapshot are those of the neutral form; each segment is a file.

The files are written from the blocks of a neutral snapshot, and read back into the same blocks,
byte for byte. So every backend supports the form, plug-ins too, and restore, schema evolution and
undeclared state work as with the neutral form.

Records are written as they are declared. A value that may be older than a field of its class is
encoded again by the codec, if the job has declared the state. Otherwise the default is not known: a
missing field is null, and where null could also mean None, the whole record stays MessagePack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import msgspec

from holdfast.backends.arrow.rows import TYPES, RowForm, TypedTable
from holdfast.backends.arrow.values import may_lack_fields
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.snapshots.neutral import (
    PARQUET_KIND,
    KeyedAttributes,
    SegmentInfo,
    Segments,
    SnapshotFuture,
    SnapshotTarget,
    TableInfo,
    TableToWrite,
    keyed_snapshot,
    keys_not_described,
)
from holdfast.backends.snapshots.parquet import ParquetPart, write_parts
from holdfast.backends.values.type_descriptions import Schema
from holdfast.storage import Handle, StateSnapshot, names

__all__ = ["CanonicalWriter", "typed_table"]

_TIMERS = "_timers/"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalWriter:
    """Writes the keyed state of one operator in one slot."""

    uid: str
    key_groups: KeyGroupRange
    max_parallelism: int
    keys: Schema | None
    target: SnapshotTarget
    checkpoint_id: int

    def write(self, tables: Sequence[TableToWrite], future: SnapshotFuture) -> StateSnapshot:
        """Write the tables; the snapshot is valid at once.

        Raises:
            CancelledError: the snapshot was cancelled.
            Corrupt: state that was restored and is passed on is not as its snapshot describes it.
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
            uid=self.uid, max_parallelism=self.max_parallelism, keys=self.keys, tables=tuple(infos)
        )
        return keyed_snapshot(PARQUET_KIND, attributes, handles, self.key_groups)

    def _parts(
        self, table: TableToWrite, others: int, future: SnapshotFuture
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
    """The columns and metadata of the files of a table of keyed state.

    Raises:
        Corrupt: there is state, but the type of its keys is not described.
    """
    if keys is None:
        raise keys_not_described(f"table {info.name!r} of operator {uid!r}")
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
