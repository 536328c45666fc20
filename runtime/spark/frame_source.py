"""A DataFrame of a fixed size as a source: its splits are pushed a few at a time, in order."""

from __future__ import annotations

import hashlib
import threading
import traceback
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import DataFrame

from holdfast.runtime.driver.feed import Feed, Source
from holdfast.runtime.driver.run import SourceOpening
from holdfast.runtime.spark.positions import FRAME_KIND, FramePosition, read_position
from holdfast.runtime.spark.push import PUSHED_SCHEMA, Pushed
from holdfast.runtime.spark.query_source import summary_of
from holdfast.runtime.spark.source_parts import (
    BACKLOG_BYTES,
    SourceTime,
    counted,
    long_batches,
    pusher,
)
from holdfast.runtime.staging import Winner
from holdfast.runtime.stream import SourceFrame
from holdfast.storage import Fenced, Invalid, StateSnapshot

__all__ = ["FrameSourcePlan"]

_STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class FrameSourcePlan:
    """A DataFrame of a fixed size, to be read from where a checkpoint says."""

    frame: SourceFrame

    def open(self, opening: SourceOpening) -> Source:
        return _FrameSource(self.frame, opening)


class _FrameSource(Source):
    """Each split is a batch. So a checkpoint can cut between any two of them."""

    def __init__(self, source: SourceFrame, opening: SourceOpening) -> None:
        self.uid = opening.uid
        self._source = source
        self._opening = opening
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._time = SourceTime(source.watermark)
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

    def store(self, position: Any, checkpoint_id: int) -> StateSnapshot:
        return StateSnapshot(kind=FRAME_KIND, attributes=msgspec.to_builtins(position))

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._tagged().cancelJobsWithTag(self._tag)
            self._thread.join(_STOP_TIMEOUT_S)

    @property
    def _tag(self) -> str:
        return f"holdfast-source-{self._opening.credentials.token[:12]}"

    def _tagged(self) -> Any:
        frame: DataFrame = self._source.frame
        return frame.sparkSession.sparkContext

    def _feed_all(self, feed: Feed) -> None:
        try:
            if not self._position.has_ended:
                self._tagged().addJobTag(self._tag)
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
                feed.fail(summary_of(error), traceback.format_exc())

    def _push_splits(self, feed: Feed) -> None:
        frame: DataFrame = self._source.frame
        push = pusher(self._opening, self._source.watermark, feed.addresses, None)
        with long_batches(frame):
            splits = frame.mapInArrow(push, PUSHED_SCHEMA).rdd
        count = splits.getNumPartitions()
        self._check_same(frame, count)
        context = frame.sparkSession.sparkContext
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
            watermark=self._time.after([pushed.latest]),
            admitted=lambda: self._move(done),
        )

    def _check_same(self, frame: DataFrame, splits: int) -> None:
        """Splits that were done can only be left out if they are the same ones as before."""
        found = _fingerprint(frame, splits)
        before = self._restored
        if before is not None and before.splits_done and before.fingerprint != found:
            raise Invalid(
                f"source {self.uid!r} is not split as it was when the checkpoint was taken",
                expected=f"the same files in {before.splits} splits",
                found=f"{splits} splits, or other files or settings",
                fix="Restore with the same input and the same cores, or start the job afresh",
            )
        done = 0 if before is None else before.splits_done
        self._move(FramePosition(splits_done=done, splits=splits, fingerprint=found))

    def _move(self, position: FramePosition) -> None:
        self._position = position


def _fingerprint(frame: DataFrame, splits: int) -> str:
    """What the division of the rows into splits depends on."""
    context = frame.sparkSession.sparkContext
    facts = [str(splits), str(context.defaultParallelism), *sorted(frame.inputFiles())]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]
