"""Runs callers side by side in every order of their storage calls, one call at a time.

Each caller has a thread, and only one thread runs at a time: it stops before each of its calls
until its turn comes. So an order that fails once fails always, and nothing sleeps.

Orders that differ only in calls that cannot notice each other are the same to every caller, and
one of them is run: by dynamic partial order reduction (Flanagan and Godefroid) with sleep sets. Two
calls can notice each other when one of them changes an object that the other reads, lists or
changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from holdfast.storage.errors import HoldfastError
from holdfast.storage.testing.watched_storage import ByThread, Call, Hook, WatchedStorage

__all__ = ["Caller", "Order", "orders", "pausing"]

Caller = Callable[[Hook], object]
"""One of the callers; it must pass the hook to the storage that it uses."""

_READING = frozenset({"list", "prepare", "read_range", "unfinished"})
_BY_PREFIX = frozenset({"list", "unfinished"})

_Turns = tuple[int, ...]


@dataclass
class _State:
    """The positions of the callers after some turns, and the next turns tried or to be tried."""

    ready: dict[int, Call]
    asleep: frozenset[int]
    """The callers that need not come next: such orders are equal to others that are run."""
    tried: set[int] = field(default_factory=set)

    def asleep_after(self, chosen: int) -> frozenset[int]:
        """The callers that stay asleep after this turn: its call did not affect them."""
        call = self.ready[chosen]
        resting = self.asleep | self.tried - {chosen}
        return frozenset(i for i in resting if not _notice(self.ready[i], call))


class Order:
    """One order of calls; call `run` once."""

    def __init__(self, planned: _Turns, states: dict[_Turns, _State]) -> None:
        self._planned = planned
        self._states = states
        self.turns: _Turns = ()
        """The callers of the turns, by their place among the arguments."""
        self._asleep: frozenset[int] = frozenset()
        self._calls: list[Call] = []
        self._is_known = False

    def __str__(self) -> str:
        turns = zip(self.turns, self._calls, strict=True)
        return " → ".join(f"{'ABCDEFGH'[index]} {c.verb} {c.name}".rstrip() for index, c in turns)

    def run(self, *callers: Caller) -> list[object]:
        """The answer of each caller, or the error of Holdfast that it raised."""
        running = [_Running(caller) for caller in callers]
        while ready := {i: each.next for i, each in enumerate(running) if each.next is not None}:
            state = self._states.setdefault(self.turns, _State(ready, self._asleep))
            index = self._choose(state)
            self._asleep = state.asleep_after(index)
            state.tried.add(index)
            self.turns += (index,)
            self._calls.append(ready[index])
            running[index].step()
        return [each.outcome() for each in running]

    def others(self) -> Iterator[_Turns]:
        """The turns after which another order differs from this one for some caller."""
        for later, call in enumerate([] if self._is_known else self._calls):
            index = self.turns[later]
            for earlier in reversed(range(later)):
                if self.turns[earlier] != index and _notice(self._calls[earlier], call):
                    state = self._states[self.turns[:earlier]]
                    if index not in state.tried | state.asleep:
                        state.tried.add(index)
                        yield (*self.turns[:earlier], index)
                    break

    def _choose(self, state: _State) -> int:
        if len(self.turns) < len(self._planned):
            return self._planned[len(self.turns)]
        awake = state.ready.keys() - state.asleep
        self._is_known |= not awake  # an equal order is run elsewhere; this one only finishes
        return min(awake or state.ready)


def orders() -> Iterator[Order]:
    """Every order that some caller can distinguish.

    The body of the loop sets up a new scene, runs the order in it, and looks at the outcome.
    """
    states: dict[_Turns, _State] = {}
    waiting: list[_Turns] = [()]
    while waiting:
        order = Order(waiting.pop(), states)
        yield order
        waiting += order.others()


def pausing(storage: WatchedStorage | ByThread, action: Callable[[], object]) -> Caller:
    """A caller that acts, and stops before each call that it makes on the storage."""

    def call(pause: Hook) -> object:
        with storage.asking(pause):
            return action()

    return call


def _notice(one: Call, other: Call) -> bool:
    return _changes(one, other) or _changes(other, one)


def _changes(change: Call, seen: Call) -> bool:
    if change.verb in _READING:
        return False
    if seen.verb in _BY_PREFIX:
        return change.name.startswith(seen.name)
    return change.name == seen.name


class _Running:
    """A caller in its thread; `next` is the call it is about to make, None once it ended."""

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
        """Let it make its next call, and stop before the one after that."""
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
        except BaseException as error:  # noqa: BLE001 (it is raised in the test)
            self._error = error
        self._stopped.release()
