"""Snapshots of keyed state in every form: writing, restoring, migrating.

Imports `tables`, `schema`, `arrow` and below.
"""

__all__: list[str] = []
