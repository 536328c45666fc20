"""Calls of a library that may never return, made on threads that can be abandoned.

An abandoned thread stays where it hangs, and ends when its call does. Threads are reused: a call
costs a few hundredths of a millisecond beyond itself.

The interpreter does not wait for such threads when it exits, and aborts with SIGABRT if one returns
from a library written in Rust at that moment. So an exit handler waits for calls under way.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as NotYet
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

__all__ = ["GivenUp", "begun", "within"]

_Answer = TypeVar("_Answer")

_IDLE_S = 30.0
_AT_EXIT_S = 5.0
_idle: deque[_Worker] = deque()
_under_way: set[Future[Any]] = set()


class GivenUp(Exception):
    """The call had not returned in time. Whether it takes effect is not known."""


def within(limit_s: float, call: Callable[[], _Answer]) -> _Answer:
    """The result of `call`, unless it takes longer than the limit.

    Raises:
        GivenUp: it took longer.
    """
    future = begun(call)
    try:
        return future.result(limit_s)
    except NotYet:
        if future.done():
            raise  # the call itself raised a TimeoutError
        _under_way.discard(future)
        raise GivenUp from None


def begun(call: Callable[[], _Answer], *, is_awaited_at_exit: bool = True) -> Future[_Answer]:
    """Start the call on another thread, which does not keep the interpreter from exiting.

    Unless it `is_awaited_at_exit`, no exit handler waits for it either.
    """
    future: Future[_Answer] = Future()
    if is_awaited_at_exit:
        _under_way.add(future)
        future.add_done_callback(_under_way.discard)
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
        worker.start()
    worker.inbox.put((future, call))
    return future


class _Worker(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="holdfast-call", daemon=True)
        self.inbox: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()

    def run(self) -> None:
        while True:
            try:
                future, call = self.inbox.get(timeout=_IDLE_S)
            except Empty:
                try:
                    _idle.remove(self)
                except ValueError:
                    continue  # another thread has just taken this worker: its call is coming
                return
            _answer(future, call)
            del future, call  # else this idle thread would keep the answer alive
            _idle.append(self)


def _await_calls() -> None:
    wait(list(_under_way), _AT_EXIT_S)


def _after_fork() -> None:
    """Threads of the parent do not exist in the child."""
    _idle.clear()
    _under_way.clear()


def _answer(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        answer = call()
    except Exception as error:  # noqa: BLE001 (it is raised in the caller)
        future.set_exception(error)
    except BaseException as error:  # noqa: BLE001 (a library written in Rust panics so)
        future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
    else:
        future.set_result(answer)


atexit.register(_await_calls)
os.register_at_fork(after_in_child=_after_fork)
