"""How often a streaming query looks whether its source has something new."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

__all__ = ["POLLING_MS", "slow_polling"]

POLLING_MS = 100
"""Spark's own ten milliseconds are some eighty looks a second, each of which may list a bucket."""
_POLLING = "spark.sql.streaming.pollingDelay"
_lock = threading.Lock()


@contextmanager
def slow_polling(spark: SparkSession) -> Iterator[None]:
    """A query that starts inside looks so often while its source is silent.

    Unless the session says how often. Its setting is as before afterwards: a query reads it once.
    """
    with _lock:
        is_said = _POLLING in spark.conf.getAll
        if not is_said:
            spark.conf.set(_POLLING, f"{POLLING_MS}ms")
        try:
            yield
        finally:
            if not is_said:
                spark.conf.unset(_POLLING)
