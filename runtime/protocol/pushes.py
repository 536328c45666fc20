"""Which rows a task of Spark pushes into a slot, and which of them count."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PushKey", "Winner"]


class PushKey(NamedTuple):
    """Which rows a push brings: those of one split of one batch for one edge, by one attempt."""

    source: str
    edge: str
    batch: int
    split: int
    attempt: int

    def __str__(self) -> str:
        return (
            f"source {self.source!r}, edge {self.edge!r}, batch {self.batch}, split {self.split}, "
            f"attempt {self.attempt}"
        )


class Winner(NamedTuple):
    """The attempt that counts of a split."""

    split: int
    attempt: int
