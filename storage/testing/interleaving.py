"""Runs callers side by side in every order of their storage calls, one call at a time.

Each caller has a thread, of which only one ever runs: it stops before each of its calls until it
is that caller's turn. So an order that fails once fails always, and nothing sleeps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from holdfast.storage.errors import HoldfastError
from holdfast.storage.testing.watched import Call, Hook

__all__ = ["Caller", "Order", "orders"]

Caller = Callable[[Hook], object]
"""What runs side by side with others; it has to give the hook to the storage that it uses."""


class Order:
    """One order of calls; `run` is to be called once."""

    def __init__(self, planned: Sequence[int], switches: int) -> None:
        self._planned = planned
        self._switches = switches
        self._taken: list[int] = []
        self._untried: list[list[int]] = []
        self.calls: list[str] = []

    def __str__(self) -> str:
        return " → ".join(self.calls)

    def run(self, *callers: Caller) -> list[object]:
        """What each caller answered, or the error of the house that it raised."""
        running = [_Running(caller) for caller in callers]
        while ready := [index for index, each in enumerate(running) if each.next is not None]:
            index = self._choose(ready)
            call = running[index].next
            self.calls.append(f"{'ABCDEFGH'[index]} {call.verb} {call.name}" if call else "")
            running[index].step()
        return [each.outcome() for each in running]

    def next_orders(self) -> list[list[int]]:
        """The orders that part from this one after the planned turns, within the switches."""
        return self._untried

    def _choose(self, ready: list[int]) -> int:
        turn = len(self._taken)
        before = self._taken[-1] if self._taken and self._taken[-1] in ready else None
        if turn < len(self._planned):
            chosen = self._planned[turn]
        else:
            chosen = ready[0] if before is None else before
            if before is None or self._switches > 0:
                others = [index for index in ready if index != chosen]
                self._untried += [[*self._taken, other] for other in others]
        if before is not None and chosen != before:
            self._switches -= 1
        self._taken.append(chosen)
        return chosen


def orders(switches: int = 1_000_000) -> Iterator[Order]:
    """Every order in which a caller that could go on is interrupted at most so many times.

    The body of the loop sets up a new scene, runs the order in it, and looks at the outcome.
    """
    waiting: list[list[int]] = [[]]
    while waiting:
        order = Order(waiting.pop(), switches)
        yield order
        waiting += order.next_orders()


class _Running:
    """A caller in its thread; `next` is the call before which it stands, None once it ended."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._answer: object = None
        self._error: BaseException | None = None
        self.next: Call | None = None
        threading.Thread(target=self._run, daemon=True).start()
        self._stopped.acquire()

    def step(self) -> None:
        """Let it do its next call, up to the one after that."""
        self.next = None
        self._go.release()
        self._stopped.acquire()

    def outcome(self) -> object:
        if self._error is not None and not isinstance(self._error, HoldfastError):
            raise self._error
        return self._error or self._answer

    def _stop(self, call: Call) -> None:
        self.next = call
        self._stopped.release()
        self._go.acquire()

    def _run(self) -> None:
        try:
            self._answer = self._caller(self._stop)
        except BaseException as error:  # noqa: BLE001 (it is raised where the test sees it)
            self._error = error
        self._stopped.release()
