"""Schema evolution: whether and how values written under one schema become values of another.

Imports `values`.
"""

__all__: list[str] = []
