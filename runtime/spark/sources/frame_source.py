"""A DataFrame of a fixed size as a source: its splits are pushed a few at a time, in order.

A checkpoint can cut between any two splits, and a restore continues after the last one done. There
is no watermark before the end of the source: rows of splits are in no order of time, so a watermark
after each split would make most rows of the others late. Everything is planned in a clone of the
user's session, whose own settings stay unchanged.
"""

from __future__ import annotations

import logging
import threading
import traceback
from dataclasses import dataclass, field
from typing import Any

import msgspec
from pyspark.sql import DataFrame

from holdfast.runtime.driver.run_parts import SourceOpening
from holdfast.runtime.driver.source_feed import Feed, Source
from holdfast.runtime.protocol.messages import Winner
from holdfast.runtime.spark.launching.spark_log import mark_jobs, source_tag
from holdfast.runtime.spark.sources.frame_checks import check_classic
from holdfast.runtime.spark.sources.positions import FRAME_KIND, FramePosition, read_position
from holdfast.runtime.spark.sources.push import Pushed
from holdfast.runtime.spark.sources.source_errors import trouble_in
from holdfast.runtime.spark.sources.source_parts import BACKLOG_BYTES, counted, pusher
from holdfast.runtime.spark.sources.splits import Division
from holdfast.runtime.stream import SourceFrame
from holdfast.storage import Fenced, Invalid, SavepointFolder, StateSnapshot, SystemEntropy

__all__ = ["FrameSourcePlan", "check_batch"]

_STOP_TIMEOUT_S = 30.0
_STOP_TRIES = 20

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FrameSourcePlan:
    """A DataFrame of a fixed size, to be read from where a checkpoint says.

    Raises:
        Invalid: it is to become idle, which only a stream can.
    """

    frame: SourceFrame
    _division: Division = field(init=False, repr=False)

    def __post_init__(self) -> None:
        watermark = self.frame.watermark
        if watermark is not None and watermark.idle_after_ms is not None:
            raise Invalid(
                f"a DataFrame of a fixed size is never idle, so idle_after means nothing for "
                f"column {watermark.column!r}",
                expected="idle_after with from_stream only",
                found=f"{watermark.idle_after_ms} ms with from_batch",
                fix="Leave it out: event time of such a source goes to its end when it ends",
            )
        object.__setattr__(self, "_division", Division(self.frame.frame, SystemEntropy()))

    def open(self, opening: SourceOpening) -> Source:
        return _FrameSource(self.frame, self._division, opening)


class _FrameSource(Source):
    """Each split is a batch, so a checkpoint can cut between any two of them."""

    def __init__(self, source: SourceFrame, division: Division, opening: SourceOpening) -> None:
        self.uid = opening.uid
        self._source = source
        self._division = division
        self._opening = opening
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._restored: FramePosition | None = None
        self._position = FramePosition(splits_done=0, splits=0, fingerprint="")
        if opening.restored is not None:
            restored = read_position(opening.restored, FRAME_KIND, self.uid)
            assert isinstance(restored, FramePosition)
            self._restored = self._position = restored

    def start(self, feed: Feed) -> None:
        self._thread = threading.Thread(
            target=self._feed_all, args=(feed,), name=f"holdfast-{self.uid}", daemon=True
        )
        self._thread.start()

    def position(self) -> FramePosition:
        return self._position

    def store(
        self,
        position: Any,
        checkpoint_id: int,
        *,
        completed: int | None,
        savepoint: SavepointFolder | None = None,
    ) -> StateSnapshot:
        return StateSnapshot(kind=FRAME_KIND, attributes=msgspec.to_builtins(position))

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            # Repeatedly: a job that is just being submitted cannot be cancelled yet. It would wait
            # for ever for slots that are gone, in task slots that the next attempt needs.
            for _ in range(_STOP_TRIES):
                self._tagged().cancelJobsWithTag(self._tag)
                self._thread.join(_STOP_TIMEOUT_S / _STOP_TRIES)
                if not self._thread.is_alive():
                    return

    @property
    def _tag(self) -> str:
        return source_tag(self._opening.credentials.label)

    def _tagged(self) -> Any:
        frame: DataFrame = self._source.frame
        return frame.sparkSession.sparkContext

    def _feed_all(self, feed: Feed) -> None:
        try:
            if not self._position.has_ended:
                feed.reads_backlog(is_read=True)
                mark_jobs(self._tagged(), self._tag)
                self._push_splits(feed)
            if not self._stopping.is_set():
                self._move(msgspec.structs.replace(self._position, has_ended=True))
                feed.end()
        except Fenced:
            return
        except Invalid as error:
            feed.fail(str(error), "", is_fatal=True)
        except Exception as error:  # noqa: BLE001 - Spark raises many kinds
            if not self._stopping.is_set():
                trouble = trouble_in(error)
                feed.fail(trouble.summary, traceback.format_exc(), fault=trouble.fault)

    def _push_splits(self, feed: Feed) -> None:
        division = self._division
        if division.plan() and not division.is_repeatable:
            _logger.warning(
                "source %r comes from a shuffle or the like, so only this run knows its splits: "
                "after a failure the job continues with them, but a new run cannot restore a "
                "checkpoint that is in the middle of them. Write it to files and read those",
                self.uid,
            )
        push = pusher(self._opening, self._source.watermark, feed.addresses, None)
        splits, fingerprint = division.pushed_by(push)
        count = splits.getNumPartitions()
        self._begin(count, fingerprint)
        context = self._tagged()
        wave = max(1, context.defaultParallelism)
        for first in range(self._position.splits_done, count, wave):
            if self._stopping.is_set():
                return
            feed.await_room(BACKLOG_BYTES)
            numbers = list(range(first, min(first + wave, count)))
            for pushed in sorted(counted(context.runJob(splits, list, numbers))):
                self._admit(feed, pushed)

    def _admit(self, feed: Feed, pushed: Pushed) -> None:
        done = msgspec.structs.replace(self._position, splits_done=pushed.split + 1)
        feed.admit(
            pushed.split,
            [Winner(pushed.split, pushed.attempt)],
            rows=pushed.rows,
            watermark=None,
            admitted=lambda: self._move(done),
        )

    def _begin(self, splits: int, fingerprint: str) -> None:
        """Set the position; splits that are done may be skipped only if they are the same ones."""
        before = self._restored
        done = 0 if before is None else before.splits_done
        if before is not None and done and before.fingerprint != fingerprint:
            if not self._division.is_repeatable:
                raise self._not_repeatable(before)
            raise Invalid(
                f"source {self.uid!r} is not split as it was when the checkpoint was taken",
                expected=f"the same files or rows in {before.splits} splits, of which {done} are "
                "done",
                found=f"{splits} splits, or files that have changed, come or gone",
                fix="Restore with the same input, settings and cores, or start the job afresh",
            )
        self._move(FramePosition(splits_done=done, splits=splits, fingerprint=fingerprint))

    def _not_repeatable(self, before: FramePosition) -> Invalid:
        return Invalid(
            f"source {self.uid!r} was read in part when the checkpoint was taken, and only the run "
            "that took it knows which rows each split has",
            expected="a DataFrame of files, a range or rows of the driver, with no shuffle or the "
            "like after it",
            found=f"{before.splits_done} of {before.splits} splits done, of another kind",
            fix="Write the DataFrame to files and read those, or start the job afresh",
        )

    def _move(self, position: FramePosition) -> None:
        self._position = position


def check_batch(frame: DataFrame, uid: str) -> None:
    """Make sure that a DataFrame can be a source that is read once.

    Raises:
        Invalid: it is of Spark Connect, or streaming.
    """
    check_classic(frame, uid)
    if frame.isStreaming:
        raise Invalid(f"source {uid!r} is a streaming DataFrame", fix="Use from_stream")
