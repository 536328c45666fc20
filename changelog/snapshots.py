"""Snapshots that are a base and a log, and the materializations that make the base.

Pieces and bases go to storage while no checkpoint knows of them; `begun_from` says which of them
may still come to be needed (`holdfast.storage.jobs.decisions`). Flink passes the ownership of such
files between task and coordinator by message, and has deleted what was still needed (FLINK-28440,
FLINK-29913); here names decide.

What the newest completed checkpoint refers to is what later ones refer to. With several under way
one change may be in two pieces, since each writes what was in no file when it began. When a
checkpoint is completed, its pieces and its base take the place of those of an older one, which may
be deleted with its files.

A neutral or canonical snapshot takes the base away: it refers to nothing, so all that bases are in
may be deleted, and nothing can be added to it, as it may be read without any files. The next
checkpoint makes a base; so does the first after a restore of what cannot be one, such as other key
groups or another job's files.
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
)
from holdfast.backends.snapshots.snapshotter import (
    Restoration,
    SnapshotRequest,
    Snapshots,
    Snapshotter,
)
from holdfast.backends.snapshots.workers import SnapshotWorker
from holdfast.changelog.materialization import Schedule
from holdfast.changelog.operator_log import LogWriter, OperatorLog
from holdfast.changelog.recording.store import LoggedStore
from holdfast.changelog.writing.target import LoggedOperator, LogTarget, SharedFiles
from holdfast.storage import Clock, Handle, HoldfastError, StateSnapshot, Unavailable

__all__ = ["ChangelogSnapshots"]

_logger = logging.getLogger(__name__)
_LOOK_S = 0.05
_LOOK_ROWS = 10_000
_PAUSE_S = 1.0
_APPLIED_SHARE = 0.25
_Make = Callable[[int, SnapshotTarget], SnapshotRequest]


@dataclass(frozen=True, slots=True)
class _Base:
    """A snapshot of the inner backend, which has everything up to a seal."""

    snapshot: StateSnapshot
    seal: int
    number: int | None
    """As which the inner backend knows it; None if it was restored from it."""
    changed: int
    """How much of what was restored it has in other types, or under other names; see
    `SnapshotRequest`. What has changed since goes into no log over it."""


@dataclass(frozen=True, slots=True)
class _Running:
    """A materialization on its way."""

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
        place: LogTarget | None,
        is_restored: bool,
        on_close: Callable[[], None],
    ) -> None:
        self._store = store
        self._what = what
        self._options = what.options
        self._clock = clock
        self._place = place
        self._copies = None if place is None else place.copies
        self._on_close = on_close
        self._inner = Snapshotter(store.inner, what.uid, what.key_groups, what.max_parallelism)
        self._worker = SnapshotWorker(f"{what.uid}, logs")
        self._log = OperatorLog(store, what.token)
        now_s = clock.monotonic_s()
        self._schedule = Schedule(what.options, f"{what.uid}/{what.key_groups}", now_s)
        self._base = None if is_restored else self._empty_base()
        """None: nothing that was written has all that was restored."""
        self._next_number = 1 if place is None else place.first_checkpoint_id
        self._carried: dict[int, _Base] = {}
        """The base of each checkpoint on its way."""
        self._whole: dict[int, tuple[SnapshotFuture, int, int]] = {}
        """The checkpoints on their way that make a base: its seal, and what was changed by then."""
        self._logless: set[int] = set()
        """Those on their way that have no log: neutral ones, and those of savepoints."""
        self._confirmed: _Base | None = self._base
        """The newest base that a completed checkpoint has."""
        self._running: _Running | None = None
        self._sealed_s = self._looked_s = self._upload_again_s = now_s
        self._materialized_s = 0.0
        self._replaced = 0
        self._warned_of: _Running | None = None

    def begin(self, request: SnapshotRequest) -> SnapshotFuture:
        number = request.checkpoint_id
        self._next_number = max(self._next_number, number + 1)
        self._look_after()
        if request.form is not SnapshotForm.OWN:
            return self._begin_without_log(request)
        if self._base is not None and request.changed != self._base.changed:
            self._base = None
        self._seal(request)
        base = self._base
        if base is None or self._must_materialize_here():
            return self._begin_whole(request)
        self._carried[number] = base
        running = self._running
        boundaries = [seal for _, seal, _ in self._whole.values()]
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
            return  # a savepoint is nobody's base
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
        whole = self._whole.pop(checkpoint_id, None)
        if whole is not None:
            future, seal, changed = whole
            if max(self._carried, default=0) > checkpoint_id:  # it refers to another base, and may
                self._inner.aborted(checkpoint_id)  # be the only one that is kept
            else:
                made = self._carried[checkpoint_id] = _Base(
                    future.result(), seal, checkpoint_id, changed
                )
                self._adopt(made)
        base = self._carried.get(checkpoint_id)
        if base is not None and base is not self._confirmed:
            self._confirmed = base
            if base.number is not None:
                self._inner.completed(base.number)
        if checkpoint_id in self._logless:  # what bases are in, and build on, may be deleted now
            self._base = self._confirmed = None
            self._give_up_running()
            self._inner.aborted(checkpoint_id)  # as which it may know a materialization
            self._inner.completed(checkpoint_id)
        self._logless = {number for number in self._logless if number > checkpoint_id}
        for kept in (self._carried, self._whole):
            for number in [number for number in kept if number <= checkpoint_id]:
                del kept[number]

    def aborted(self, checkpoint_id: int) -> None:
        self._log.aborted(checkpoint_id)
        self._carried.pop(checkpoint_id, None)
        self._logless.discard(checkpoint_id)
        if self._whole.pop(checkpoint_id, None) is not None:
            self._inner.aborted(checkpoint_id)
            self._forget_what_is_whole()

    def tend(self, request: _Make) -> bool:
        self._store.apply_some(_APPLIED_SHARE)
        place = self._place
        if place is None:
            return True
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s >= _LOOK_S or self._store.rows >= _LOOK_ROWS:
            self._looked_s = now_s
            self._look_after()
            self._persist(request, place, now_s)
            if self._may_materialize() and self._is_due(now_s):
                self._materialize(request, place, now_s)
            self._warn_of_growth(now_s)
        return place.uploader is None or place.uploader.has_room

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
        for future, _, _ in self._whole.values():
            future.cancel()
        self._worker.close()
        self._inner.close()
        if self._place is not None and self._place.uploader is not None:
            self._place.uploader.hold(self, 0)
        if self._copies is not None:
            self._copies.leave(self)
        self._on_close()

    def _empty_base(self) -> _Base:
        attributes = KeyedAttributes(
            uid=self._what.uid, max_parallelism=self._what.max_parallelism, keys=None, tables=()
        )
        groups = self._what.key_groups.first, self._what.key_groups.last
        snapshot = StateSnapshot(
            kind=ENTRIES_KIND, attributes=msgspec.to_builtins(attributes), key_groups=groups
        )
        return _Base(snapshot, 0, None, 0)

    def _seal(self, request: SnapshotRequest) -> None:
        if self._store.rows:
            self._log.seal(self._store.take(), request.infos())
            self._sealed_s = self._clock.monotonic_s()

    def _must_materialize_here(self) -> bool:
        """Whether a checkpoint has to, since nothing may be written between checkpoints."""
        return self._place is None and self._is_due(self._clock.monotonic_s())

    def _may_materialize(self) -> bool:
        """Whether the base is in a completed checkpoint, and no other one is on its way.

        A materialization builds on the files of the one before, and those may be deleted while no
        completed checkpoint refers to them: so it must not be the one before the last, either.
        """
        is_free = self._running is None and not self._whole
        return is_free and self._base is not None and self._base is self._confirmed

    def _is_due(self, now_s: float) -> bool:
        uploader = None if self._place is None else self._place.uploader
        size_of = _unknown if uploader is None else uploader.size_of
        return self._schedule.is_due(now_s, self._log.pinned_bytes(size_of), self._log.pieces)

    def _warn_of_growth(self, now_s: float) -> None:
        """Say once of each materialization that takes so long that the log is far too long."""
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

    def _begin_whole(self, request: SnapshotRequest) -> SnapshotFuture:
        """A checkpoint with a new base, which has all that there is."""
        seal, began_s = self._log.last_seal, self._clock.monotonic_s()
        self._give_up_running()
        self._store.apply()
        base = self._inner.begin(request)
        self._whole[request.checkpoint_id] = base, seal, request.changed
        self._forget_what_is_whole()
        begun_from = min(self._whole) + 1  # what was logged since is of use until that is adopted

        def write(future: SnapshotFuture) -> StateSnapshot:
            snapshot = _result(base, future)
            self._materialized_s = self._clock.monotonic_s() - began_s
            return self._snapshot(request, snapshot, (), {}, begun_from)

        return self._worker.submit(write)

    def _forget_what_is_whole(self) -> None:
        """Without a base, nobody needs what is in each of the bases that are on their way."""
        if self._base is None and self._whole:
            self._log.truncate(min(seal for _, seal, _ in self._whole.values()))

    def _begin_without_log(self, request: SnapshotRequest) -> SnapshotFuture:
        """All that there is, in a form without a log, to which nothing can be added later."""
        self._store.apply()
        self._logless.add(request.checkpoint_id)
        if self._place is not None:  # none of what was written is in it
            request = replace(request, begun_from=self._place.first_checkpoint_id)
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

    def _materialize(self, request: _Make, place: LogTarget, now_s: float) -> None:
        """Begin to write a new base, between checkpoints."""
        number = self._next_number
        made = replace(request(number, SharedFiles(place.job)), compression=place.compression)
        self._seal(made)
        self._store.apply()
        try:
            future = self._inner.begin(made)
        except (HoldfastError, OSError) as error:
            future = SnapshotFuture()
            future.set_exception(error)
        self._running = _Running(future, self._log.last_seal, number, made.changed, now_s)

    def _give_up_running(self) -> None:
        """There is, or will be, a newer base than the one on its way."""
        if self._running is not None:
            self._running.future.cancel()
            self._inner.aborted(self._running.number)
            self._running = None

    def _look_after(self) -> None:
        """Take over what the background has done.

        Raises:
            HoldfastError: materializations fail, and no more failures are tolerated.
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
            if self._schedule.has_failed_for_good:
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
        """Build on a base from now on, unless there is a newer one."""
        if self._base is None or base.seal >= self._base.seal:
            self._base = base
            self._log.truncate(base.seal)
            self._schedule.ended(self._clock.monotonic_s(), base.snapshot.size_bytes)

    def _persist(self, request: _Make, place: LogTarget, now_s: float) -> None:
        """Have changes written before the next checkpoint, if they are many or old."""
        uploader, options = place.uploader, self._options
        if self._base is None and not self._whole:  # the next checkpoint has all that there is
            self._log.truncate(self._log.last_seal)
            if self._store.rows >= _LOOK_ROWS:
                self._store.take()
        elif uploader is not None:
            rows = {name: count for name, count in self._store.rows_by_table() if count}
            age_s = math.inf if options.persist_interval_s is None else options.persist_interval_s
            is_old = now_s - self._sealed_s >= age_s
            is_much = self._log.about_bytes(rows.items()) >= options.persist_threshold_bytes
            # A few rows of a new table are written at once, to learn how long they are.
            is_unknown = not all(map(self._log.has_met, rows))
            if rows and (is_old or is_much or is_unknown):
                self._seal(request(self._next_number, SharedFiles(place.job)))
            waiting = self._log.waiting()
            is_much = sum(each.about_bytes for each in waiting) >= options.persist_threshold_bytes
            is_much |= is_unknown
            is_much |= not uploader.has_room  # others have filled it, and wait as well
            if waiting and (is_old or is_much) and now_s >= self._upload_again_s:
                uploader.submit(waiting, self._next_number)
            elif not rows and not waiting:
                self._sealed_s = now_s  # what comes now is not old yet
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
        return StateSnapshot(
            kind=LOGGED_KIND,
            handles={
                **{BASE_HANDLES + name: handle for name, handle in base.handles.items()},
                **handles,
            },
            attributes=msgspec.to_builtins(attributes),
            key_groups=(self._what.key_groups.first, self._what.key_groups.last),
            begun_from=begun_from,
        )


def _unknown(_: str) -> None:
    """How long a file is where nothing is written between checkpoints."""


def _result(inner: SnapshotFuture, future: SnapshotFuture) -> StateSnapshot:
    """What the inner backend's snapshot answers; it is given up with that for which it is."""
    try:
        future.wait_for(inner)
    except CancelledError:
        inner.cancel()
        raise
    return inner.result()


def _never_materialized(uid: str, failures: int, error: BaseException) -> Unavailable:
    return Unavailable(
        f"the state of operator {uid!r} cannot be materialized, and its log would grow for ever",
        expected="a materialization now and then",
        found=f"{failures} failures in a row; the last one: {error}",
        fix="See to what the last one says, or tolerate more: max_materialization_failures",
    )
