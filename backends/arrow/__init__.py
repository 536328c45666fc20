"""State as typed Arrow columns, and Arrow batches in and out of state.

Imports `blocks` and below.
"""

__all__: list[str] = []
