"""Clauses about `create`, on which every commit rests: one winner, and the loser learns of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from holdfast.storage.clock import SystemClock
from holdfast.storage.errors import Unavailable
from holdfast.storage.testing import other_processes
from holdfast.storage.testing.checks import (
    names_in,
    nothing_left,
    outcome_of,
    pattern,
    reads,
    require,
    same,
)
from holdfast.storage.testing.place import Place, opened

__all__ = ["CreateClauses", "at_once"]

_Answer = TypeVar("_Answer")

_THREADS = 16
_DELETIONS = 40
_LATER_S = 0.000_04
_WAIT_S = 60


class CreateClauses:
    """What `create` owes."""

    def test_create_makes_an_absent_object(self, place: Place) -> None:
        """None is the answer of the call that created the object, and only of that one."""
        storage = opened(place)
        data = pattern(5000)
        same(storage.create("folder/object", data), None, "the answer of the first create")
        reads(storage, "folder/object", data, "what was created")
        same(storage.create("folder/object", data), data, "the answer of the second create")

    def test_create_keeps_an_existing_object(self, place: Place) -> None:
        """The answer is the existing content, by any writer, and nothing has changed."""
        storage = opened(place)
        storage.create("created", b"created before")
        storage.write("written", b"written before")
        for data in (b"longer than what was there before", b"short", b""):
            for name, before in (("created", b"created before"), ("written", b"written before")):
                same(storage.create(name, data), before, f"creating {name} again")
                reads(storage, name, before, "after creating it again")

    def test_create_tells_empty_from_missing(self, place: Place) -> None:
        """An empty object is there: the answer is no bytes, which is not None."""
        storage = opened(place)
        same(storage.create("object", b""), None, "creating an empty object")
        same(storage.create("object", b""), b"", "creating an empty object again")
        same(storage.create("object", b"more"), b"", "creating over an empty object")
        reads(storage, "object", b"", "the empty object")

    def test_create_after_delete_makes_it_again(self, place: Place) -> None:
        """A deleted object is absent; a number may be used again after its remains are gone."""
        storage = opened(place)
        for number in range(3):
            data = pattern(10, number)
            same(storage.create("object", data), None, "creating what was deleted")
            reads(storage, "object", data, "what was created again")
            storage.delete(["object"])

    def test_an_unfinished_write_does_not_count(self, place: Place) -> None:
        """`create` goes by what is visible; a write that commits later replaces, as it says."""
        storage = opened(place)
        writer = storage.writer("object")
        writer.write(b"written")
        same(storage.create("object", b"created"), None, "creating beside an unfinished write")
        reads(storage, "object", b"created", "created beside an unfinished write")
        writer.commit()
        reads(storage, "object", b"written", "after the write was committed")

    def test_create_leaves_nothing_behind(self, place: Place) -> None:
        """Winner or loser, only the object is left: commits must leave nothing to clean up."""
        storage = opened(place)
        for number in range(5):
            storage.create("object", pattern(1000, number))
        same(names_in(storage), ["object"], "the listing after creating")
        same(list(storage.unfinished("")), [], "unfinished writes after creating")
        storage.delete(["object"])
        nothing_left(storage, place.count, "after creating and deleting")

    def test_create_can_be_repeated(self, place: Place) -> None:
        """A caller whose answer was lost calls again and gets its own bytes, never an error."""
        storage = opened(place)
        data = pattern(3000)
        storage.create("object", data)
        for _ in range(3):
            same(storage.create("object", data), data, "creating the same again")
            same(place.open().create("object", data), data, "creating the same after reopening")
        same(names_in(storage), ["object"], "the listing after repeating")

    def test_one_of_sixteen_threads_creates(self, place: Place) -> None:
        """Each round has one winner; all others are told the winner's content."""
        storage = opened(place, "atomic_create")
        for number in range(place.rounds):
            name = f"object-{number}"
            mine = [pattern(100 + thread, f"{number}/{thread}") for thread in range(_THREADS)]
            answers = at_once([partial(storage.create, name, data) for data in mine])
            winners = [data for data, answer in zip(mine, answers, strict=True) if answer is None]
            same(len(winners), 1, f"winners among {_THREADS} threads")
            losers = {answer for answer in answers if answer is not None}
            same(losers, set(winners), "what the losers were told")
            reads(storage, name, winners[0], "the winner's object")

    def test_equal_creates_have_one_winner(self, place: Place) -> None:
        """One winner also when all bring the same bytes, even the same object of Python."""
        storage = opened(place, "atomic_create")
        data = b"equal"
        for number in range(place.rounds):
            answers = at_once([partial(storage.create, f"object-{number}", data)] * _THREADS)
            same(answers.count(None), 1, f"winners among {_THREADS} threads with equal bytes")
            same(answers.count(data), _THREADS - 1, "losers among them")

    def test_one_of_several_processes_creates(self, place: Place) -> None:
        """One winner between processes too: two drivers of one job never share a lock."""
        storage = opened(place, "atomic_create", "shared_between_processes")
        names = [f"folder/object-{number}" for number in range(60)]
        won = other_processes.at_once(other_processes.create_each, storage, names)
        for name in names:
            winners = [mine[name] for mine in won if name in mine]
            same(len(winners), 1, f"processes that created {name}")
            reads(storage, name, winners[0], "the winner's object")

    def test_an_object_can_be_created_while_it_is_deleted(self, place: Place) -> None:
        """Deleted at any moment of a `create`: it still answers, or asks to be called again.

        NotFound is no answer: that the object has gone while it was looked at is not the caller's
        business.
        """
        storage = opened(place)
        name = "folder/object"

        def delete(after_s: float) -> None:
            SystemClock().sleep_s(after_s)
            storage.delete([name])

        for number in range(_DELETIONS):
            storage.write(name, b"there")
            create = partial(storage.create, name, pattern(10, number))
            calls = (create, partial(delete, number * _LATER_S))
            answer, _ = at_once([partial(outcome_of, call) for call in calls])
            allowed = answer is None or isinstance(answer, bytes | Unavailable)
            require(allowed, f"create beside a delete owes an answer, it was {answer!r}")


def at_once(calls: Sequence[Callable[[], _Answer]]) -> list[_Answer]:
    """The answers of calls that threads begin as nearly at once as they can."""
    barrier = threading.Barrier(len(calls))

    def begin(call: Callable[[], _Answer]) -> _Answer:
        barrier.wait(_WAIT_S)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(begin, calls))
