"""Commits of one operator beside its slot's thread, so that rows go on while a place is slow.

    slot's thread   commit(7) ─▶ queue ─▶ thread: try, pause, try … ─▶ collect() ─▶ done(7)

They are made one after the other, in order of checkpoints: readers never see a later one alone. So
the first that fails is the last that is made, and fails the slot when its thread collects.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from holdfast.runtime.api.errors import operator_named
from holdfast.runtime.operators.commit_tries import commit_until_answered
from holdfast.runtime.protocol.metrics import LongCall
from holdfast.runtime.protocol.operator import Committer
from holdfast.runtime.task.watchdog import Watchdog
from holdfast.storage import Clock

__all__ = ["SlotCommitter", "SlotCommitters"]


@dataclass(frozen=True, slots=True)
class _Commit:
    ended: Future[None]
    done: Callable[[], None]


class SlotCommitter(Committer):
    """`close` and all of `Committer` are for the slot's thread, `long_call` for one other thread.

    `wake` is called by the other thread whenever there is something to collect.
    """

    def __init__(
        self,
        uid: str,
        clock: Clock,
        wake: Callable[[], None] = lambda: None,
        executor: Executor | None = None,
    ) -> None:
        self.uid = uid
        self._clock = clock
        self._wake = wake
        self._executor = executor or ThreadPoolExecutor(1, f"commits of {uid}")
        self._commits: deque[_Commit] = deque()
        self._stopping = threading.Event()
        self._watchdog = Watchdog(clock, [SlotCommitter._make], lambda: uid)

    def commit(
        self,
        call: Callable[[], None],
        done: Callable[[], None] = lambda: None,
        *,
        what: str,
        deadline_s: float = math.inf,
    ) -> None:
        ended = self._executor.submit(self._make, call, what, deadline_s)
        self._commits.append(_Commit(ended, done))
        ended.add_done_callback(lambda _: self._wake())
        self.collect()

    def wait(self) -> None:
        while self._commits:
            self._commits[0].ended.result()
            self.collect()

    @property
    def is_idle(self) -> bool:
        """Whether no commit is waiting, running, or to be collected."""
        return not self._commits

    def collect(self) -> None:
        """Notify the operator of commits that have ended.

        Raises:
            Unavailable: the place of a sink did not answer, often enough or in time.
            Exception: what else a commit has raised.
        """
        while self._commits and self._commits[0].ended.done():
            self._commits[0].ended.result()
            self._commits.popleft().done()

    def long_call(self) -> LongCall | None:
        """The commit that has been going on for some seconds, if one has."""
        return self._watchdog.look()

    def close(self) -> None:
        """Begin no more commits and tries; returns when the running call has ended."""
        self._stopping.set()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _make(self, call: Callable[[], None], what: str, deadline_s: float) -> None:
        if self._stopping.is_set():
            raise CancelledError
        self._watchdog.begin()
        try:
            commit_until_answered(
                call,
                self._clock,
                what=what,
                pause=partial(self._clock.wait_s, self._stopping),
                deadline_s=deadline_s,
            )
        except BaseException:
            self._stopping.set()  # what follows would be seen without this
            raise
        finally:
            self._watchdog.end()


class SlotCommitters:
    """The committers of all operators of a slot. `long_call` is for one other thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all: list[SlotCommitter] = []
        self._to_collect: deque[SlotCommitter] = deque()

    def make(self, uid: str, wake: Callable[[], None]) -> SlotCommitter:
        """The committer of an operator; `wake` is called as that of `SlotCommitter`."""

        def woken() -> None:
            self._to_collect.append(made)
            wake()

        made = SlotCommitter(uid, self._clock, woken)
        self._all.append(made)
        return made

    @property
    def are_idle(self) -> bool:
        """Whether everything that completed checkpoints list is committed."""
        return all(each.is_idle for each in self._all)

    def collect(self) -> None:
        """Tell operators of commits that have been made.

        Raises:
            OperatorFailed: one has failed.
        """
        while self._to_collect:
            each = self._to_collect.popleft()
            with operator_named(each.uid):
                each.collect()

    def long_call(self) -> LongCall | None:
        calls = [each.long_call() for each in self._all.copy()]
        return next(filter(None, calls), None)

    def close(self) -> None:
        for each in self._all:
            each.close()
