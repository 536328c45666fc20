"""The neutral form of rows: blocks of columns, and changes as blocks.

Imports `keys` and `values`.
"""

__all__: list[str] = []
