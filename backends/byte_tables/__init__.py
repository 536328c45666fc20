"""Tables over any store of ordered bytes: implement `ByteStore`, get a backend.

Imports `tables` and below.
"""

__all__: list[str] = []
