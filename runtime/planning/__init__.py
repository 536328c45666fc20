"""The job as its user wrote it (the graph), and as slots run it (the plan).

It imports `protocol` and all below.
"""

__all__: list[str] = []
