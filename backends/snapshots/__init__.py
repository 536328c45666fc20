"""Snapshots of keyed state in every form: writing, restoring, migrating.

What reads a snapshot raises `Corrupt`, which names the file, where one is missing or damaged, and
`Unavailable` where the storage does not answer.

Imports `tables`, `schema`, `arrow` and below.
"""

__all__: list[str] = []
