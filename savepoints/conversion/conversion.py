"""Converting a checkpoint or a savepoint into a savepoint of another form, or for another backend.

A conversion is planned, and the plan noted in the destination. Runners then execute its pieces in
any process, the result is read back and compared with the source, and only then `_metadata` makes
the destination a savepoint. An interrupted conversion is resumed by running it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from holdfast.backends import StateBackend
from holdfast.backends.snapshots.neutral import TableInfo
from holdfast.savepoints.conversion.copying import PartCopier, check_unkeyed
from holdfast.savepoints.conversion.destination import Destination
from holdfast.savepoints.conversion.journal import PieceResult, Spilled, added_up
from holdfast.savepoints.conversion.pieces import PiecePhase, PieceTask, PieceWorker, whole_tables
from holdfast.savepoints.conversion.plan import (
    ConversionOptions,
    ConversionPlan,
    OperatorPlan,
    plan_conversion,
)
from holdfast.savepoints.conversion.runners import Runner
from holdfast.savepoints.finding import StoredSnapshot
from holdfast.savepoints.reading.readers import OperatorReader
from holdfast.savepoints.reading.row_sums import RowSums
from holdfast.savepoints.writing.keyed_writer import check_holds
from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    FileHandle,
    OperatorState,
    SavepointFolder,
    StateSnapshot,
)
from holdfast.storage.jobs.metadata import PROPERTIES_OF_THE_JOB
from holdfast.storage.jobs.savepoint import SAVEPOINT

__all__ = ["Conversion", "Converted", "OperatorResult", "Progress"]

Progress = Callable[[PiecePhase, int, int, int], None]
"""Called after each piece with the phase, the pieces done, the pieces in all, and the rows that
this piece has read."""


def _silent(phase: PiecePhase, done: int, pieces: int, rows: int) -> None:
    """Ignore progress."""


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """Numbers of one operator: rows of keyed state by name, and elements of state without keys."""

    uid: str
    parallelism: int
    max_parallelism: int
    tables: Mapping[str, int]
    elements: int


@dataclass(frozen=True, slots=True)
class Converted:
    """A finished conversion. `resumed` counts the pieces that an earlier run had done."""

    path: str
    metadata: CheckpointMetadata
    operators: tuple[OperatorResult, ...]
    resumed: int = 0
    was_done: bool = False
    """Whether an earlier run had completed it, so that this one did nothing."""

    @property
    def rows(self) -> int:
        return sum(sum(each.tables.values()) + each.elements for each in self.operators)


@dataclass(kw_only=True)
class Conversion:
    """One conversion from a snapshot to a destination.

    `destination` is the folder that becomes the savepoint, `backend` the one that will restore it,
    or None for any. `runner` executes the pieces.
    """

    source: StoredSnapshot
    destination: SavepointFolder
    options: ConversionOptions
    backend: StateBackend | None
    runner: Runner
    progress: Progress = _silent
    _resumed: int = field(default=0, init=False)

    def run(self, *, fresh: bool = False, take_over: bool = False) -> Converted:
        """Convert, or resume an interrupted run; `fresh` deletes its work and starts over.

        The destination is not a savepoint until this returns. If the same conversion was completed
        before, this returns its result. `take_over` states that the run whose marker is at the
        destination has ended, where that cannot be seen from this machine.

        Raises:
            Taken: something else is at the destination, or a savepoint, which `fresh` does not
                delete, or another run.
            Fenced: another run has taken over from this one.
            Invalid: the options do not fit the snapshot; a key group is missing or in two parts;
                the backend cannot hold a state; or another conversion was begun here.
            Corrupt: the source is damaged; the result differs from the source; or files of pieces
                that were done before are missing.
            Unavailable: a storage failed, or is full. Run it again to resume.
        """
        writes = None if self.options.is_canonical else self.backend
        is_files = writes is not None and writes.capabilities.own_snapshots
        plan = plan_conversion(
            self.source, self.options, is_files=is_files, workers=self.runner.workers
        )
        destination = Destination(self.destination, self.source)
        done = destination.completed(plan, fresh=fresh)
        if done is not None:
            return Converted(self.destination.url, done, (), was_done=True)
        self._check_source(plan)
        plan = destination.begin(plan, fresh=fresh, take_over=take_over)
        try:
            return self._converted(plan, destination)
        finally:
            destination.leave()

    def _converted(self, plan: ConversionPlan, destination: Destination) -> Converted:
        is_canonical = self.options.is_canonical
        work = PieceWorker(
            self.source,
            self.destination,
            None if is_canonical else self.backend,
            self.source.metadata.checkpoint_id,
            {each.uid: whole_tables(self.source, each.uid) for each in plan.operators}
            if is_canonical
            else {},
        )
        written, read = self._written(work, plan, destination)
        copier = PartCopier(
            self.source.folder,
            self.destination,
            is_canonical=is_canonical,
            checkpoint_id=work.checkpoint_id,
        )
        metadata = self.source.metadata
        operators: dict[str, OperatorState] = {}
        for each in plan.operators:
            parts = metadata.operators[each.uid].parts
            unkeyed = copier.unkeyed(each.uid, parts, each.parallelism)
            operators[each.uid] = OperatorState(
                parallelism=each.parallelism,
                max_parallelism=each.max_parallelism,
                parts=(*written.get(each.uid, ()), *unkeyed),
            )
        made = CheckpointMetadata(
            job_id=metadata.job_id,
            checkpoint_id=metadata.checkpoint_id,
            kind=SAVEPOINT,
            triggered_ms=metadata.triggered_ms,
            completed_ms=metadata.completed_ms,
            operators=operators,
            sources={
                uid: copier.copied(part, f"source-{uid}") for uid, part in metadata.sources.items()
            },
            parts={name: copier.copied(part, name) for name, part in metadata.parts.items()},
            properties=_properties(self.source, plan),
        )
        results = self._checked(work, plan, made, read, destination)
        destination.complete(made)
        return Converted(self.destination.url, made, results, self._resumed)

    def _written(
        self, work: PieceWorker, plan: ConversionPlan, destination: Destination
    ) -> tuple[dict[str, list[StateSnapshot]], dict[str, list[PieceResult]]]:
        """The parts of each operator's keyed state, and the results of reading them."""
        spreads, writes = _tasks(plan)
        spread = self._done(work, PiecePhase.SPREAD, spreads, destination)
        aside = _by_piece(spread)
        waiting = [
            replace(task, spilled=tuple(aside.get((task.operator.uid, task.piece), ())))
            for task in writes
        ]
        done = self._done(work, PiecePhase.WRITE, waiting, destination)
        written: dict[str, list[StateSnapshot]] = {}
        read: dict[str, list[PieceResult]] = {}
        for task, result in sorted((*spread, *done), key=_number):
            read.setdefault(task.operator.uid, []).append(result)
            if result.part is not None:
                written.setdefault(task.operator.uid, []).append(result.part)
        return written, read

    def _done(
        self,
        work: PieceWorker,
        phase: PiecePhase,
        tasks: Sequence[PieceTask],
        destination: Destination,
    ) -> list[tuple[PieceTask, PieceResult]]:
        """The result of each piece, from the journal if all its files exist, else by doing it."""
        results = []
        waiting = []
        is_noted = phase is not PiecePhase.CHECK
        sizes = destination.sizes() if is_noted and tasks else {}
        for task in tasks:
            result = destination.journal.result(task.number) if is_noted else None
            if result is None or not _is_there(result, sizes):
                waiting.append(task)
            else:
                results.append((task, result))
        self._resumed += len(results)
        if tasks:
            self.progress(phase, len(results), len(tasks), sum(each.rows for _, each in results))
        # Before pieces are written: a run that was replaced must not work for hours in vain.
        destination.check()
        for task, result in self.runner.run(work, waiting):
            destination.check()
            results.append((task, result))
            self.progress(phase, len(results), len(tasks), result.rows)
        return results

    def _checked(
        self,
        work: PieceWorker,
        plan: ConversionPlan,
        made: CheckpointMetadata,
        read: Mapping[str, Sequence[PieceResult]],
        destination: Destination,
    ) -> tuple[OperatorResult, ...]:
        """Read the result back, and make sure that it equals the source."""
        tasks = [
            PieceTask(PiecePhase.CHECK, 0, each, piece, parts=made.operators[each.uid].parts)
            for each in plan.operators
            for piece in range(len(each.pieces))
        ]
        found: dict[str, list[PieceResult]] = {}
        for task, result in self._done(work, PiecePhase.CHECK, tasks, destination):
            found.setdefault(task.operator.uid, []).append(result)
        for part in (*made.sources.values(), *made.parts.values()):
            for handle in part.handles.values():
                for _ in self.destination.stream(handle):
                    pass  # its checksum was computed from the bytes of the source
        results = []
        for each in plan.operators:
            tables = self._same(each, read.get(each.uid, ()), found.get(each.uid, ()))
            readers = [
                OperatorReader(each.uid, metadata.operators[each.uid].parts, folder)
                for metadata, folder in (
                    (self.source.metadata, self.source.folder),
                    (made, self.destination),
                )
            ]
            elements = check_unkeyed(*readers, is_canonical=self.options.is_canonical)
            results.append(
                OperatorResult(each.uid, each.parallelism, each.max_parallelism, tables, elements)
            )
        return tuple(results)

    def _same(
        self, plan: OperatorPlan, read: Sequence[PieceResult], found: Sequence[PieceResult]
    ) -> dict[str, int]:
        mine, its = added_up(read), added_up(found)
        rows: dict[str, int] = {}
        for key in dict.fromkeys((*mine, *its)):
            expected, there = mine.get(key), its.get(key)
            sums = [RowSums() if each is None else each.sums for each in (expected, there)]
            if sums[0] != sums[1]:
                info = msgspec.json.decode(key, type=TableInfo)
                raise Corrupt(
                    f"state {info.name!r} of operator {plan.uid!r} differs from the source",
                    where=self.destination.url,
                    expected=str(sums[0]),
                    found=str(sums[1]),
                    fix="Convert it again with --fresh; if that fails again, this is a bug of "
                    "Holdfast, and the source is as it was",
                )
            if there is not None:
                rows[there.info.name] = rows.get(there.info.name, 0) + there.sums.rows
        return rows

    def _check_source(self, plan: ConversionPlan) -> None:
        """Make sure that all keyed state is there, and that the backend can hold it."""
        for each in plan.operators:
            reader = self.source.keyed(each.uid)
            if reader is None:
                continue
            reader.check_covers()
            found = reader.description
            if self.backend is not None and found.tables:
                check_holds(
                    self.backend,
                    each.uid,
                    each.max_parallelism,
                    found.keys,
                    [table.info for table in found.tables],
                )


def _tasks(plan: ConversionPlan) -> tuple[list[PieceTask], list[PieceTask]]:
    """The tasks of both phases. Their numbers follow from the plan, also in a resumed run."""
    spreads: list[PieceTask] = []
    writes: list[PieceTask] = []
    number = 0
    for each in plan.operators:
        for phase, pieces, tasks in (
            (PiecePhase.SPREAD, each.spread, spreads),
            (PiecePhase.WRITE, each.pieces, writes),
        ):
            for piece in range(len(pieces)):
                tasks.append(PieceTask(phase, number, each, piece))
                number += 1
    return spreads, writes


def _is_there(result: PieceResult, sizes: Mapping[str, int]) -> bool:
    """Whether all files of a result exist with their length."""
    return all(
        handle.offset + handle.length <= sizes.get(handle.file, -1)
        for handle in result.handles
        if isinstance(handle, FileHandle)
    )


def _by_piece(
    spread: Sequence[tuple[PieceTask, PieceResult]],
) -> Mapping[tuple[str, int], Sequence[Spilled]]:
    """The rows put aside for each piece of each operator, in the order of reading."""
    aside: dict[tuple[str, int], list[Spilled]] = {}
    for task, result in sorted(spread, key=_number):
        for each in result.spilled:
            aside.setdefault((task.operator.uid, each.piece), []).append(each)
    return aside


def _number(done: tuple[PieceTask, PieceResult]) -> int:
    return done[0].number


def _properties(source: StoredSnapshot, plan: ConversionPlan) -> dict[str, Any]:
    """The properties of the savepoint, without those that only the job's own folder needs."""
    properties = {
        name: value
        for name, value in source.metadata.properties.items()
        if name not in PROPERTIES_OF_THE_JOB
    }
    form = "canonical" if plan.options.is_canonical else "native"
    conversion = {
        "fingerprint": plan.fingerprint,
        "options": msgspec.to_builtins(plan.options),
        "of": {"kind": source.metadata.kind, "checkpoint_id": source.metadata.checkpoint_id},
    }
    return {"trigger": "conversion", **properties, "format": form, "conversion": conversion}
