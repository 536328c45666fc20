"""A streaming DataFrame as a source: a query of Spark that pushes micro-batches into the slots.

A batch that Spark offers again is skipped. Spark writes `commits/n` after a batch has returned, and
a checkpoint may cut before that, so a restored query may begin with batch n once more, whose rows
are in the state: `_push` returns at once for every batch up to the restored one.

The beginning of a query is stored before its first batch: Spark resolves "latest" when it first
looks at its sources, and a checkpoint before the first batch waits for that. An attempt that fails
before any checkpoint hands the beginning to the next one of its run. The query's id is the run's
own: Spark stops a query when another one of its id starts, and two jobs may continue from one
position.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.backends.working_directory import WorkingDirectory
from holdfast.runtime.driver.run_parts import SourceOpening
from holdfast.runtime.driver.source_feed import Feed, Source
from holdfast.runtime.protocol.messages import Winner
from holdfast.runtime.spark.launching.spark_log import QuietLog, mark_jobs, query_tag
from holdfast.runtime.spark.sources.frame_checks import check_classic, check_rewindable
from holdfast.runtime.spark.sources.positions import (
    QUERY_KIND,
    LogKeeper,
    QueryPosition,
    read_position,
)
from holdfast.runtime.spark.sources.push import PUSHED_SCHEMA, Pushed
from holdfast.runtime.spark.sources.query_log import (
    position_files,
    read_files,
    with_query_id,
    write_files,
)
from holdfast.runtime.spark.sources.query_progress import (
    Idleness,
    has_looked,
    has_seen_all,
    query_settings,
)
from holdfast.runtime.spark.sources.source_errors import trouble_in
from holdfast.runtime.spark.sources.source_parts import (
    BACKLOG_BYTES,
    SourceTime,
    counted,
    pusher,
    use_long_batches,
)
from holdfast.runtime.stream import SourceFrame
from holdfast.storage import (
    Fenced,
    HoldfastError,
    Invalid,
    SavepointFolder,
    StateSnapshot,
    SystemEntropy,
    Unavailable,
)

__all__ = ["QuerySourcePlan", "check_streaming"]

_STOP_TIMEOUT_S = 20.0
_WATCH_S = 0.1
_FIRST_LOOK_S = 10.0


def _new_query_id() -> str:
    """A UUID of the kind that Spark gives its queries."""
    entropy = SystemEntropy()
    return str(UUID(entropy.token() + entropy.token(), version=4))


class _QueryIds:
    """Gives the queries of a run their ids: all attempts the same one, of which one runs at a time.

    It is never that of the restored position: Spark would stop a query of another run that has it.
    """

    def __init__(self) -> None:
        self._id = _new_query_id()
        self._is_taken = False

    def take(self) -> str:
        """The id of the next query.

        Another one if the last query was not seen to stop: Spark would wait for it, without a
        limit, when the next one starts, or stop that when the last one starts late.
        """
        if self._is_taken:
            self._id = _new_query_id()
        self._is_taken = True
        return self._id

    def give_back(self, query_id: str) -> None:
        """There is no query of this id any more."""
        if query_id == self._id:
            self._is_taken = False


@dataclass(frozen=True)
class QuerySourcePlan:
    """A streaming DataFrame, to be read from where a checkpoint says."""

    frame: SourceFrame
    _beginning: dict[str, bytes] = field(default_factory=dict, init=False, repr=False)
    """The files of the first query's log before its first batch: where the run began to read. A
    later attempt without a checkpoint begins there too, and not at what is "latest" by then."""
    _ids: _QueryIds = field(default_factory=_QueryIds, init=False, repr=False)

    def open(self, opening: SourceOpening) -> Source:
        return _QuerySource(self.frame, opening, self._beginning, self._ids)


class _QuerySource(Source):
    """One query, in a log of its own that is thrown away with the attempt."""

    def __init__(
        self,
        source: SourceFrame,
        opening: SourceOpening,
        beginning: dict[str, bytes],
        ids: _QueryIds,
    ) -> None:
        self.uid = opening.uid
        self._source = source
        self._opening = opening
        self._beginning = beginning
        self._position = QueryPosition(batch=None)
        self._keeper = LogKeeper(self.uid, opening.job)
        self._feed: Feed | None = None
        self._query: StreamingQuery | None = None
        self._pushing = threading.Lock()
        self._stopping = threading.Event()
        self._has_begun = threading.Event()
        """Spark has started the query, or could not."""
        self._time = SourceTime(source.watermark)
        self._idleness = Idleness(None, 0)
        self._ids, self._query_id = ids, ids.take()
        files = with_query_id(self._files_to_begin_with(opening.restored), self._query_id)
        self._directory = _make_log(self.uid, files)
        self._log = self._directory.path

    def start(self, feed: Feed) -> None:
        self._feed = feed
        if self._position.has_ended:
            feed.end()
            return
        if self._source.watermark is not None:
            idle_after_ms = self._source.watermark.idle_after_ms
            self._idleness = Idleness(idle_after_ms, self._opening.clock.monotonic_s())
        writer = (
            self._frame.writeStream.foreachBatch(self._push)
            .queryName(f"holdfast {self._opening.plan.job_id} {self.uid} {self._log.name[-8:]}")
            # Not `as_uri`: Hadoop takes each %20 for a part of the name, and Spark would write
            # its log into another folder than the one that is read here.
            .option("checkpointLocation", f"file://{self._log}")
        )
        if self._source.is_bounded:
            writer = writer.trigger(availableNow=True)
            feed.reads_backlog(is_read=True)
        try:
            with query_settings(self._frame.sparkSession):
                if feed.is_over:  # it ended while queries of other sources were being started
                    return
                self._query = writer.start()
        except Exception as error:  # noqa: BLE001 - whatever it is, the attempt fails by it
            self._report_failure(feed, error)
            return
        finally:
            self._has_begun.set()
        threading.Thread(target=self._watch, name=f"holdfast-{self.uid}", daemon=True).start()

    def position(self) -> QueryPosition:
        return self._position

    def store(
        self,
        position: Any,
        checkpoint_id: int,
        *,
        completed: int | None,
        savepoint: SavepointFolder | None = None,
    ) -> StateSnapshot:
        files: dict[str, bytes] = {}
        if not position.has_ended:
            if position.batch is None:
                self._await_first_look()
            files = self._log_files(position.batch)
        return StateSnapshot(
            kind=QUERY_KIND,
            handles=self._keeper.keep(
                checkpoint_id, files, completed=completed, savepoint=savepoint
            ),
            attributes=msgspec.to_builtins(position),
        )

    def stop(self) -> None:
        self._stopping.set()
        if self._query is not None and self._query.isActive:
            # An interrupted batch makes Spark log long stack traces; it is about to end anyway.
            if self._pushing.acquire(timeout=_STOP_TIMEOUT_S):
                # Before `stop`, which waits for a batch that may have begun and needs the lock.
                self._pushing.release()
            # Spark logs the interruption of a query as a failure.
            quiet = QuietLog(self._frame.sparkSession, query=self._query)
            with suppress(Exception):  # Spark may be gone, and logs nothing then
                quiet.begin()
            try:
                self._query.stop()
            finally:
                with suppress(Exception):
                    quiet.end()
        self._ids.give_back(self._query_id)
        with suppress(OSError, HoldfastError):  # the attempt ends; without it the next begins anew
            self._note_beginning()
        self._directory.close()

    @property
    def _frame(self) -> DataFrame:
        frame: DataFrame = self._source.frame
        return frame

    def _files_to_begin_with(self, restored: StateSnapshot | None) -> dict[str, bytes]:
        if restored is None:
            return self._beginning
        position = read_position(restored, QUERY_KIND, self.uid)
        assert isinstance(position, QueryPosition)
        self._position = position
        names = list(restored.handles)
        read = self._opening.restored_from.read_all(restored.handles.values())
        if self._opening.restored_from.url == self._opening.job.url:
            self._keeper.base = dict(restored.handles)
        return dict(zip(names, read, strict=True))

    def _log_files(self, batch: int | None) -> dict[str, bytes]:
        names = position_files(self._log, batch)
        return read_files(self._log, names, where=f"source {self.uid!r}")

    def _await_first_look(self) -> None:
        """Wait until the beginning of the query is fixed, but not forever for a silent source.

        Raises:
            Unavailable: there is no query, so a restore would begin at what is "latest" then.
        """
        # As long as Spark takes to start it: the checkpoint is not complete before, or expires.
        while not self._has_begun.is_set() and not self._stopping.wait(_WATCH_S):
            pass
        if self._query is None:
            raise Unavailable(
                "a query has no beginning yet, because Spark has not started it",
                where=f"source {self.uid!r}",
                fix="The next checkpoint is taken when it has started",
            )
        clock = self._opening.clock
        end_s = clock.monotonic_s() + _FIRST_LOOK_S
        while clock.monotonic_s() < end_s and not self._stopping.is_set():
            if has_looked(self._query):
                return
            self._stopping.wait(_WATCH_S)

    def _note_beginning(self) -> None:
        if self._opening.restored is None and not self._beginning:
            self._beginning.update(self._log_files(None))

    def _push(self, frame: DataFrame, batch: int) -> None:
        """One micro-batch, in Spark's thread. When it returns, Spark goes on to the next one."""
        feed = self._feed
        assert feed is not None
        with self._pushing:
            if self._position.batch is not None and batch <= self._position.batch:
                return  # admitted before the checkpoint, and not yet in Spark's `commits`
            if not self._stopping.is_set():
                try:
                    self._push_into(feed, frame, batch)
                    return
                except Fenced:
                    pass
                except Exception as error:  # noqa: BLE001 - whatever it is, the attempt fails by it
                    self._report_failure(feed, error)
        self._stopping.wait()  # a return would have Spark commit the batch, and begin another one

    def _report_failure(self, feed: Feed, error: Exception) -> None:
        query = self._query
        if query is not None and not query.isActive and query.exception() is None:
            error = self._stopped_from_outside()
        trouble = trouble_in(error)
        feed.fail(trouble.summary, traceback.format_exc(), fault=trouble.fault)

    def _push_into(self, feed: Feed, frame: DataFrame, batch: int) -> None:
        clock = self._opening.clock
        began_s = clock.monotonic_s()
        if self._position.batch is None:
            self._note_beginning()
        feed.await_room(BACKLOG_BYTES)
        pushed = [] if _has_no_splits(frame) else self._pushed(feed, frame, batch)
        rows = sum(each.rows for each in pushed)
        feed.admit(
            batch,
            [Winner(each.split, each.attempt) for each in pushed],
            rows=rows,
            watermark=self._time.after(each.latest for each in pushed),
            admitted=lambda: self._move(QueryPosition(batch=batch)),
        )
        self._idleness.was_read(began_s, clock.monotonic_s(), rows)

    def _pushed(self, feed: Feed, frame: DataFrame, batch: int) -> list[Pushed]:
        push = pusher(self._opening, self._source.watermark, feed.addresses, batch)
        mark_jobs(frame.sparkSession.sparkContext, query_tag(self._opening.credentials.label))
        use_long_batches(frame)  # its session is one that Spark has cloned for the query
        return counted(frame.mapInArrow(push, PUSHED_SCHEMA).collect())

    def _move(self, position: QueryPosition) -> None:
        self._position = position

    def _watch(self) -> None:
        """Report when the query ends or fails, and when the source is idle."""
        query, feed = self._query, self._feed
        assert query is not None
        assert feed is not None
        try:
            while query.isActive and not self._stopping.wait(_WATCH_S):
                self._watch_idleness(feed)
            if not self._stopping.is_set():
                if (error := query.exception()) is not None:
                    raise error
                if not (self._source.is_bounded and has_seen_all(query)):
                    raise self._stopped_from_outside()
                self._move(QueryPosition(batch=self._position.batch, has_ended=True))
                feed.end()
        except Fenced:
            return
        except HoldfastError as error:
            feed.fail(str(error), "")
        except Exception as error:  # noqa: BLE001 - Spark raises many kinds
            if not self._stopping.is_set():
                trouble = trouble_in(error)
                feed.fail(trouble.summary, str(error), fault=trouble.fault)

    def _watch_idleness(self, feed: Feed) -> None:
        if not self._idleness.may_be or not self._pushing.acquire(blocking=False):
            return  # a batch is being read or held back: the source is not silent
        try:
            if self._idleness.is_due(self._opening.clock.monotonic_s()):
                feed.idle()
                self._idleness.was_reported()
        finally:
            self._pushing.release()

    def _stopped_from_outside(self) -> HoldfastError:
        return Unavailable(
            "the query was stopped from outside before its end",
            where=f"source {self.uid!r}",
            fix="Cancel the job by its handle; leave its queries out when you stop others",
        )


def _has_no_splits(frame: DataFrame) -> bool:
    """Whether a micro-batch has nothing to read, as Spark has planned it: no job is needed."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    # What Spark hands to `foreachBatch`; whatever else it were, is read.
    is_planned = plan.getClass().getSimpleName() == "LogicalRDD"
    return bool(is_planned and plan.rdd().getNumPartitions() == 0)


def _make_log(uid: str, files: Mapping[str, bytes]) -> WorkingDirectory:
    """A new folder for a query's log, with these files.

    Raises:
        Unavailable: there is no room, or no right to write; names the place.
    """
    log: WorkingDirectory | None = None
    try:
        log = WorkingDirectory(kind="query")
        write_files(log.path, files)
    except (OSError, Unavailable) as error:
        if log is not None:
            log.close()
        place = log.path if log is not None else getattr(error, "where", "")
        raise Unavailable(
            "the log of a query cannot be written",
            where=f"source {uid!r}, {place or 'the folder for temporary files'}",
            found=str(error),
            fix="Make room there, or set TMPDIR to another folder",
        ) from error
    return log


def check_streaming(frame: DataFrame, uid: str) -> None:
    """Make sure that a DataFrame can be a source that is read as it grows.

    Raises:
        Invalid: it is of Spark Connect, is not streaming, keeps state of its own in Spark, or has
            Spark remove what it has read.
    """
    check_classic(frame, uid)
    if not frame.isStreaming:
        raise Invalid(
            f"source {uid!r} is not a streaming DataFrame",
            expected="one from spark.readStream",
            found="a DataFrame of a fixed size",
            fix="Use from_batch, or read it with spark.readStream",
        )
    check_rewindable(frame, uid)
