"""A streaming DataFrame as a source: a query of Spark that pushes micro-batches into the slots."""

from __future__ import annotations

import shutil
import tempfile
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.runtime.driver.feed import Feed, Source
from holdfast.runtime.driver.run import SourceOpening
from holdfast.runtime.spark.positions import QUERY_KIND, LogKeeper, QueryPosition, read_position
from holdfast.runtime.spark.push import PUSHED_SCHEMA
from holdfast.runtime.spark.query_log import position_files, read_files, write_files
from holdfast.runtime.spark.source_parts import (
    BACKLOG_BYTES,
    SourceTime,
    counted,
    long_batches,
    pusher,
)
from holdfast.runtime.staging import Winner
from holdfast.runtime.stream import SourceFrame
from holdfast.storage import Fenced, HoldfastError, Invalid, StateSnapshot

__all__ = ["QuerySourcePlan", "check_streaming", "summary_of"]

_STOP_TIMEOUT_S = 20.0
_WATCH_S = 0.1


@dataclass(frozen=True)
class QuerySourcePlan:
    """A streaming DataFrame, to be read from where a checkpoint says."""

    frame: SourceFrame

    def open(self, opening: SourceOpening) -> Source:
        return _QuerySource(self.frame, opening)


class _QuerySource(Source):
    """One query, in a log of its own that is thrown away with the attempt."""

    def __init__(self, source: SourceFrame, opening: SourceOpening) -> None:
        self.uid = opening.uid
        self._source = source
        self._opening = opening
        self._position = QueryPosition(batch=None)
        self._keeper = LogKeeper(self.uid, opening.job, {})
        self._log = Path(tempfile.mkdtemp(prefix="holdfast-query-"))
        self._feed: Feed | None = None
        self._query: StreamingQuery | None = None
        self._pushing = threading.Lock()
        self._stopping = threading.Event()
        self._time = SourceTime(source.watermark)
        self._rows_at_s = opening.clock.monotonic_s()
        self._is_idle = False
        if opening.restored is not None:
            self._restore(opening.restored)

    def start(self, feed: Feed) -> None:
        self._feed = feed
        if self._position.has_ended:
            feed.end()
            return
        writer = (
            self._frame.writeStream.foreachBatch(self._push)
            .queryName(f"holdfast {self._opening.plan.job_id} {self.uid} {self._log.name[-8:]}")
            .option("checkpointLocation", self._log.as_uri())
        )
        if self._source.is_bounded:
            writer = writer.trigger(availableNow=True)
        self._query = writer.start()
        threading.Thread(target=self._watch, name=f"holdfast-{self.uid}", daemon=True).start()

    def position(self) -> QueryPosition:
        return self._position

    def store(self, position: Any, checkpoint_id: int) -> StateSnapshot:
        files: dict[str, bytes] = {}
        if position.batch is not None and not position.has_ended:
            names = position_files(self._log, position.batch)
            files = read_files(self._log, names, where=f"source {self.uid!r}")
        return StateSnapshot(
            kind=QUERY_KIND,
            handles=self._keeper.keep(checkpoint_id, files),
            attributes=msgspec.to_builtins(position),
        )

    def stop(self) -> None:
        self._stopping.set()
        if self._query is not None and self._query.isActive:
            # To interrupt a batch makes Spark write long stack traces; it is about to end anyway.
            if self._pushing.acquire(timeout=_STOP_TIMEOUT_S):
                # Before the call: it waits for a batch that may have begun, and would wait for us.
                self._pushing.release()
            self._query.stop()
        shutil.rmtree(self._log, ignore_errors=True)

    @property
    def _frame(self) -> DataFrame:
        frame: DataFrame = self._source.frame
        return frame

    def _restore(self, restored: StateSnapshot) -> None:
        position = read_position(restored, QUERY_KIND, self.uid)
        assert isinstance(position, QueryPosition)
        self._position = position
        names = list(restored.handles)
        read = self._opening.restored_from.read_all(restored.handles.values())
        write_files(self._log, dict(zip(names, read, strict=True)))
        if self._opening.restored_from.url == self._opening.job.url:
            self._keeper.known = dict(restored.handles)

    def _push(self, frame: DataFrame, batch: int) -> None:
        """One micro-batch, in Spark's thread. Its end makes Spark go on to the next."""
        feed = self._feed
        assert feed is not None
        with self._pushing:
            if self._position.batch is not None and batch <= self._position.batch:
                return  # it was admitted before the checkpoint; Spark did not get to note that
            if not self._stopping.is_set():
                try:
                    self._push_into(feed, frame, batch)
                    return
                except Fenced:
                    pass
                except Exception as error:  # noqa: BLE001 - whatever it is, the attempt fails by it
                    feed.fail(summary_of(error), traceback.format_exc())
        self._stopping.wait()  # nothing of this query counts any more

    def _push_into(self, feed: Feed, frame: DataFrame, batch: int) -> None:
        feed.await_room(BACKLOG_BYTES)
        push = pusher(self._opening, self._source.watermark, feed.addresses, batch)
        with long_batches(frame):
            pushed = counted(frame.mapInArrow(push, PUSHED_SCHEMA).collect())
        rows = sum(each.rows for each in pushed)
        if rows:
            self._rows_at_s = self._opening.clock.monotonic_s()
            self._is_idle = False
        feed.admit(
            batch,
            [Winner(each.split, each.attempt) for each in pushed],
            rows=rows,
            watermark=self._time.after(each.latest for each in pushed),
            admitted=lambda: self._move(QueryPosition(batch=batch)),
        )

    def _move(self, position: QueryPosition) -> None:
        self._position = position

    def _watch(self) -> None:
        """Notice when the query ends or fails, and when the source is idle."""
        query, feed = self._query, self._feed
        assert query is not None
        assert feed is not None
        try:
            while query.isActive and not self._stopping.wait(_WATCH_S):
                self._watch_idleness(feed)
            if not self._stopping.is_set():
                if (error := query.exception()) is not None:
                    raise error
                self._move(QueryPosition(batch=self._position.batch, has_ended=True))
                feed.end()
        except Fenced:
            return
        except HoldfastError as error:
            feed.fail(str(error), "")
        except Exception as error:  # noqa: BLE001 - Spark raises many kinds
            if not self._stopping.is_set():
                feed.fail(summary_of(error), str(error))

    def _watch_idleness(self, feed: Feed) -> None:
        watermark = self._source.watermark
        if watermark is None or watermark.idle_after_ms is None or self._is_idle:
            return
        silent_s = self._opening.clock.monotonic_s() - self._rows_at_s
        if silent_s * 1000 >= watermark.idle_after_ms:
            self._is_idle = True
            feed.idle()


def summary_of(error: BaseException) -> str:
    """The line that says most. An error of the house in a task comes as text of Spark's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("holdfast.")]
    return ours[-1] if ours else (lines[0] if lines else repr(error))


def check_streaming(frame: DataFrame, uid: str) -> None:
    """Make sure that a DataFrame can be a source.

    Raises:
        Invalid: it is not streaming, or keeps state of its own in Spark.
    """
    if not frame.isStreaming:
        raise Invalid(
            f"source {uid!r} is not a streaming DataFrame",
            expected="one from spark.readStream",
            found="a DataFrame of a fixed size",
            fix="Use from_batch, or read it with spark.readStream",
        )
    keeping = _first_with_state(frame._jdf.queryExecution().analyzed())
    if keeping is not None:
        raise Invalid(
            f"source {uid!r} keeps state of its own in Spark, which no checkpoint of Holdfast has",
            expected="selections, filters, maps, and joins with DataFrames of a fixed size",
            found=keeping,
            fix="Do that part of the work in the job, by key_by and a function with state",
        )


_WITH_STATE = (
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "FlatMapGroupsInPandasWithState",
    "FlatMapGroupsWithState",
    "GlobalLimit",
    "TransformWithState",
    "TransformWithStateInPandas",
    "TransformWithStateInPySpark",
)


def _first_with_state(plan: Any) -> str | None:
    """The name of an operator in a plan of Spark that keeps state from batch to batch."""
    if not plan.isStreaming():
        return None
    found = plan.children()
    children = [found.apply(place) for place in range(found.size())]
    name = str(plan.nodeName())
    if name in _WITH_STATE:
        return name
    if name == "Join" and all(child.isStreaming() for child in children):
        return "Join of two streams"
    return next(filter(None, map(_first_with_state, children)), None)
