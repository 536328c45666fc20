"""Threads of the driver for calls that may hang: the program does not wait for them to exit."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from holdfast.storage import Unavailable
from holdfast.storage.bounded_calls import begun

__all__ = ["DaemonThreads"]

_Answer = TypeVar("_Answer")


class DaemonThreads:
    """Makes calls in the order in which they come, so many at once. Safe to use from any thread.

    As a `ThreadPoolExecutor`, but Python waits for the threads of that when it exits, however long
    a call hangs. It has a thread only while there is something to do: the process shares them.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads = 0
        self._is_shut_down = False

    def submit(self, call: Callable[..., _Answer], *arguments: Any) -> Future[_Answer]:
        """Have the call made.

        Raises:
            RuntimeError: it is shut down.
            Unavailable: the process can have no more threads, and none here would make the call.
        """
        future: Future[_Answer] = Future()
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError(f"the threads of {self._name} are shut down")
            self._waiting.append((future, partial(call, *arguments)))
            if self._threads < self._most:
                self._add_thread()
        return future

    def shutdown(self, *, wait: bool = False, cancel_futures: bool = False) -> None:
        """Take no more calls. Those that wait are made, unless they are cancelled."""
        assert not wait, "calls may hang"
        with self._lock:
            self._is_shut_down = True
            cancelled = [*self._waiting] if cancel_futures else []
            if cancel_futures:
                self._waiting.clear()
        for future, _ in cancelled:
            future.cancel()

    def _add_thread(self) -> None:
        try:
            begun(self._work)
        except RuntimeError as error:
            if self._threads:
                return  # a thread that is there makes this call, too
            self._waiting.pop()
            raise Unavailable(
                "a thread cannot be started",
                where=self._name,
                found=str(error),
                fix="Raise the limit of threads of the driver's process, or run fewer jobs in it",
            ) from error
        self._threads += 1

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                future, call = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                answer = call()
            except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
                future.set_exception(error)
            else:
                future.set_result(answer)
            del future, call  # else a thread would keep the answer alive
