"""What writers have in common as context managers: done on a normal exit, given up on another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["FinishedOnExit"]


class FinishedOnExit(ABC):
    """Finishes when its block is left normally, and aborts when that fails or on an exception."""

    @abstractmethod
    def abort(self) -> None:
        """Drop what was written. Does nothing after the end."""

    @abstractmethod
    def _end_well(self) -> None:
        """Make what was written count."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.abort()
            return
        try:
            self._end_well()
        except BaseException:
            self.abort()
            raise
