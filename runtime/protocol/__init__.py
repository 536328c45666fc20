"""What passes between operators, slots and driver, as data: elements, messages, metrics, errors.

The contract of an operator is here, too. It imports `api` and `columns`.
"""

from __future__ import annotations

__all__: list[str] = []
