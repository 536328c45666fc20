"""A request that may take its time, carried out by a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Work"]


class Work:
    """What was asked for is done even if nobody waits for it any more."""

    def __init__(self, do: Callable[[], Any], name: str) -> None:
        self._do = do
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Whether it is done, at the latest after so long."""
        return self._done.wait(seconds)

    def result(self) -> Any:
        """What came of it; raises what was raised."""
        if self._error is not None:
            raise self._error
        return self._value

    def _run(self) -> None:
        try:
            self._value = self._do()
        except BaseException as error:  # noqa: BLE001 - whoever waits is told
            self._error = error
        self._done.set()
