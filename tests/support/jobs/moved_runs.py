"""Runs of the job that is moved, as its slots do it: fed, stopped, begun from a snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from holdfast.backends import SnapshotForm, SnapshotTarget, StateBackend, key_groups_of_slots
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_groups
from holdfast.runtime.operators import KeyedBatchSpec, KeyedProcessSpec
from holdfast.runtime.operators.key_columns import KeyColumns
from holdfast.runtime.protocol.operator import Operator
from holdfast.savepoints import StoredSnapshot, find_snapshot
from holdfast.storage import (
    CheckpointMetadata,
    JobStorage,
    ManualClock,
    OperatorState,
    SavepointFolder,
    StateFolder,
    StateSnapshot,
    SystemClock,
    names,
)
from support.jobs.moved_job import START_MS, SUMMED, USERS, Row, Step
from support.jobs.operator_runs import Slot, batch_of, opened

__all__ = ["MovedRun"]

_Spec = KeyedProcessSpec | KeyedBatchSpec
_SPECS: Sequence[_Spec] = (USERS, SUMMED)
_WAIT_S = 60


class _TwoClocks(ManualClock):
    """Time is what the steps say, also while a caller waits for other threads."""

    waited_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.waited_s


class MovedRun:
    """One run of the job, in so many slots; begun anew, or from a snapshot."""

    def __init__(
        self,
        job: JobStorage,
        backend: StateBackend,
        parallelism: int,
        restored: StoredSnapshot | None = None,
        *,
        max_parallelism: int = 128,
        now_ms: int = START_MS,
    ) -> None:
        self.job = job
        self.owner = job.take_over()
        self.clock = _TwoClocks(now_ms)
        self.parallelism, self.max_parallelism = parallelism, max_parallelism
        before = None if restored is None else restored.metadata
        self._number = max(self.owner.next_checkpoint_id, before.checkpoint_id + 1 if before else 1)
        self.slots: dict[str, list[Slot]] = {spec.uid: [] for spec in _SPECS}
        self._told: Counter[Row] = Counter()
        try:
            for spec in _SPECS:
                parts = () if before is None else before.operators[spec.uid].parts
                self._open(spec, backend, parts, None if restored is None else restored.folder)
        except BaseException:
            self.close()
            raise

    def _open(
        self,
        spec: _Spec,
        backend: StateBackend,
        parts: Sequence[StateSnapshot],
        folder: StateFolder | None,
    ) -> None:
        for slot, groups in enumerate(key_groups_of_slots(self.parallelism, self.max_parallelism)):
            self.slots[spec.uid].append(
                opened(
                    spec,
                    self.clock,
                    uid=spec.uid,
                    slot=slot,
                    parallelism=self.parallelism,
                    max_parallelism=self.max_parallelism,
                    key_groups=groups,
                    job=self.job,
                    backend=backend,
                    restored=parts,
                    restored_from=folder,
                    first_checkpoint_id=self._number,
                )
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for slot in self._all():
            slot.operator.close()

    def answer(self, steps: Iterable[Step]) -> Counter[Row]:
        """All rows of both operators; between the steps the slots look after their state."""
        self._told = Counter()
        for step in steps:
            self._step(step)
            for slot in self._all():
                slot.operator.tend()
        return self._told

    def _step(self, step: Step) -> None:
        users, sums = (self.slots[spec.uid] for spec in _SPECS)
        if step.now_ms is not None:
            self.clock.advance(step.now_ms - self.clock.now_ms())
            _tick(users, step.now_ms)
        if step.rows:
            self._feed(USERS, step.rows, [n for _, _, n, _ in step.rows])
        if step.to_all is not None:
            self._to_each(*step.to_all)
        if step.watermark is not None:
            _advance(users, step.watermark)
        told = [row for slot in users for row in slot.output.taken()]
        if told:
            self._feed(SUMMED, [row[:-1] for row in told], [row[-1] for row in told])
        if step.watermark is not None:
            _advance(sums, step.watermark)
        summed = [row for slot in sums for row in slot.output.taken()]
        self._told.update(row[:-1] for row in (*told, *summed))

    def _feed(self, spec: _Spec, rows: Sequence[Row], times: Sequence[int | None]) -> None:
        batch = batch_of(spec, rows, times)
        groups = self._groups(spec, batch)
        for slot in self.slots[spec.uid]:
            slot.operator.process(batch.filter(pa.array(np.isin(groups, list(slot.key_groups)))), 0)

    def _groups(self, spec: _Spec, batch: pa.RecordBatch) -> np.ndarray:
        columns = KeyColumns(spec.input_schema, spec.key_columns, spec.uid)
        hashes = key_codec_for(columns.key_type).hash_column(columns.of(batch))
        return key_groups(hashes, self.max_parallelism)

    def _to_each(self, kind: str, amount: int) -> None:
        """A row for each slot of the users, under a key that is the slot's."""
        rows = [(kind, f"of a slot {number}", number, amount) for number in range(100)]
        groups = self._groups(USERS, batch_of(USERS, rows))
        for slot in self.slots[USERS.uid]:
            own = next(
                row
                for row, group in zip(rows, groups.tolist(), strict=True)
                if group in slot.key_groups
            )
            slot.operator.process(batch_of(USERS, [own], [None]), 0)

    def until_materialized(self) -> None:
        """Until a changelog has a base with state in it; it had a checkpoint before.

        Threads in the background need real time for what they do.
        """
        real = SystemClock()
        end_s = real.monotonic_s() + _WAIT_S
        while any(not slot.operator.metrics().store["materializations"] for slot in self._all()):
            assert real.monotonic_s() < end_s
            self.clock.waited_s += 0.1
            for slot in self._all():
                slot.operator.tend()
            real.sleep_s(0.001)

    def checkpoint(self) -> StoredSnapshot:
        """Take a checkpoint, on which the next one may build."""
        number = self._number
        self._number += 1
        metadata = self._metadata(number, "checkpoint", self._parts(number, self.job))
        self.owner.commit(metadata)
        for slot in self._all():
            slot.operator.completed(number)
        return find_snapshot(f"{self.job.url}/{names.checkpoint_folder(number)}")

    def savepoint(self, form: SnapshotForm) -> StoredSnapshot:
        """Take a savepoint, beside the job's folder."""
        folder = SavepointFolder.begin(self.job.storage, self.job.job_id)
        folder.commit(
            self._metadata(self._number, "savepoint", self._parts(self._number, folder, form))
        )
        return find_snapshot(folder.url)

    def _parts(
        self, number: int, target: SnapshotTarget, form: SnapshotForm = SnapshotForm.OWN
    ) -> Mapping[str, list[StateSnapshot]]:
        for slot in self._all():
            slot.operator.prepare(number)
        futures = {
            uid: [
                future
                for slot in slots
                for future in slot.operator.snapshot(number, target, form=form)
            ]
            for uid, slots in self.slots.items()
        }
        return {uid: [each.result(_WAIT_S) for each in some] for uid, some in futures.items()}

    def _metadata(
        self, number: int, kind: str, parts: Mapping[str, list[StateSnapshot]]
    ) -> CheckpointMetadata:
        return CheckpointMetadata(
            job_id=self.job.job_id,
            checkpoint_id=number,
            kind=kind,
            triggered_ms=START_MS,
            completed_ms=START_MS + 1,
            operators={
                uid: OperatorState(
                    parallelism=self.parallelism,
                    max_parallelism=self.max_parallelism,
                    parts=tuple(its),
                )
                for uid, its in parts.items()
            },
        )

    def _all(self) -> list[Slot]:
        return [slot for slots in self.slots.values() for slot in slots]


def _advance(slots: Iterable[Slot], watermark: int) -> None:
    for slot in slots:
        while slot.operator.advance(watermark):
            pass


def _tick(slots: Iterable[Slot], now_ms: int) -> None:
    for slot in slots:
        while _is_due(slot.operator, now_ms):
            slot.operator.tick(now_ms)


def _is_due(operator: Operator, now_ms: int) -> bool:
    due_ms = operator.next_tick_ms()
    return due_ms is not None and due_ms <= now_ms
