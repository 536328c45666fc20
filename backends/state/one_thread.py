"""What belongs to the thread that made it: live state of every kind.

Where it costs little each call looks whose thread it is in: `set_current_key`, calls by the batch,
lists, maps, timers. `value` and `update` of plain numbers and text on the heap do not look: that
would cost as much as the access.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from threading import get_ident
from types import TracebackType
from typing import Self

from holdfast.storage import Invalid

__all__ = ["OwnedByOneThread"]


class OwnedByOneThread(ABC):
    """A state backend that only the thread which opened it may use, until it is closed.

    As a context manager it closes on exit.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._thread = get_ident()
        self._is_closed = False

    def check_thread(self) -> None:
        """Refuse the call of another thread, and any call after `close`.

        Raises:
            Invalid: it is such a call.
        """
        if self._is_closed:
            raise Invalid("the state backend is closed", where=self._where, fix="Open another one")
        if get_ident() != self._thread:
            raise Invalid(
                "a state backend is used from a second thread",
                where=self._where,
                expected="the thread that opened it",
                fix="Pass values between threads, not state",
            )

    def close(self) -> None:
        """Give up the snapshots on their way and everything that is not in one. Any thread."""
        if self._is_closed:
            return
        self._is_closed = True
        self._thread = 0
        self._release()

    @abstractmethod
    def _release(self) -> None:
        """Give everything back; called once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
