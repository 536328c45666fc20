"""The check that live state is used by one thread only.

Calls check their thread where that costs little: `set_current_key`, batch calls, lists, maps,
timers. `value` and `update` of plain numbers and strings on the heap do not: the check would cost
as much as the access.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from threading import get_ident
from typing import Self

from holdfast.storage import Invalid

__all__ = ["OwnedByOneThread"]


class OwnedByOneThread(ABC):
    """A state backend that only the thread that opened it may use, until it is closed.

    As a context manager it closes itself on exit.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._thread = get_ident()
        self._is_closed = False

    def check_thread(self) -> None:
        """Refuse the call of another thread, and any call after `close`.

        Raises:
            Invalid: the thread is another one, or the backend is closed.
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
        """Cancel running snapshots, and drop the state. May be called by any thread."""
        if self._is_closed:
            return
        self._is_closed = True
        self._thread = 0
        self._release()

    @abstractmethod
    def _release(self) -> None:
        """Release everything; called once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
