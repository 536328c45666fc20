"""Whether what a job is made of can get into slots: tried before anything is taken over for it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

from holdfast.backends import StateBackend
from holdfast.runtime.planning.job_plan import JobPlan
from holdfast.runtime.spark.launching.pickling import pickled_by_spark
from holdfast.storage import CheckpointStorage, Invalid

__all__ = ["check_travels"]


def check_travels(plan: JobPlan, backend: StateBackend, storage: CheckpointStorage) -> None:
    """Pickle, as Spark will, what slots are started with. Functions and sinks were tried before.

    Raises:
        Invalid: something cannot be pickled; names it.
    """
    for what, part in _parts(plan, backend, storage):
        try:
            pickled_by_spark(part)
        except Exception as error:
            raise Invalid(
                f"{what} cannot be pickled, so it cannot get into slots",
                expected="settings, in attributes that can be pickled",
                found="".join(traceback.format_exception_only(error)).strip(),
                fix="Keep settings only, and make what cannot travel (locks, connections, clients) "
                "where it is used, or leave it out in __getstate__",
            ) from error


def _parts(
    plan: JobPlan, backend: StateBackend, storage: CheckpointStorage
) -> Iterator[tuple[str, Any]]:
    yield f"the state backend {type(backend).__qualname__}", backend
    yield f"the checkpoint storage {type(storage).__qualname__}", storage
    yield "the job", plan
