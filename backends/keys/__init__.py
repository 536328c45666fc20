"""Keys of state: one codec for each type, the stable hash, and key groups.

Imports `values`.
"""

__all__: list[str] = []
