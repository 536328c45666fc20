"""The table contract: what a backend supplies and state is built on.

Imports `blocks` and below.
"""

__all__: list[str] = []
