"""Calls of a library that may never return, made on threads that can be given up.

A thread that was given up stays where it hangs, and ends when its call does. Threads are used
again: what a call costs beyond itself is a few hundredths of a millisecond.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

__all__ = ["GivenUp", "begun", "within"]

_Answer = TypeVar("_Answer")

_IDLE_S = 30.0
_idle: deque[_Worker] = deque()


class GivenUp(Exception):
    """The call had not returned in time. Whether it takes effect is not known."""


def within(limit_s: float, call: Callable[[], _Answer]) -> _Answer:
    """What `call` answers or raises, unless it takes longer.

    Raises:
        GivenUp: it does.
    """
    future = begun(call)
    try:
        return future.result(limit_s)
    except NotYet:
        if future.done():
            raise  # the call itself has raised that
        raise GivenUp from None


def begun(call: Callable[[], _Answer]) -> Future[_Answer]:
    """Have the call made on another thread, which does not keep the interpreter from ending."""
    future: Future[_Answer] = Future()
    while True:
        try:
            worker = _idle.pop()
        except IndexError:
            worker = _Worker()
            worker.start()
        if worker.process == os.getpid():  # else it is one of the process that forked this one
            worker.inbox.put((future, call))
            return future


class _Worker(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="holdfast-call", daemon=True)
        self.process = os.getpid()
        self.inbox: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()

    def run(self) -> None:
        while True:
            try:
                future, call = self.inbox.get(timeout=_IDLE_S)
            except Empty:
                try:
                    _idle.remove(self)
                except ValueError:
                    continue  # it has just been taken: a call comes
                return
            _answer(future, call)
            del future, call  # else this thread would keep the answer
            _idle.append(self)


def _answer(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        answer = call()
    except Exception as error:  # noqa: BLE001 (it is raised where the call was asked for)
        future.set_exception(error)
    except BaseException as error:  # noqa: BLE001 (a library written in Rust panics so)
        future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
    else:
        future.set_result(answer)
