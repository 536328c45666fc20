"""What deliberately broken implementations have in common: each says which clause it breaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Opener = TypeVar("Opener")


@dataclass(frozen=True)
class Broken(Generic[Opener]):
    """A clause, how to open what breaks it, and a pattern that the failure matches."""

    clause: str
    says: str
    open: Opener


class Register(dict[str, Broken[Opener]]):
    """What is broken, by clause."""

    def note(self, clause: str, says: str, opener: Opener) -> None:
        """Note that something breaks this clause, which nothing else does."""
        name = f"test_{clause}"
        assert name not in self, f"{clause} is broken twice"
        self[name] = Broken(name, says, opener)


def clauses_of(suite: type) -> list[str]:
    """The names of all clauses of a suite, sorted."""
    return [name for name in dir(suite) if name.startswith("test")]
