"""Calls made ahead of their turn, on threads, and answered in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from typing import Generic, TypeVar

__all__ = ["Task", "in_turn"]

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Task(Generic[_Answer]):
    """A call, and the size of its answer in bytes; a call with size 0 needs no thread."""

    call: Callable[[], _Answer]
    size_bytes: int


def in_turn(
    tasks: Iterable[Task[_Answer]], *, at_once: int, limit_bytes: int
) -> Generator[_Answer, None, None]:
    """The answers of the tasks, in their order; up to `at_once` calls are under way.

    As many again may be finished while the first of them is not: so one slow call keeps no thread
    idle. Answers that were not taken yet hold at most `limit_bytes`, or are one. An error is raised
    in the turn of its call, and no later answer follows. When the caller stops early, calls under
    way are waited for, and the threads end.
    """
    coming = iter(tasks)
    first = [*islice(coming, 2)]
    if at_once <= 1 or len(first) < 2:
        for task in chain(first, coming):
            yield task.call()
        return
    coming = chain(first, coming)
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="holdfast-read-ahead")
    waiting: deque[tuple[Callable[[], _Answer], int]] = deque()
    held_bytes = 0
    following = next(coming, None)
    try:
        while waiting or following is not None:
            while following is not None and (
                not waiting
                or (len(waiting) < 2 * at_once and held_bytes + following.size_bytes <= limit_bytes)
            ):
                call, size_bytes = following.call, following.size_bytes
                waiting.append((pool.submit(call).result if size_bytes else call, size_bytes))
                held_bytes += size_bytes
                following = next(coming, None)
            answer, size_bytes = waiting.popleft()
            held_bytes -= size_bytes
            yield answer()
    finally:
        pool.shutdown(cancel_futures=True)
