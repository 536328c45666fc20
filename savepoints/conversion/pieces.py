"""The pieces of a conversion, which any process can execute: spread, write, check.

A piece takes bounded memory: rows are streamed by the block where their order is kept, and where
they must be sorted, a piece is small enough to fit.

A piece depends on plan and source only, so any process may do it again: a kill leaves finished
pieces, and files that no result refers to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from holdfast.backends import StateBackend
from holdfast.backends.arrow.values import ValueForm, is_plain, may_lack_fields
from holdfast.backends.blocks.block import Block, decode_blocks, encode_block
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.snapshots.neutral import TableToWrite
from holdfast.backends.snapshots.regrouping import Regrouping, in_order
from holdfast.savepoints.conversion.journal import (
    FOLDER,
    Journal,
    PieceResult,
    Spilled,
    TableSums,
)
from holdfast.savepoints.conversion.plan import OperatorPlan
from holdfast.savepoints.finding import StoredSnapshot
from holdfast.savepoints.reading.readers import KeyedReader, OpenTables
from holdfast.savepoints.reading.row_sums import RowCounter
from holdfast.savepoints.reading.tables import KeyedTable
from holdfast.savepoints.writing.assembly import AttemptTarget
from holdfast.savepoints.writing.keyed_writer import KeyedWriter
from holdfast.storage import Corrupt, Handle, SavepointFolder, SegmentWriter, StateSnapshot

__all__ = ["PiecePhase", "PieceTask", "PieceWorker", "whole_tables"]

_SPILLED_BYTES = 256 * 1024
"""Bytes that are gathered for one piece before they are put aside; fewer with many pieces."""
_WAITING_BYTES = 64 * 1024 * 1024
"""Bound on the bytes gathered for all pieces of one task."""
_LZ4 = "lz4"


class PiecePhase(Enum):
    """The phase of a conversion."""

    SPREAD = "spread"
    """Rows are read and put aside by the piece of their new key group."""
    WRITE = "write"
    """Rows are written in the new form."""
    CHECK = "check"
    """The result is read back."""


@dataclass(frozen=True, slots=True)
class PieceTask:
    """One piece to do in one phase. `number` identifies it within the conversion, except in CHECK.

    `spilled` are the rows put aside for it, and `parts` the written parts of its operator.
    """

    phase: PiecePhase
    number: int
    operator: OperatorPlan
    piece: int
    spilled: tuple[Spilled, ...] = ()
    parts: tuple[StateSnapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class PieceWorker:
    """Does the pieces of one conversion. Light and picklable.

    `backend` is the one that will restore the result, or None for any: then `whole` has the answers
    of `whole_tables` for each operator.
    """

    source: StoredSnapshot
    folder: SavepointFolder
    backend: StateBackend | None
    checkpoint_id: int
    whole: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)

    def do(self, task: PieceTask) -> PieceResult:
        """Do a piece, and note its result in the journal.

        Raises:
            HoldfastError: it failed; files that it has begun are not referred to.
        """
        if task.phase is PiecePhase.CHECK:
            with _of_the_destination():
                return self._check(task)
        result = self._spread(task) if task.phase is PiecePhase.SPREAD else self._write(task)
        Journal(self.folder).done(task.number, result)
        return result

    def _spread(self, task: PieceTask) -> PieceResult:
        plan, reader = task.operator, self._source_reader(task.operator)
        found, read = reader.description, []
        file = f"{FOLDER}/spread-{task.number:08d}-{self.folder.storage.entropy.token()}"
        spills: list[Spilled] = []
        with (
            SegmentWriter(
                self.folder.storage,
                self.folder.folder,
                file,
                inline_limit_bytes=0,
                compression=_LZ4,
            ) as writer,
            reader.open(plan.spread[task.piece].key_groups) as tables,
        ):
            for number, table in enumerate(found.tables):
                counter = self._counter(plan, number, table)
                buckets = [_Bucket(writer, len(plan.pieces)) for _ in plan.pieces]
                for block in _regrouped(tables, table, counter, reader, plan):
                    for span, bucket in zip(plan.pieces, buckets, strict=True):
                        for some in block.within(span.first, span.last):
                            bucket.add(some)
                read.append(TableSums(table.info, counter.sums))
                for piece, bucket in enumerate(buckets):
                    if handles := bucket.ended():
                        spills.append(Spilled(piece, number, handles))
        return PieceResult(read=tuple(read), spilled=tuple(spills))

    def _write(self, task: PieceTask) -> PieceResult:
        plan, reader = task.operator, self._source_reader(task.operator)
        found = reader.description
        counters = [self._counter(plan, number, table) for number, table in enumerate(found.tables)]
        writer = KeyedWriter(
            uid=plan.uid,
            key_groups=plan.pieces[task.piece].key_groups,
            max_parallelism=plan.max_parallelism,
            keys=found.keys,
            target=AttemptTarget.begin(self.folder) if self.backend is None else self.folder,
            backend=self.backend,
            checkpoint_id=self.checkpoint_id,
        )
        # Rows that were put aside are not read from the source again.
        of_source = KeyGroupRange.empty() if plan.spread else plan.pieces[task.piece].key_groups
        with reader.open(of_source) as tables:
            listed = [
                TableToWrite(
                    table.info,
                    partial(self._aside, task, number)
                    if plan.spread
                    else partial(_counted, tables, table, counter),
                    whole=self._is_whole(plan, number),
                )
                for number, (table, counter) in enumerate(zip(found.tables, counters, strict=True))
            ]
            part = writer.write(listed)
        read = (
            TableSums(each.info, count.sums)
            for each, count in zip(found.tables, counters, strict=True)
        )
        return PieceResult(read=() if plan.spread else tuple(read), part=part)

    def _check(self, task: PieceTask) -> PieceResult:
        reader = KeyedReader(task.operator.uid, task.parts, self.folder)
        read = []
        with reader.open(task.operator.pieces[task.piece].key_groups) as tables:
            for table in reader.description.tables:
                counter = RowCounter(table.info)
                for block in tables.blocks(table):
                    counter.add(block)
                read.append(TableSums(table.info, counter.sums))
        return PieceResult(read=tuple(read))

    def _aside(self, task: PieceTask, number: int) -> Iterator[Block]:
        """The rows of a table put aside for this piece, by key group unless a store sorts."""
        is_sorted_there = self.backend is not None and self.backend.capabilities.own_snapshots
        blocks = self._put_aside(task, number)
        return blocks if is_sorted_there else iter(in_order(list(blocks)))

    def _put_aside(self, task: PieceTask, number: int) -> Iterator[Block]:
        for spilled in task.spilled:
            if (spilled.piece, spilled.table) == (task.piece, number):
                with _of_the_destination():
                    for pieces in self.folder.stream_all(spilled.handles):
                        yield from decode_blocks(pieces, where=self.folder.url)

    def _counter(self, plan: OperatorPlan, number: int, table: KeyedTable) -> RowCounter:
        """A counter of the rows of a table in the form in which they will be read back."""
        if self.backend is not None or is_plain(table.info.values):
            return RowCounter(table.info)
        form = ValueForm(table.info.values, checked=self._is_whole(plan, number))
        return RowCounter(table.info, form)

    def _is_whole(self, plan: OperatorPlan, number: int) -> bool:
        return self.backend is None and self.whole[plan.uid][number]

    def _source_reader(self, plan: OperatorPlan) -> KeyedReader:
        reader = self.source.keyed(plan.uid)
        if reader is None:
            raise Corrupt(f"operator {plan.uid!r} has no keyed state", where=self.source.path)
        return reader


class _Bucket:
    """Gathers the rows for one piece, and puts them aside in larger segments."""

    def __init__(self, writer: SegmentWriter, buckets: int) -> None:
        self._writer = writer
        self._most_bytes = min(_SPILLED_BYTES, _WAITING_BYTES // buckets)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._handles: list[Handle] = []

    def add(self, block: Block) -> None:
        data = encode_block(block)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= self._most_bytes:
            self._write()

    def ended(self) -> tuple[Handle, ...]:
        """The handles of all segments, in order."""
        self._write()
        return tuple(self._handles)

    def _write(self) -> None:
        if self._waiting:
            self._handles.append(self._writer.add(b"".join(self._waiting)))
            self._waiting, self._waiting_bytes = [], 0


def whole_tables(source: StoredSnapshot, uid: str) -> tuple[bool, ...]:
    """For each table of an operator, whether all records have all fields of their type.

    Reads the footers of Parquet files, which state it.

    Raises:
        Corrupt: a file is missing or damaged; names it.
        Unavailable: the storage did not answer.
    """
    reader = source.keyed(uid)
    if reader is None:
        return ()
    return tuple(
        not may_lack_fields(table.info.values) or reader.is_whole(table)
        for table in reader.description.tables
    )


@contextmanager
def _of_the_destination() -> Iterator[None]:
    """Adds to `Corrupt` from the block that this conversion has written the damaged data."""
    try:
        yield
    except Corrupt as error:
        fix = "Convert it again with --fresh; the source is as it was"
        raise error.replaced(fix=fix) from error


def _counted(tables: OpenTables, table: KeyedTable, counter: RowCounter) -> Iterator[Block]:
    for block in tables.blocks(table):
        counter.add(block)
        yield block


def _regrouped(
    tables: OpenTables,
    table: KeyedTable,
    counter: RowCounter,
    reader: KeyedReader,
    plan: OperatorPlan,
) -> Iterator[Block]:
    """The rows of a table with their new key groups.

    Raises:
        Corrupt: there are rows, and the snapshot does not state the type of keys. Without rows the
            type may be missing: no slot has had a key.
    """
    regrouping: Regrouping | None = None
    every = KeyGroupRange(0, plan.max_parallelism - 1)
    for block in _counted(tables, table, counter):
        if regrouping is None:
            keys = reader.typed(table).keys
            assert keys is not None, "it has refused what has no type of keys"
            regrouping = Regrouping(keys, plan.max_parallelism)
        yield from regrouping.regrouped(block, every)
