"""Why an attempt failed, and whether the same failure repeats.

It imports `driver.outcomes`, and layers below the driver.
"""

__all__: list[str] = []
