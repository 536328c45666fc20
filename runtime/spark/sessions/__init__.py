"""Spark sessions: which one a job gets, and whether it has what the job needs.

It imports no other folder of `spark`.
"""

__all__: list[str] = []
