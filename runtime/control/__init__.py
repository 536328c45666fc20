"""Commands reach the drivers of running jobs of the same user, on this machine.

It imports `driver` and below.
"""

__all__: list[str] = []
