"""The driver of a job: starts its slots and sources, coordinates checkpoints, restarts it.

It imports `slot_process`, `network`, `checkpoint` and all below, and no Spark: the cluster and the
sources are passed in.
"""

__all__: list[str] = []
