"""Slots as a Spark job: the barrier stage, what is pickled for it, signals, Spark's log.

It imports `spark.sessions`, and layers below `spark`.
"""

__all__: list[str] = []
