"""How many task slots a session of Spark has, and how many it can come to have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["most_task_slots", "task_slots"]

_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")


def task_slots(context: Any) -> int:
    """How many tasks can run at once, by the executors that have registered."""
    jvm = context._jsc.sc()
    profile = jvm.resourceProfileManager().defaultResourceProfile()
    return int(jvm.maxNumConcurrentTasks(profile))


def most_task_slots(master: str, conf: Mapping[str, str], there: int) -> int | None:
    """How many there will be at most, once all executors have come; None if nothing says so.

    Of a local master that is what is `there`.
    """
    if master == "local" or master.startswith("local["):
        return there
    if found := _LOCAL_CLUSTER.fullmatch(master):
        cores = int(found[1]) * int(found[2])
    elif master.startswith("spark://"):
        cores = _number(conf, "spark.cores.max")
    else:
        instances = _number(conf, "spark.executor.instances")
        cores = instances * _number(conf, "spark.executor.cores")
    return max(there, cores // max(1, _number(conf, "spark.task.cpus"))) if cores else None


def _number(conf: Mapping[str, str], name: str) -> int:
    """What a setting says; 0 if it says nothing that can be counted with."""
    text = conf.get(name, "").strip()
    return int(text) if text.isdecimal() else 0
