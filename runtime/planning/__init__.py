"""The job as its user wrote it (the graph), and as slots run it (the plan).

It imports `protocol` and all below.
"""

from __future__ import annotations

__all__: list[str] = []
