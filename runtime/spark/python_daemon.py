"""Python daemon of executors on this machine, which imports what slots need before it forks them.

Spark's own daemon forks workers that have imported nothing. So each slot of each attempt, and each
task that pushes rows beside them, begins with a second of imports, and with pages of its own for
what they load. Spark leaves it so because libraries that are imported may start threads, which a
fork does not copy; of those imported here only OpenBLAS does, and it stops its threads at a fork.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

from pyspark.daemon import manager

__all__ = ["import_needed"]

_WORKER = "pyspark.worker"
_NEEDED = (
    _WORKER,
    "holdfast.runtime.slot_process",
    "holdfast.runtime.spark.launching.cluster",
    "holdfast.runtime.spark.sources.push",
)


def import_needed() -> None:
    """Import all that the workers are to have."""
    for name in _NEEDED:
        import_module(name)
    numpy = import_module("numpy")
    # Otherwise all workers would draw the same numbers. Python's own `random` sees to itself.
    os.register_at_fork(after_in_child=numpy.random.seed)
    gc.freeze()  # or the first collection in a worker would copy the pages that all share


if __name__ == "__main__":
    if sys.argv[1:2] == [_WORKER]:  # others, such as one that looks up data sources, need none
        import_needed()
    manager()
