"""The only source of randomness: names that must not collide, and jitter.

Components take an `Entropy`, so that a seed replays a run. Random values must not influence
results; they only keep writers apart.
"""

from __future__ import annotations

import random
import secrets
from typing import Protocol

__all__ = ["Entropy", "SeededEntropy", "SystemEntropy"]

_TOKEN_BYTES = 8


class Entropy(Protocol):
    """Random values, as components see them. Safe to call from any thread."""

    def token(self) -> str:
        """Sixteen lower-case hexadecimal digits that no other call returns."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        ...


class SystemEntropy:
    """The machine's randomness. Stateless, so it pickles as nothing and never repeats."""

    def token(self) -> str:
        return secrets.token_hex(_TOKEN_BYTES)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * secrets.randbelow(1 << 53) / (1 << 53)


class SeededEntropy:
    """The same sequence for the same seed. Each process of a simulation needs a seed of its own."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def token(self) -> str:
        return self._random.randbytes(_TOKEN_BYTES).hex()

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)
