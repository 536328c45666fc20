"""Clauses about a storage as a whole: reopening, pickling, threads, processes, errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial

import pytest

from holdfast.storage.checkpoint_storage import CheckpointStorage
from holdfast.storage.errors import HoldfastError
from holdfast.storage.interface import Capabilities
from holdfast.storage.testing import other_processes
from holdfast.storage.testing.checks import (
    names_in,
    names_place,
    owed,
    pattern,
    reads,
    require,
    same,
)
from holdfast.storage.testing.clauses.creates import at_once
from holdfast.storage.testing.place import Place, opened

__all__ = ["SharingClauses"]

_MIB = 1024 * 1024
_LIGHT_BYTES = 64 * 1024
_THREADS = 8
_ROUNDS = 12


class SharingClauses:
    """What a storage owes when it is reopened, sent, shared and misused."""

    def test_a_storage_says_what_it_is(self, place: Place) -> None:
        """URL and capabilities are there before anything else, and stay what they are."""
        storage, other = opened(place), place.open()
        require(isinstance(storage, CheckpointStorage), "a storage is a CheckpointStorage")
        require(isinstance(storage.capabilities, Capabilities), "capabilities are Capabilities")
        require("://" in storage.url, f"the URL must be one: {storage.url!r}")
        require(storage.inline_limit_bytes >= 0, "the inline limit is a number of bytes")
        before = (storage.url, storage.capabilities, storage.inline_limit_bytes)
        storage.prepare()
        storage.write("object", b"x")
        after = (storage.url, storage.capabilities, storage.inline_limit_bytes)
        same(after, before, "what a storage says of itself, after it was used")
        same((other.url, other.capabilities), before[:2], "what the same place says of itself")
        where = storage.url_of("folder/object")
        require(where.startswith(storage.url), f"{where} must lie below {storage.url}")
        require(where.endswith("/folder/object"), f"{where} must name the object")

    def test_prepare_may_be_called_again(self, place: Place) -> None:
        """By every owner, on a new place and on an old one, at once: it harms and leaves none."""
        storage = opened(place)
        at_once([place.open().prepare for _ in range(_THREADS)])
        same(names_in(storage), [], "the listing of a prepared place")
        same(list(storage.unfinished("")), [], "unfinished writes after prepare")
        if place.count is not None:
            same(place.count(), 0, "files at a place that was prepared")
        storage.write("object", b"kept")
        at_once([storage.prepare] * _THREADS)
        reads(storage, "object", b"kept", "after prepare was called again")

    def test_a_reopened_storage_sees_everything(self, place: Place) -> None:
        """The storage object holds settings only: a new one has all that an old one kept."""
        storage = opened(place)
        storage.write("folder/written", b"written")
        storage.create("created", b"created")
        storage.write("deleted", b"deleted")
        storage.delete(["deleted"])
        del storage
        again = place.open()
        reads(again, "folder/written", b"written", "after reopening")
        reads(again, "created", b"created", "after reopening")
        same(names_in(again), ["created", "folder/written"], "the listing after reopening")
        same(again.create("created", b"late"), b"created", "creating again after reopening")

    def test_a_pickled_storage_keeps_its_settings(self, place: Place) -> None:
        """It goes to every slot: light, however much it keeps, and as it was set up."""
        storage = opened(place)
        storage.write("large", bytes(_MIB))
        writer = storage.writer("begun")
        pickled = pickle.dumps(storage)
        writer.abort()
        require(
            len(pickled) <= _LIGHT_BYTES,
            f"a pickled storage must be light: at most {_LIGHT_BYTES} bytes, not {len(pickled)}",
        )
        copy = pickle.loads(pickled)
        same(type(copy), type(storage), "the type of a pickled storage")
        same(copy.url, storage.url, "its URL")
        same(copy.capabilities, storage.capabilities, "its capabilities")
        same(copy.inline_limit_bytes, storage.inline_limit_bytes, "its inline limit")
        if storage.capabilities.shared_between_processes:
            reads(copy, "large", bytes(_MIB), "through a pickled copy")

    def test_another_process_sees_every_write(self, place: Place) -> None:
        """And this one sees that one's, at once: slots write what the driver then reads."""
        storage = opened(place, "shared_between_processes")
        mine = {f"mine/{number}": pattern(1000, number) for number in range(5)}
        for name, data in mine.items():
            storage.write(name, data)
        same(other_processes.run(other_processes.look, storage), mine, "what another process sees")
        theirs = {f"theirs/{number}": pattern(1000, -number) for number in range(5)}
        other_processes.run(other_processes.put, storage, theirs, ["mine/0", "mine/1"])
        both = {**theirs, **{name: mine[name] for name in list(mine)[2:]}}
        same({name: storage.read(name) for name in names_in(storage)}, both, "what it then wrote")
        same(storage.create("theirs/0", b"late"), theirs["theirs/0"], "creating what it wrote")
        storage.delete(both)
        same(
            other_processes.run(other_processes.look, storage),
            {},
            "what it sees after all was deleted",
        )

    def test_threads_do_not_disturb_each_other(self, place: Place) -> None:
        """One storage object, many threads, every verb: each sees its own as if it were alone."""
        storage = opened(place)
        calls = [
            partial(other_processes.mix, storage, number, _ROUNDS) for number in range(_THREADS)
        ]
        same(at_once(calls), [""] * _THREADS, "what went wrong in threads side by side")
        _has_all_that_was_mixed(storage, _THREADS)

    def test_processes_do_not_disturb_each_other(self, place: Place) -> None:
        """The same among processes, which have no lock in common."""
        storage = opened(place, "shared_between_processes")
        found = other_processes.at_once(other_processes.mix, storage, _ROUNDS)
        same(found, [""] * other_processes.COUNT, "what went wrong in processes side by side")
        _has_all_that_was_mixed(storage, other_processes.COUNT)

    def test_only_holdfast_errors_are_raised(self, place: Place) -> None:
        """Whatever fails below, the caller gets one of `holdfast.storage.errors`.

        They say what to do, and name the place to do it at.
        """
        if place.unusable is None:
            pytest.skip("the place offers no storage that cannot work")
        storage = place.unusable()
        verbs: dict[str, Callable[[], object]] = {
            "prepare": storage.prepare,
            "read": partial(storage.read, "folder/object"),
            "read_range": partial(storage.read_range, "object", 0, 1),
            "write": partial(storage.write, "folder/object", b"x"),
            "create": partial(storage.create, "folder/object", b"x"),
            "list": lambda: list(storage.list("")),
            "list of a folder": lambda: list(storage.list("folder/")),
            "unfinished": lambda: list(storage.unfinished("folder/")),
            "delete": partial(storage.delete, ["folder/object"]),
            "take_over": storage.job("job").take_over,
            "completed": storage.job("job").completed,
        }
        for verb, call in verbs.items():
            with owed(HoldfastError, f"{verb}, of a storage that cannot work") as caught:
                call()
            names_place(str(caught[0]), storage, f"the error of {verb}")


def _has_all_that_was_mixed(storage: CheckpointStorage, parties: int) -> None:
    expected = {
        f"mixed/{number}/{turn:03}": pattern(500 + turn, f"{number}/{turn}")
        for number in range(parties)
        for turn in range(_ROUNDS)
        if turn % 3
    }
    same({name: storage.read(name) for name in names_in(storage)}, expected, "what all wrote")
