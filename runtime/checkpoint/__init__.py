"""Decisions about checkpoints of a running job: when to begin, complete or abort one.

It imports `protocol`, `api` and `columns`, does no I/O and has no threads.
"""

__all__: list[str] = []
