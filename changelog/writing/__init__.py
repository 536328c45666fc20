"""Writing pieces of the log while the job runs: uploads, local copies, ways to store them.

Imports `change_sets`, `recording` and `options`.
"""

from __future__ import annotations

__all__: list[str] = []
