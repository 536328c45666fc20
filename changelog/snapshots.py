"""Snapshots of a base and a log, and the materializations that write bases.

Pieces and bases are uploaded before any checkpoint refers to them; `begun_from` states which of
them may still be needed (`holdfast.storage.jobs.decisions`). Flink passes the ownership of such
files between task and coordinator by messages, and has deleted files that were still needed
(FLINK-28440, FLINK-29913); here the names of files decide.

Later checkpoints refer to the pieces and the base of the newest completed one. Concurrent
checkpoints may write the same change twice, since each writes what is in no file when it begins.
When a checkpoint completes, its pieces and its base replace those of an older checkpoint, whose
files may be deleted.

A neutral or canonical snapshot ends the use of a base: it refers to no files, so that the files of
bases may be deleted after it, and it cannot itself be a base, because it may be moved and read
alone. The next checkpoint writes a new base. So does the first checkpoint after a restore from
something that cannot be a base, such as other key groups or the files of another job.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from holdfast.backends.snapshots.logs import (
    BASE_HANDLES,
    LOGGED_KIND,
    LoggedAttributes,
    LogInfo,
    base_of,
)
from holdfast.backends.snapshots.neutral import (
    ENTRIES_KIND,
    PARQUET_KIND,
    KeyedAttributes,
    SnapshotForm,
    SnapshotFuture,
    SnapshotTarget,
    keyed_snapshot,
)
from holdfast.backends.snapshots.snapshotter import (
    Restoration,
    SnapshotRequest,
    Snapshots,
    Snapshotter,
)
from holdfast.backends.snapshots.workers import SnapshotWorker
from holdfast.changelog.materialization_schedule import MaterializationSchedule
from holdfast.changelog.operator_log import LogWriter, OperatorLog
from holdfast.changelog.recording.store import LoggedStore
from holdfast.changelog.writing.target import LoggedOperator, LogTarget, SharedFiles
from holdfast.storage import Clock, Handle, HoldfastError, StateSnapshot, Unavailable

__all__ = ["ChangelogSnapshots"]

_logger = logging.getLogger(__name__)
# `tend` runs in each turn of the slot's loop, and does more than a look at the clock only after
# this time, or this many new rows.
_LOOK_S = 0.05
_LOOK_ROWS = 10_000
_PAUSE_S = 1.0
"""Pause after an upload has failed."""
_APPLIED_SHARE = 0.25
"""Share of the sealed changes that one `tend` writes to the inner store: the pause of the loop is
short, and four turns are enough."""
_Make = Callable[[int, SnapshotTarget], SnapshotRequest]


@dataclass(frozen=True, slots=True)
class _Base:
    """A snapshot of the inner backend, which has all changes up to a seal."""

    snapshot: StateSnapshot
    seal: int
    number: int | None
    """Its checkpoint number in the inner backend; None if the operator was restored from it."""
    changed: int
    """`SnapshotRequest.changed` at that time: accessed states with other types or names than were
    restored. If it grows, the log cannot describe the difference, and a new base is needed."""


@dataclass(frozen=True, slots=True)
class _Materialization:
    """A materialization in progress."""

    future: SnapshotFuture
    seal: int
    number: int
    changed: int
    began_s: float


class ChangelogSnapshots(Snapshots):
    """The snapshots of one operator in one slot."""

    def __init__(
        self,
        store: LoggedStore,
        what: LoggedOperator,
        *,
        clock: Clock,
        target: LogTarget | None,
        is_restored: bool,
        on_close: Callable[[], None],
    ) -> None:
        self._store = store
        self._what = what
        self._options = what.options
        self._clock = clock
        self._target = target
        self._copies = None if target is None else target.copies
        self._on_close = on_close
        self._inner = Snapshotter(store.inner, what.uid, what.key_groups, what.max_parallelism)
        self._worker = SnapshotWorker(f"{what.uid}, logs")
        self._log = OperatorLog(store, what.token)
        now_s = clock.monotonic_s()
        name = f"{what.uid}/{what.key_groups}"
        self._schedule = MaterializationSchedule(what.options, name, now_s)
        self._base = None if is_restored else self._empty_base()
        """None after a restore, until a snapshot has all restored state."""
        self._next_number = 1 if target is None else target.first_checkpoint_id
        self._base_of: dict[int, _Base] = {}
        """The base of each pending checkpoint."""
        self._new_bases: dict[int, tuple[SnapshotFuture, int, int]] = {}
        """Pending checkpoints that write a base, with its seal and `changed`."""
        self._without_log: set[int] = set()
        """Pending checkpoints without a log: neutral ones and savepoints."""
        self._confirmed: _Base | None = self._base
        """The newest base in a completed checkpoint."""
        self._running: _Materialization | None = None
        self._sealed_s = self._looked_s = self._upload_again_s = now_s
        self._materialized_s = 0.0
        self._replaced = 0
        self._warned_of: _Materialization | None = None

    def begin(self, request: SnapshotRequest) -> SnapshotFuture:
        number = request.checkpoint_id
        self._next_number = max(self._next_number, number + 1)
        self._collect_results()
        if request.form is not SnapshotForm.OWN:
            return self._begin_without_log(request)
        if self._base is not None and request.changed != self._base.changed:
            self._base = None
        self._seal(request)
        base = self._base
        # Without a target nothing else writes a base.
        is_due = self._target is None and self._is_due(self._clock.monotonic_s())
        if base is None or is_due:
            return self._begin_with_base(request)
        self._base_of[number] = base
        running = self._running
        boundaries = [seal for _, seal, _ in self._new_bases.values()]
        boundaries += [] if running is None else [running.seal]
        writer = self._log.writer(
            number, boundaries, None if self._copies is None else self._copies.put
        )
        begun_from = number + 1 if running is None else running.number
        return self._worker.submit(partial(self._write, request, base.snapshot, writer, begun_from))

    def build_on(self, restored: Restoration) -> None:
        if len(restored.snapshots) != 1:
            return
        (snapshot,) = restored.snapshots
        if snapshot.kind == PARQUET_KIND:
            return  # a savepoint may be deleted at any time: it cannot be a base
        if snapshot.key_groups != (self._what.key_groups.first, self._what.key_groups.last):
            return
        base = snapshot
        if snapshot.kind == LOGGED_KIND:
            attributes = msgspec.convert(snapshot.attributes, LoggedAttributes)
            base = base_of(snapshot, attributes)
            self._log.restore(attributes.logs, snapshot.handles)
        self._inner.build_on(Restoration((base,), restored.files))
        self._base = self._confirmed = _Base(base, 0, None, 0)
        self._schedule.base_bytes = base.size_bytes

    def completed(self, checkpoint_id: int) -> None:
        self._log.completed(checkpoint_id)
        if self._copies is not None:
            self._copies.need(self, self._log.files, checkpoint_id)
        new_base = self._new_bases.pop(checkpoint_id, None)
        if new_base is not None:
            future, seal, changed = new_base
            # A later pending checkpoint refers to another base, and may be the only one retained.
            if max(self._base_of, default=0) > checkpoint_id:
                self._inner.aborted(checkpoint_id)
            else:
                made = self._base_of[checkpoint_id] = _Base(
                    future.result(), seal, checkpoint_id, changed
                )
                self._adopt(made)
        base = self._base_of.get(checkpoint_id)
        if base is not None and base is not self._confirmed:
            self._confirmed = base
            if base.number is not None:
                self._inner.completed(base.number)
        if checkpoint_id in self._without_log:  # files of bases may be deleted from now on
            self._base = self._confirmed = None
            self._give_up_running()
            self._inner.aborted(checkpoint_id)  # a materialization may have used this number
            self._inner.completed(checkpoint_id)
        self._without_log = {number for number in self._without_log if number > checkpoint_id}
        for kept in (self._base_of, self._new_bases):
            for number in [number for number in kept if number <= checkpoint_id]:
                del kept[number]

    def aborted(self, checkpoint_id: int) -> None:
        self._log.aborted(checkpoint_id)
        self._base_of.pop(checkpoint_id, None)
        self._without_log.discard(checkpoint_id)
        if self._new_bases.pop(checkpoint_id, None) is not None:
            self._inner.aborted(checkpoint_id)
            self._drop_what_new_bases_have()

    def tend(self, request: _Make) -> bool:
        self._store.apply_some(_APPLIED_SHARE)
        target = self._target
        if target is None:
            return True
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s >= _LOOK_S or self._store.rows >= _LOOK_ROWS:
            self._looked_s = now_s
            self._collect_results()
            self._persist(request, target, now_s)
            if self._may_materialize() and self._is_due(now_s):
                self._materialize(request, target, now_s)
            self._warn_of_growth(now_s)
        return target.uploader is None or target.uploader.has_room

    def metrics(self) -> Mapping[str, float]:
        return {
            "log_bytes": float(self._log.size_bytes),
            "log_rows": float(self._log.about_rows + self._store.rows),
            "log_written_bytes": float(self._log.encoded_bytes),
            "log_pieces": float(self._log.pieces),
            "log_waiting_bytes": float(self._log.waiting_bytes),
            "base_bytes": float(self._schedule.base_bytes),
            "materializations": float(self._replaced),
            "materialization_failures": float(self._schedule.failures),
            "materialization_s": self._materialized_s,
        }

    def close(self) -> None:
        if self._running is not None:
            self._running.future.cancel()
        for future, _, _ in self._new_bases.values():
            future.cancel()
        self._worker.close()
        self._inner.close()
        if self._target is not None and self._target.uploader is not None:
            self._target.uploader.hold(self, 0)
        if self._copies is not None:
            self._copies.leave(self)
        self._on_close()

    def _empty_base(self) -> _Base:
        attributes = KeyedAttributes(
            uid=self._what.uid, max_parallelism=self._what.max_parallelism, keys=None, tables=()
        )
        return _Base(
            keyed_snapshot(ENTRIES_KIND, attributes, {}, self._what.key_groups), 0, None, 0
        )

    def _seal(self, request: SnapshotRequest) -> None:
        if self._store.rows:
            self._log.seal(self._store.take(), request.infos())
            self._sealed_s = self._clock.monotonic_s()

    def _may_materialize(self) -> bool:
        """Whether the base is in a completed checkpoint, and no other base is being written.

        A materialization builds on files of the one before, which may be deleted as long as no
        completed checkpoint refers to them.
        """
        is_free = self._running is None and not self._new_bases
        return is_free and self._base is not None and self._base is self._confirmed

    def _is_due(self, now_s: float) -> bool:
        uploader = None if self._target is None else self._target.uploader
        size_of = uploader.size_of if uploader is not None else lambda _: None
        return self._schedule.is_due(now_s, self._log.pinned_bytes(size_of), self._log.pieces)

    def _warn_of_growth(self, now_s: float) -> None:
        """Warn once for each materialization during which the log grows far too long."""
        running, most = self._running, self._options.most_log_pieces
        if running is None or running is self._warned_of or self._log.pieces <= 2 * most:
            return
        self._warned_of = running
        _logger.warning(
            "the state of operator %r in key groups %s is being materialized for %.0f s, and its "
            "log has %d pieces already, of which each checkpoint's metadata has a line",
            self._what.uid,
            self._what.key_groups,
            now_s - running.began_s,
            self._log.pieces,
        )

    def _begin_with_base(self, request: SnapshotRequest) -> SnapshotFuture:
        """Begin a checkpoint that writes a new base."""
        seal, began_s = self._log.last_seal, self._clock.monotonic_s()
        self._give_up_running()
        self._store.apply()
        base = self._inner.begin(request)
        self._new_bases[request.checkpoint_id] = base, seal, request.changed
        self._drop_what_new_bases_have()
        begun_from = min(self._new_bases) + 1  # pieces since are needed until the base is adopted

        def write(future: SnapshotFuture) -> StateSnapshot:
            snapshot = _result(base, future)
            self._materialized_s = self._clock.monotonic_s() - began_s
            return self._snapshot(request, snapshot, (), {}, begun_from)

        return self._worker.submit(write)

    def _drop_what_new_bases_have(self) -> None:
        """Without a base, drop what every pending base contains."""
        if self._base is None and self._new_bases:
            self._log.truncate(min(seal for _, seal, _ in self._new_bases.values()))

    def _begin_without_log(self, request: SnapshotRequest) -> SnapshotFuture:
        """Begin a snapshot of all state in a form without a log."""
        self._store.apply()
        self._without_log.add(request.checkpoint_id)
        if self._target is not None:  # it refers to no uploaded piece
            request = replace(request, begun_from=self._target.first_checkpoint_id)
        return self._inner.begin(request)

    def _write(
        self,
        request: SnapshotRequest,
        base: StateSnapshot,
        writer: LogWriter,
        begun_from: int,
        future: SnapshotFuture,
    ) -> StateSnapshot:
        begin = partial(
            request.target.log_segments,
            request.checkpoint_id,
            self._what.uid,
            compression=self._options.compression or request.compression,
        )
        written = writer.write(begin, future)
        future.check()
        return self._snapshot(request, base, written.logs, written.handles, begun_from)

    def _materialize(self, request: _Make, target: LogTarget, now_s: float) -> None:
        """Begin to write a base between checkpoints."""
        number = self._next_number
        made = replace(request(number, SharedFiles(target.job)), compression=target.compression)
        self._seal(made)
        self._store.apply()
        try:
            future = self._inner.begin(made)
        except (HoldfastError, OSError) as error:
            future = SnapshotFuture()
            future.set_exception(error)
        self._running = _Materialization(future, self._log.last_seal, number, made.changed, now_s)

    def _give_up_running(self) -> None:
        """Cancel the running materialization: a newer base replaces it."""
        if self._running is not None:
            self._running.future.cancel()
            self._inner.aborted(self._running.number)
            self._running = None

    def _collect_results(self) -> None:
        """Take over the results of background threads.

        Raises:
            Unavailable: more materializations have failed than are tolerated.
        """
        if self._log.collect_uploads():
            self._upload_again_s = self._clock.monotonic_s() + _PAUSE_S
        running = self._running
        if running is None or not running.future.done():
            return
        self._running = None
        now_s = self._clock.monotonic_s()
        try:
            snapshot = running.future.result()
        except (HoldfastError, OSError, CancelledError) as error:
            self._inner.aborted(running.number)
            self._schedule.ended(now_s, None)
            if self._schedule.has_failed_too_often:
                raise _never_materialized(self._what.uid, self._schedule.failures, error) from error
            _logger.warning(
                "the state of operator %r in key groups %s was not materialized, its log grows "
                "until it is, and that is tried again (%d of %d failures in a row tolerated): %s",
                self._what.uid,
                self._what.key_groups,
                self._schedule.failures,
                self._options.max_materialization_failures,
                error,
            )
            return
        self._replaced += 1
        self._materialized_s = now_s - running.began_s
        self._adopt(_Base(snapshot, running.seal, running.number, running.changed))

    def _adopt(self, base: _Base) -> None:
        """Use a base from now on, unless there is a newer one."""
        if self._base is None or base.seal >= self._base.seal:
            self._base = base
            self._log.truncate(base.seal)
            self._schedule.ended(self._clock.monotonic_s(), base.snapshot.size_bytes)

    def _persist(self, request: _Make, target: LogTarget, now_s: float) -> None:
        """Upload changes before the next checkpoint if they are many or old."""
        uploader, options = target.uploader, self._options
        if self._base is None and not self._new_bases:  # the next checkpoint writes a base
            self._log.truncate(self._log.last_seal)
            if self._store.rows >= _LOOK_ROWS:
                self._store.take()
        elif uploader is not None:
            rows = {name: count for name, count in self._store.rows_by_table() if count}
            age_s = math.inf if options.persist_interval_s is None else options.persist_interval_s
            is_old = now_s - self._sealed_s >= age_s
            is_much = self._log.about_bytes(rows.items()) >= options.persist_threshold_bytes
            # The first rows of a new table are uploaded at once, to learn their size.
            is_unknown = not all(map(self._log.has_met, rows))
            if rows and (is_old or is_much or is_unknown):
                self._seal(request(self._next_number, SharedFiles(target.job)))
            waiting = self._log.waiting()
            is_much = sum(each.about_bytes for each in waiting) >= options.persist_threshold_bytes
            is_much |= is_unknown
            is_much |= (
                not uploader.has_room
            )  # operators without room must all upload, or none gets any
            if waiting and (is_old or is_much) and now_s >= self._upload_again_s:
                uploader.submit(waiting, self._next_number)
            elif not rows and not waiting:
                self._sealed_s = now_s  # restarts the age of changes
        if uploader is not None:
            uploader.hold(self, self._log.waiting_bytes)

    def _snapshot(
        self,
        request: SnapshotRequest,
        base: StateSnapshot,
        logs: tuple[LogInfo, ...],
        handles: Mapping[str, Handle],
        begun_from: int,
    ) -> StateSnapshot:
        attributes = LoggedAttributes(
            uid=self._what.uid,
            max_parallelism=self._what.max_parallelism,
            keys=request.keys,
            tables=(),
            base_kind=base.kind,
            base=base.attributes,
            logs=logs,
        )
        of_base = {BASE_HANDLES + name: handle for name, handle in base.handles.items()}
        return keyed_snapshot(
            LOGGED_KIND,
            attributes,
            {**of_base, **handles},
            self._what.key_groups,
            begun_from=begun_from,
        )


def _result(inner: SnapshotFuture, future: SnapshotFuture) -> StateSnapshot:
    """The result of the inner snapshot, which is cancelled together with the outer one."""
    try:
        future.wait_for(inner)
    except CancelledError:
        inner.cancel()
        raise
    return inner.result()


def _never_materialized(uid: str, failures: int, error: BaseException) -> Unavailable:
    return Unavailable(
        f"the state of operator {uid!r} cannot be materialized, so its log would grow for ever",
        expected="a materialization from time to time",
        found=f"{failures} failures in a row; the last one: {error}",
        fix="Remove the cause of the last failure, or raise max_materialization_failures",
    )
