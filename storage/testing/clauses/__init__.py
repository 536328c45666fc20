"""The clauses that every storage must pass, by what they are about; `conformance` joins them.

Imports all of `holdfast.storage`, and pytest.
"""

from __future__ import annotations

__all__: list[str] = []
