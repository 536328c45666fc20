"""Tables as Parquet files, which any tool reads: writing them, and reading them back with checks.

The rows of a table are in files of bounded size, in order of key group. The row groups of a file
are small, and the statistics of each give its first and last key group. So reading a few key groups
reads little, and a reader needs memory for one row group only.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.backends.arrow.rows import COMPLETE, TYPES, RowForm, TypedTable
from holdfast.backends.blocks.block import Block
from holdfast.backends.snapshots.neutral import Segments, SnapshotFuture
from holdfast.backends.values.type_descriptions import are_alike
from holdfast.storage import Corrupt, Handle, SegmentStream, StateFolder
from holdfast.storage.errors import UNREADABLE

__all__ = ["ParquetPart", "is_complete_part", "read_part", "read_part_columns", "write_parts"]

_PART_BYTES = 64 * 1024 * 1024
# Writing and reading take memory for one row group; a reader of few key groups reads whole ones.
_ROW_GROUP_BYTES = 8 * 1024 * 1024
_ROW_GROUP_ROWS = 128 * 1024
_BATCH_ROWS = 8 * 1024
_ORDER = "key_group"


@dataclass(frozen=True, slots=True)
class ParquetPart:
    """One file that was written: its number of rows, and its first and last key group if any."""

    handle: Handle
    rows: int
    first_group: int
    last_group: int


def write_parts(
    begin: Callable[[int], Segments], form: RowForm, blocks: Iterable[Block], future: SnapshotFuture
) -> Iterator[ParquetPart]:
    """Write the blocks of a table; `begin` begins the file of each number, from 0 on.

    Raises:
        CancelledError: the snapshot was cancelled.
        Corrupt: a row is not of the types of the table.
        Unavailable: the storage failed.
    """
    batches = _checked(form.batches(blocks), future)
    first = next(batches, None)
    number = 0
    while first is not None:
        with begin(number) as segments, segments.stream() as stream:
            part = _PartWriter(stream, form)
            with part.ended():
                for batch in chain((first,), batches):
                    part.add(batch)
                    if part.is_full:
                        break
        yield ParquetPart(stream.handle, part.rows, part.first_group, part.last_group)
        first = next(batches, None)
        number += 1


def _checked(batches: Iterator[pa.RecordBatch], future: SnapshotFuture) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        future.check()
        yield batch


class _PartWriter:
    """One Parquet file, written to a segment."""

    def __init__(self, stream: SegmentStream, form: RowForm) -> None:
        ordered = [name for name in (_ORDER, "time") if name in form.schema.names]
        self._sink = _Sink(stream)
        self._schema = form.schema
        self._writer = pq.ParquetWriter(
            self._sink,
            form.schema,
            compression="zstd",
            use_dictionary=[name for name in (_ORDER, "slot") if name in form.schema.names],
            write_statistics=ordered or False,
            sorting_columns=[pq.SortingColumn(0)] if _ORDER in form.schema.names else None,
        )
        self._batches: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self.rows = 0
        self.first_group = self.last_group = 0

    @property
    def is_full(self) -> bool:
        """Whether further rows should go to another file."""
        return self._sink.size_bytes >= _PART_BYTES

    def add(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch, with the next row group."""
        if _ORDER in batch.schema.names:
            groups = batch.column(_ORDER)
            if self.rows == 0:
                self.first_group = groups[0].as_py()
            self.last_group = groups[-1].as_py()
        self.rows += batch.num_rows
        self._batches.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= _ROW_GROUP_ROWS or self._waiting_bytes >= _ROW_GROUP_BYTES:
            self._write()

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Complete the file on a normal exit; on an error write nothing more."""
        try:
            yield
            self._write()
            self._writer.close()
        except BaseException:
            self._sink.give_up()
            self._writer.close()
            raise

    def _write(self) -> None:
        if self._batches:
            table = pa.Table.from_batches(self._batches, self._schema)
            self._writer.write_table(table, self._waiting_rows)
            self._batches = []
            self._waiting_rows = self._waiting_bytes = 0


class _Sink(io.RawIOBase):
    """A segment as the file of a Parquet writer. After `give_up` it discards what is written."""

    def __init__(self, stream: SegmentStream) -> None:
        super().__init__()
        self._stream: SegmentStream | None = stream
        self.size_bytes = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size_bytes

    def write(self, data: Any, /) -> int:
        view = memoryview(data)
        if self._stream is not None:
            self._stream.write(view)
        self.size_bytes += view.nbytes
        return view.nbytes

    def give_up(self) -> None:
        """Write nothing more."""
        self._stream = None


def read_part(
    storage: StateFolder,
    handle: Handle,
    table: TypedTable,
    *,
    rows: int,
    groups: tuple[int, int] | None,
) -> Iterator[Block]:
    """The rows of one file; with `groups` only row groups that have one of these key groups.

    Raises:
        Corrupt: the file is missing or damaged, or is not that of this table; names it.
        Unavailable: the storage did not answer.
    """
    with _opened(storage, handle, table, rows) as (file, form, where):
        last = -1
        for batch in _batches(file, groups, _BATCH_ROWS, where):
            block = form.block(batch, where)
            last = _check_order(block, last, where)
            yield block


def read_part_columns(
    storage: StateFolder, handle: Handle, table: TypedTable, *, rows: int, groups: tuple[int, int]
) -> Iterator[pa.RecordBatch]:
    """The rows of these key groups in one file of keyed state, in the file's own columns.

    Raises:
        Corrupt, Unavailable: as `read_part`.
    """
    with _opened(storage, handle, table, rows) as (file, form, where):
        for batch in _batches(file, groups, _ROW_GROUP_ROWS, where):
            found = batch.column(_ORDER).to_numpy()
            _check_ascending(found, -1, where)
            first = int(np.searchsorted(found, groups[0], "left"))
            end = int(np.searchsorted(found, groups[1], "right"))
            if first < end:
                rows_of = batch.slice(first, end - first)
                yield pa.RecordBatch.from_arrays(rows_of.columns, schema=form.schema)


@contextmanager
def _opened(
    storage: StateFolder, handle: Handle, table: TypedTable, rows: int
) -> Iterator[tuple[pq.ParquetFile, RowForm, str]]:
    where = f"{storage.url}/{getattr(handle, 'file', '(inline)')}: table {table.name!r}"
    with _reading(where):
        file = pq.ParquetFile(storage.open(handle))
    with file:
        yield file, _form_of(file, table, rows, where), where


def _batches(
    file: pq.ParquetFile, groups: tuple[int, int] | None, batch_rows: int, where: str
) -> Iterator[pa.RecordBatch]:
    for number in range(file.metadata.num_row_groups):
        if groups is not None and not _may_have(file, number, groups):
            continue
        batches = file.iter_batches(batch_rows, row_groups=[number], use_threads=False)
        while True:
            with _reading(where):
                batch = next(batches, None)
            if batch is None:
                break
            yield batch


def is_complete_part(storage: StateFolder, handle: Handle) -> bool:
    """Whether a file says that its records have all their fields; raises as `read_part` does."""
    where = f"{storage.url}/{getattr(handle, 'file', '(inline)')}"
    with _reading(where), pq.ParquetFile(storage.open(handle)) as file:
        metadata = file.schema_arrow.metadata or {}
    return bool(metadata.get(COMPLETE.encode()) == b"true")


@contextmanager
def _reading(where: str) -> Iterator[None]:
    """Turn pyarrow's errors about a damaged file into `Corrupt`."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(
            "a file of a savepoint cannot be read as a table",
            where=where,
            expected="Parquet",
            found=str(error),
            fix="Restore another savepoint, or bring the file back from a copy",
        ) from error


def _form_of(file: pq.ParquetFile, table: TypedTable, rows: int, where: str) -> RowForm:
    """The form of a file's rows, after checks that it is a file of this table with all rows."""
    schema = file.schema_arrow
    # The metadata may come from any program: what is not UTF-8 is not from Holdfast.
    said = {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in (schema.metadata or {}).items()
    }
    wanted = dict(table.metadata)
    found = {key: said.get(key, "nothing") for key in wanted}
    if found != wanted and not _are_alike(found, wanted):
        raise _of_another_table(where, wanted, found)
    form = RowForm(table, is_complete=said.get(COMPLETE) == "true")
    if not schema.equals(form.schema):
        raise _of_another_table(where, _columns(form.schema), _columns(schema))
    if file.metadata.num_rows != rows:
        raise _of_another_table(where, f"{rows} rows", f"{file.metadata.num_rows} rows")
    return form


def _are_alike(found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether they differ in names of classes only: slots may know a class by its new name."""
    first, second = ({**each, TYPES: ""} for each in (found, wanted))
    try:
        types = [msgspec.json.decode(each.get(TYPES, "")) for each in (found, wanted)]
    except UNREADABLE:
        return False
    return first == second and are_alike(*types)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(map(str, schema))


def _of_another_table(where: str, expected: Any, found: Any) -> Corrupt:
    return Corrupt(
        "a file of a savepoint is not the one that was written for this table",
        where=where,
        expected=str(expected),
        found=str(found),
        fix="Restore another savepoint, or bring the file back from a copy",
    )


def _may_have(file: pq.ParquetFile, number: int, groups: tuple[int, int]) -> bool:
    """Whether a row group may have one of these key groups, by its statistics."""
    statistics = file.metadata.row_group(number).column(0).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min <= groups[1] and statistics.max >= groups[0])


def _check_order(block: Block, last: int, where: str) -> int:
    """Check that key groups ascend; answers the last one."""
    if not block.groups:
        return last
    found = block.group_array.astype(np.int64)
    _check_ascending(found, last, where)
    return int(found[-1])


def _check_ascending(found: npt.NDArray[Any], last: int, where: str) -> None:
    if len(found) and (found[0] < last or (np.diff(found) < 0).any()):
        raise Corrupt(
            "the rows of a file of a savepoint are not in order",
            where=where,
            expected="key groups that ascend",
            found=f"key group {int(found.min())} behind {max(last, int(found.max()))}",
            fix="Write them in order of key group",
        )
