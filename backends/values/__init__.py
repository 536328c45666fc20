"""Values of state: their exact types, checks, bytes and type descriptions.

Imports no other folder here.
"""

__all__: list[str] = []
