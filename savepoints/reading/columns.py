"""One state of a snapshot as typed columns, in parts that any process can read.

Files in the canonical form have these columns already: only row groups that can contain wanted
keys are read. All other forms are read as blocks and converted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.backends.arrow.keys import KeyForm
from holdfast.backends.arrow.rows import RowForm
from holdfast.backends.arrow.values import may_lack_fields
from holdfast.backends.blocks.block import Block, Column
from holdfast.backends.keys.groups import KeyGroupRange, key_groups
from holdfast.backends.operator_state.snapshots import typed_state
from holdfast.backends.snapshots.neutral import ENTRIES_KIND, PARQUET_KIND, SegmentInfo, TableInfo
from holdfast.backends.snapshots.parquet import is_complete_part, read_part_columns
from holdfast.backends.snapshots.restores import attributes_of
from holdfast.backends.values.type_descriptions import Schema
from holdfast.savepoints.reading.readers import KeyedReader, OperatorReader, form_to_write
from holdfast.savepoints.reading.tables import KeyedTable, UnkeyedTable
from holdfast.storage import Handle, HoldfastError, Invalid

__all__ = ["KeySet", "KeyedColumns", "StateColumns", "UnkeyedColumns", "even_ranges"]

_Groups = tuple[int, int]
_MISFITS = (ValueError, TypeError, LookupError, ArithmeticError)
"""What Python raises for a value that is not a key of the type."""


class StateColumns(ABC):
    """Rows of one state. Light, picklable and safe to use from any thread.

    A *place* is a key group, or a slot for state without keys.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of the rows."""

    @property
    @abstractmethod
    def places(self) -> _Groups:
        """The first and the last place."""

    @abstractmethod
    def parts(self, rows: int) -> list[_Groups]:
        """Ranges of places to read separately, with about this many rows each."""

    @abstractmethod
    def batches(self, places: _Groups, keys: KeySet | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of these places in order, or only those of `keys`.

        Raises:
            Corrupt: a file is missing or damaged; names it.
            Unavailable: the storage did not answer, or this machine cannot open the store.
        """


class KeySet:
    """Keys of one type as ordered bytes, with their key groups. Picklable."""

    def __init__(self, keys: Schema, max_parallelism: int, wanted: Iterable[bytes]) -> None:
        form = KeyForm(keys)
        self.encoded = tuple(dict.fromkeys(wanted))
        data = Column.of(self.encoded)
        hashes = form.hashes(data, len(self.encoded))
        found = key_groups(hashes, max_parallelism).tolist() if self.encoded else []
        self.groups: tuple[int, ...] = tuple(sorted(set(found)))
        """The key groups of the keys, sorted."""

    @staticmethod
    def encode(keys: Schema, given: Any) -> bytes | None:
        """The bytes of a key given as a value of its column or of JSON; None if it is not a key."""
        try:
            return KeyForm(keys).encoded(given)
        except (HoldfastError, pa.ArrowException, *_MISFITS):
            return None

    def within(self, places: _Groups) -> list[_Groups]:
        """The ranges of key groups within these places that can contain a key."""
        found: list[_Groups] = []
        for group in self.groups:
            if not places[0] <= group <= places[1]:
                continue
            if found and found[-1][1] == group - 1:
                found[-1] = found[-1][0], group
            else:
                found.append((group, group))
        return found

    def has(self, encoded: pa.Array) -> Any:
        """For each of these encoded keys, whether it is in the set."""
        wanted = pa.array(self.encoded, pa.large_binary())
        return pc.is_in(encoded.cast(pa.large_binary()), value_set=wanted)


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a table in the canonical form, and the description of its rows."""

    handle: Handle
    segment: SegmentInfo


class KeyedColumns(StateColumns):
    """A table of keyed state."""

    def __init__(self, reader: KeyedReader, table: KeyedTable) -> None:
        """Reads the footers of files if the type lets records lack fields.

        Raises:
            Invalid: no slot has had a key, so there are no rows, and the type of keys is unknown.
            Corrupt, Unavailable: as `batches`.
        """
        if reader.description.keys is None:
            raise Invalid(
                f"state {table.name!r} of operator {reader.description.uid!r} has no rows yet, and "
                "the type of its keys is not known",
                where=reader.folder.url,
            )
        self.reader, self.table = reader, table
        self._files = _files(reader, table)
        self._is_complete = not may_lack_fields(table.info.values)
        if self._files and not self._is_complete:
            found = {is_complete_part(reader.folder, each.handle) for each in self._files}
            self._is_complete = found == {True}
            # Some files have records with all fields and others do not: their columns differ, so
            # rows are read as blocks and converted to one type.
            if len(found) > 1:
                self._files = None

    @property
    def is_complete(self) -> bool:
        """Whether all records are known to have all fields of their type."""
        return self._is_complete

    @property
    def keys(self) -> Schema:
        keys = self.reader.description.keys
        assert keys is not None, "its form could not be made without"
        return keys

    @property
    def max_parallelism(self) -> int:
        return self.reader.description.max_parallelism

    @property
    def schema(self) -> pa.Schema:
        return self._form.schema

    @property
    def places(self) -> _Groups:
        return 0, self.max_parallelism - 1

    def parts(self, rows: int) -> list[_Groups]:
        """One part per slot for files of a store and for logs: each read opens the whole store."""
        if self._files is not None:
            segments = [each.segment for each in self._files]
            return even_ranges(_weights(segments, self.max_parallelism), rows)
        if all(part.kind == ENTRIES_KIND for part in self.reader.parts):
            there = (attributes_of(part, self._uid).tables for part in self.reader.parts)
            segments = [
                segment
                for tables in there
                for info in tables
                if info.is_alike(self.table.info)
                for segment in info.segments
            ]
            return even_ranges(_weights(segments, self.max_parallelism), rows)
        return [part.key_groups for part in self.reader.parts if part.key_groups is not None]

    def batches(self, places: _Groups, keys: KeySet | None = None) -> Iterator[pa.RecordBatch]:
        for groups in [places] if keys is None else keys.within(places):
            if self._files is None:
                yield from self._through_blocks(groups, keys)
            else:
                yield from self._of_files(self._files, groups, keys)

    def _of_files(
        self, files: Sequence[_File], groups: _Groups, keys: KeySet | None
    ) -> Iterator[pa.RecordBatch]:
        schema, typed = self.schema, self.reader.typed(self.table)
        form = None if keys is None else KeyForm(self.keys)
        for file in files:
            segment = file.segment
            if segment.first_group > groups[1] or segment.last_group < groups[0]:
                continue
            found = read_part_columns(
                self.reader.folder, file.handle, typed, rows=segment.rows, groups=groups
            )
            for batch in found:
                columns = batch.columns
                if form is not None and keys is not None:
                    encoded = form.from_arrow(batch.column("key")).to_arrow(batch.num_rows)
                    columns = batch.filter(keys.has(encoded)).columns
                if len(columns[0]):
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _through_blocks(self, groups: _Groups, keys: KeySet | None) -> Iterator[pa.RecordBatch]:
        with self.reader.open(KeyGroupRange(*groups)) as tables:
            blocks = tables.blocks(self.table)
            yield from self._form.batches(blocks if keys is None else _only(blocks, keys))

    @property
    def _uid(self) -> str:
        return self.reader.description.uid

    @property
    def _form(self) -> RowForm:
        return RowForm(self.reader.typed(self.table), is_complete=self._is_complete)


class UnkeyedColumns(StateColumns):
    """A state without keys. Its places are slots."""

    def __init__(self, reader: OperatorReader, table: UnkeyedTable) -> None:
        self.reader, self.table = reader, table

    @property
    def schema(self) -> pa.Schema:
        typed = typed_state(self.reader.uid, 0, self.table.info)
        return form_to_write(typed).schema

    @property
    def places(self) -> _Groups:
        return 0, max(self.reader.slots, default=0)

    def parts(self, rows: int) -> list[_Groups]:
        del rows
        return [(slot, slot) for slot in self.reader.slots]

    def batches(self, places: _Groups, keys: KeySet | None = None) -> Iterator[pa.RecordBatch]:
        if keys is not None:
            raise Invalid(f"state {self.table.name!r} of {self.reader.uid!r} has no keys")
        for slot in self.reader.slots:
            if places[0] <= slot <= places[1]:
                yield from self.reader.batches(self.table, slot)


def even_ranges(weights: Sequence[float], most: float) -> list[_Groups]:
    """All places, in ranges of about equal weight, none much heavier than `most`."""
    total = sum(weights)
    count = max(1, min(len(weights), round(total / most)))
    ends = [0.0, *accumulate(weights)]
    cuts = [0]
    for number in range(1, count):
        at = int(np.searchsorted(ends, total * number / count))
        cuts.append(min(max(at, cuts[-1] + 1), len(weights) - (count - number)))
    cuts.append(len(weights))
    return [(first, end - 1) for first, end in pairwise(cuts)]


def _weights(segments: Iterable[SegmentInfo], max_parallelism: int) -> list[float]:
    """Estimated rows of each key group: those of a segment are taken as evenly distributed."""
    weights = np.zeros(max_parallelism)
    for segment in segments:
        count = segment.last_group - segment.first_group + 1
        weights[segment.first_group : segment.last_group + 1] += segment.rows / count
    listed: list[float] = weights.tolist()
    return listed


def _files(reader: KeyedReader, table: KeyedTable) -> tuple[_File, ...] | None:
    """The files of a table by key group; None if some of it is not in the canonical form."""
    if any(part.kind != PARQUET_KIND for part in reader.parts):
        return None
    found: list[_File] = []
    for part in reader.parts:
        alike = _alike(attributes_of(part, reader.description.uid).tables, table.info)
        if len(alike) > 1:
            return None
        for segment in (segment for info in alike for segment in info.segments):
            if segment.handle not in part.handles:
                return None  # reading as blocks reports the missing handle
            found.append(_File(part.handles[segment.handle], segment))
    return tuple(found)


def _alike(infos: Iterable[TableInfo], info: TableInfo) -> list[TableInfo]:
    return [each for each in infos if each.is_alike(info)]


def _only(blocks: Iterable[Block], keys: KeySet) -> Iterator[Block]:
    """The rows of these keys."""
    for block in blocks:
        has = keys.has(block.keys.to_arrow(block.count)).to_numpy(zero_copy_only=False)
        places = np.flatnonzero(has)
        if len(places):
            yield block.taken(places)
