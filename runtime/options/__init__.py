"""The options of a job: one table of all rooms' options, and which source of a value counts.

It imports nothing here, since commands that need no options start faster without the table.
"""

__all__: list[str] = []
