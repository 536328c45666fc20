"""HDFS through its native protocol, without a JVM; the library is the extra `hdfs`.

Imports what places share, and no other place.
"""

from __future__ import annotations

__all__: list[str] = []
