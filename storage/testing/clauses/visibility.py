"""Clauses about what readers see while an object is being written: all of it, or nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Self

from holdfast.storage.checkpoint_storage import CheckpointStorage
from holdfast.storage.errors import NotFound
from holdfast.storage.testing.checks import is_absent, names_in, pattern, reads, require, same
from holdfast.storage.testing.place import Place, opened

__all__ = ["VisibilityClauses"]

_WAIT_S = 60
_PIECE = 40_000


class _Onlooker(AbstractContextManager["_Onlooker"]):
    """A thread that looks again and again, and keeps the first thing that it should not see.

    `look` answers what is wrong, or nothing. The writer waits with `let_look` until a whole look
    has begun and ended, so that every state that lasts is seen, without any sleeping.
    """

    def __init__(self, look: Callable[[], str]) -> None:
        self._look = look
        self._looks = threading.Condition()
        self._begun = self._ended = 0
        self._over = False
        self._problem = ""
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over = True
        self._thread.join(_WAIT_S)
        if kind is None:
            require(not self._problem, self._problem)
            require(self._ended, "the onlooker never looked")

    def let_look(self) -> None:
        """Return once a look that began after this call has ended."""
        with self._looks:
            begun = self._begun
            waited = self._looks.wait_for(
                lambda: bool(self._problem) or self._ended > begun, _WAIT_S
            )
        require(waited, "a reader was kept waiting by a writer")

    def _watch(self) -> None:
        while not self._over and not self._problem:
            with self._looks:
                self._begun += 1
            try:
                problem = self._look()
            except Exception as error:  # noqa: BLE001 (it is reported where the test can see it)
                problem = f"a reader beside a writer got {error!r}"
            with self._looks:
                self._problem = problem
                self._ended = self._begun
                self._looks.notify_all()


def _sight(storage: CheckpointStorage, name: str, allowed: list[bytes | None]) -> str:
    """The fault in what a reader sees of the object, if any; None stands for its absence."""
    try:
        found: bytes | None = storage.read(name)
    except NotFound:
        found = None
    if found not in allowed:
        sizes = " or ".join("none" if each is None else f"{len(each)} bytes" for each in allowed)
        seen = "none" if found is None else f"{len(found)} bytes"
        return f"a reader must see all of an object or none: allowed was {sizes}, seen was {seen}"
    listed = [info.size_bytes for info in storage.list(name)]
    if listed not in [[] if each is None else [len(each)] for each in allowed]:
        return f"a listing must show an object whole, or not: it showed sizes {listed}"
    return ""


class VisibilityClauses:
    """Whole or absent, and the old until the new."""

    def test_nothing_is_visible_before_the_commit(self, place: Place) -> None:
        """Until the commit no reader and no listing sees anything, also through another object."""
        storage, other = opened(place), place.open()
        writer = storage.writer("folder/object")
        for size in (0, 1, 70_000, 1_200_000):
            writer.write(pattern(size))
            is_absent(storage, "folder/object", "before the commit")
            is_absent(other, "folder/object", "before the commit, through another storage object")
        same(names_in(storage), [], "the listing before the commit")
        writer.commit()
        reads(other, "folder/object", b"".join(map(pattern, (0, 1, 70_000, 1_200_000))), "then")

    def test_the_old_object_stays_until_the_commit(self, place: Place) -> None:
        """Readers see the old object while it is rewritten, and after an abort."""
        storage = opened(place)
        old, new = pattern(5000, "old"), pattern(9000, "new")
        storage.write("object", old)
        for end in ("abort", "commit"):
            writer = storage.writer("object")
            for start in range(0, 9000, 3000):
                reads(storage, "object", old, f"before the {end} of a new write")
                writer.write(new[start : start + 3000])
            reads(storage, "object", old, f"before the {end} of a new write")
            sizes = [info.size_bytes for info in storage.list("object")]
            same(sizes, [5000], f"the listing before the {end} of a new write")
            if end == "abort":
                writer.abort()
                reads(storage, "object", old, "after the abort of a new write")
            else:
                writer.commit()
                reads(storage, "object", new, "after the commit of a new write")

    def test_a_reader_never_sees_a_part(self, place: Place) -> None:
        """A reader that polls while objects are written sees each whole, or not at all."""
        storage = opened(place)
        whole = pattern(3 * _PIECE)
        for number in range(10):
            name = f"object-{number}"
            with _Onlooker(partial(_sight, storage, name, [None, whole])) as onlooker:
                with storage.writer(name) as writer:
                    for start in range(0, len(whole), _PIECE):
                        writer.write(whole[start : start + _PIECE])
                        onlooker.let_look()
                onlooker.let_look()
            reads(storage, name, whole, "after it was written")

    def test_a_reader_never_sees_a_mixture(self, place: Place) -> None:
        """A reader that polls while an object is overwritten sees one version of it, never two.

        And never its absence: what is there stays there until the new one is.
        """
        storage = opened(place)
        versions = [pattern(size, size) for size in (3 * _PIECE, 100, 2 * _PIECE, 0, 4 * _PIECE)]
        allowed: list[bytes | None] = [*versions]
        storage.write("object", versions[0])
        with _Onlooker(partial(_sight, storage, "object", allowed)) as onlooker:
            for version in versions * 4:
                with storage.writer("object") as writer:
                    writer.write(version)
                onlooker.let_look()

    def test_a_reader_never_sees_a_part_of_a_creation(self, place: Place) -> None:
        """The commit point is made by `create`: half of it must never be visible."""
        storage = opened(place)
        for number in range(10):
            name = f"object-{number}"
            mine, other = pattern(200_000, "mine"), pattern(100_000, "other")
            with _Onlooker(partial(_sight, storage, name, [None, mine, other])) as onlooker:
                onlooker.let_look()
                rival = threading.Thread(target=storage.create, args=(name, other))
                rival.start()
                storage.create(name, mine)
                rival.join(_WAIT_S)
                onlooker.let_look()

    def test_a_writer_sees_its_own_writes(self, place: Place) -> None:
        """Once a call has returned, every later call sees what it did, also elsewhere opened."""
        storage, other = opened(place), place.open()
        for number in range(20):
            name, data = f"object-{number:02}", pattern(100, number)
            storage.write(name, data)
            reads(other, name, data, "just written")
            same(other.create(name, b"late"), data, "creating what was just written")
            same(names_in(other)[-1:], [name], "listing what was just written")
            if number % 2:
                storage.delete([name])
                is_absent(other, name, "just deleted")
                same(other.create(name, data), None, "creating what was just deleted")
                same(storage.create(name, data), data, "creating what was just created")
