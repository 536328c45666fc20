"""Where objects are kept: one module or folder for each kind of storage.

Places implement the verbs of `holdfast.storage.interface`. A kind of place imports what all kinds
share, and no other kind; only `filesystem` joins two of them, local directories and fsspec.
"""

from __future__ import annotations

__all__: list[str] = []
