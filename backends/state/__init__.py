"""What users hold: descriptors, state types, timers, time to live.

Imports `tables`, `arrow` and below.
"""

__all__: list[str] = []
