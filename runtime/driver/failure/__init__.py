"""Why an attempt failed, and whether the same failure repeats.

It imports `driver.outcomes`, and layers below the driver.
"""

from __future__ import annotations

__all__: list[str] = []
