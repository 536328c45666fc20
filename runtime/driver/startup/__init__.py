"""How a run begins: its restore point, the checks before it, and notes for the log.

It imports `driver.restoring` and `driver.claiming`, and layers below the driver.
"""

__all__: list[str] = []
