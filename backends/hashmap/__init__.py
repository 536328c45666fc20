"""The hashmap backend: dicts of Python objects in memory.

Imports `interface`, `tables` and below.
"""

from holdfast.backends.hashmap.backend import HashMapStateBackend

__all__ = ["HashMapStateBackend"]
