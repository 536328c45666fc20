"""Slots as one barrier job of Spark: it starts them all or none, and notices when one dies.

Spark would start a failed stage again by itself. Its slots would come from nothing, beside sources
that have gone on: so a second attempt of the stage is refused, and the job starts as a whole.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

from holdfast.runtime.api.addresses import Listening, bare_host
from holdfast.runtime.driver.cluster_capacity import TaskSlotCount
from holdfast.runtime.driver.events import EventQueue, SlotsEnded, TaskSlotsFound
from holdfast.runtime.driver.failure.lost_slots import shortened
from holdfast.runtime.slot_process import SlotFailed, SlotLaunch, host_slot
from holdfast.runtime.spark.launching.job_network import slot_listening
from holdfast.runtime.spark.launching.spark_log import QuietLog, mark_jobs, query_tag, source_tag
from holdfast.runtime.spark.sessions.task_slots import SlotHold, task_slots
from holdfast.storage import Fenced

__all__ = ["SparkCluster", "SparkDeployment"]

_CANCEL_TIMEOUT_S = 30.0
_TOLD_CHARACTERS = 4000
_ROOM_LOOK_S = 0.2
_QUIET_END_S = 2.0
"""Slots that were told to stop do so by themselves, which looks better in Spark's log."""


@dataclass(frozen=True)
class _SlotTask:
    """What each task of the job runs: a slot, from the first moment to the last."""

    launch: SlotLaunch

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Columns that came by the network lie anywhere in memory. Arrow's engine shall copy those
        # that lie badly, where by default it computes and complains.
        os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "reallocate")
        context = BarrierTaskContext.get()
        slot = context.partitionId()
        seen_as = bare_host(context.getTaskInfos()[slot].address.rpartition(":")[0])
        for _ in batches:  # Spark waits for a task to read its input
            pass
        called_off: str | None = None
        try:
            host_slot(self.launch, slot, slot_listening(self.launch.network, seen_as))
        except (Fenced, SlotFailed) as error:
            # No failure of a task: Spark would log its stack, and those of the other slots, which
            # it would kill. The driver knows, and calls them off.
            called_off = str(error)
        yield pa.RecordBatch.from_pydict({"called_off": pa.array([called_off], pa.string())})


class SparkDeployment:
    """The slots of one attempt, in a job of their own that a thread waits for."""

    def __init__(
        self,
        spark: SparkSession,
        task: _SlotTask,
        events: EventQueue,
        hold: SlotHold,
        *,
        tag: str,
        name: str,
    ) -> None:
        self._spark = spark
        self._task = task
        self._hold = hold
        self._stopping = threading.Event()
        label = task.launch.credentials.label
        self._log = QuietLog(spark, (tag, source_tag(label), query_tag(label)))
        self._events = events
        self._tag = tag
        self._name = name
        self._thread = threading.Thread(
            target=self._run, name=f"holdfast-slots-{name}", daemon=True
        )
        self._thread.start()

    def ending(self) -> None:
        """Have Spark not tell of it as of failures."""
        with suppress(Exception):  # Spark may be gone; then it says nothing either
            self._log.begin()

    def cancel(self) -> None:
        """Stop the job, if it runs; returns when its thread has ended, or after half a minute."""
        self._stopping.set()
        try:
            if self._thread.is_alive():
                self._thread.join(_QUIET_END_S)
            if self._thread.is_alive():
                self._spark.sparkContext.cancelJobsWithTag(self._tag)
                self._thread.join(_CANCEL_TIMEOUT_S)
        finally:
            with suppress(Exception):
                self._log.end()

    def _run(self) -> None:
        context = self._spark.sparkContext
        slots = self._task.launch.plan.parallelism
        error: str | None = None
        try:
            if not self._has_room(context):
                return
            mark_jobs(context, self._tag)
            context.setJobDescription(f"Holdfast: slots of {self._name}")
            one_each = self._spark.range(0, slots, 1, slots)
            ended = one_each.mapInArrow(self._task, "called_off string", barrier=True).collect()
            error = next((row.called_off for row in ended if row.called_off is not None), None)
        except Exception as caught:  # noqa: BLE001 - Spark raises many kinds
            error = shortened(str(caught), _TOLD_CHARACTERS)
        finally:
            self._hold.leave()
            self._events.put(SlotsEnded(error))

    def _has_room(self, context: Any) -> bool:
        """Wait until there are task slots for all slots and for sources; False if it is called off.

        Spark would wait too, but looks only every quarter of a minute, and at first would not know
        of other jobs. The caller bounds the wait.
        """
        while not self._hold.enter(task_slots(context)):
            if self._stopping.wait(_ROOM_LOOK_S):
                return False
        self._events.put(TaskSlotsFound())
        return True


class SparkCluster:
    """Runs slots in a Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        job: str,
        driver: Listening,
        hold: SlotHold,
    ) -> None:
        self._spark = spark
        self._job = job
        self._hold = hold
        self.driver = driver

    def deploy(self, launch: SlotLaunch, events: EventQueue) -> SparkDeployment:
        """Start all slots of an attempt once task slots are free; see `Cluster.deploy`."""
        name = f"{self._job}, attempt {launch.attempt}"
        tag = f"holdfast-{launch.credentials.label}-{launch.attempt}"
        return SparkDeployment(
            self._spark, _SlotTask(launch), events, self._hold, tag=tag, name=name
        )

    def room(self) -> TaskSlotCount | None:
        """The task slots that the job needs beside other jobs that run, and those that there are.

        None: Spark does not say.
        """
        try:
            there = task_slots(self._spark.sparkContext)
        except Exception:  # noqa: BLE001 - it is being stopped, which others notice
            return None
        return TaskSlotCount(self._hold.needed(), there)

    def close(self) -> None:
        self._hold.release()
