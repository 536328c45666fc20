"""Directories of any file system that fsspec knows, with the guarantees that it can prove.

Imports what places share, and of other places only how errors of files are translated.
"""

from __future__ import annotations

__all__: list[str] = []
