"""Clauses about `list`: complete, exact, in order, by a prefix that is plain text."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from holdfast.storage import names as checkpoint_names
from holdfast.storage.testing.checks import names_in, pattern, require, same
from holdfast.storage.testing.place import Place, opened

__all__ = ["ListClauses"]

_WAIT_S = 60
_MANY = 1100
_LISTINGS = 30

_NAMES = sorted(
    [
        *("a-b", "a.b", "a0", "aB", "a_b", "a~b", "a=b", "B", "b", "b.", "b-", "b0", "z"),
        *("a/b", "a/b-c", "a/c/d", "a/c-d", "a/c0", "a/C", "a-/b", "a1/b", "A/b", "c/d/e/f"),
    ]
)


class ListClauses:
    """What `list` owes."""

    def test_a_listing_shows_names_and_sizes(self, place: Place) -> None:
        """Each object once, under the name it was given, with the size that it has."""
        storage = opened(place)
        same(names_in(storage), [], "the listing of an empty place")
        sizes = {name: 37 * number for number, name in enumerate(_NAMES)}
        for name, size in sizes.items():
            storage.write(name, pattern(size, name))
        found = [(info.name, info.size_bytes) for info in storage.list("")]
        same(sorted(found), sorted(sizes.items()), "the listing")

    def test_a_listing_is_in_the_order_of_names(self, place: Place) -> None:
        """By code points, `/` among them: `a-b`, `a/b`, `a0`. Numbers in names rest on this."""
        storage = opened(place)
        for name in reversed(_NAMES):
            storage.write(name, b"x")
        for prefix in ("", "a", "a/", "b"):
            expected = [name for name in _NAMES if name.startswith(prefix)]
            same(names_in(storage, prefix), expected, f"the order of the listing of {prefix!r}")

    def test_many_numbers_are_listed_in_order(self, place: Place) -> None:
        """More objects than a store answers at once: ascending, so the last is the newest."""
        padded = [checkpoint_names.checkpoint_folder(number) for number in range(10_000)]
        same(sorted(padded), padded, "names of 10 000 numbers, sorted as text")
        storage = opened(place)
        numbers = [number * number * 7_919 for number in range(_MANY)]
        expected = [f"job/{checkpoint_names.metadata(number)}" for number in numbers]
        for name in expected[::-2] + expected[-2::-2]:
            storage.write(name, b"x")
        same(names_in(storage, "job/chk-"), expected, f"the listing of {_MANY} checkpoints")

    def test_a_prefix_is_plain_text(self, place: Place) -> None:
        """It may end anywhere: in a name, at its end, before or behind a slash, beyond all."""
        storage = opened(place)
        for name in _NAMES:
            storage.write(name, b"x")
        prefixes = {name[:end] for name in _NAMES for end in range(len(name) + 1)}
        for prefix in sorted(prefixes | {"a/c/d/", "a/c/d0", "a/c/d/e", "none", "none/", "aa"}):
            expected = [name for name in _NAMES if name.startswith(prefix)]
            same(names_in(storage, prefix), expected, f"the listing of prefix {prefix!r}")

    def test_an_illegal_prefix_lists_nothing(self, place: Place) -> None:
        """Nothing is listed then, above all nothing outside of the root."""
        storage = opened(place)
        for name in ("a/b", "a/c/d", "b"):
            storage.write(name, b"x")
        illegal = ("/", "//", "/a", "..", "../", "../..", "a/../", "./", ".", "a//", "a/./b", "a/.")
        for prefix in (*illegal, "/tmp/", "a b", "*", "a\0", "é"):
            same(names_in(storage, prefix), [], f"the listing of prefix {prefix!r}")
            same(list(storage.unfinished(prefix)), [], f"unfinished under {prefix!r}")

    def test_an_unfinished_write_is_not_listed(self, place: Place) -> None:
        """Neither under its name nor under any other, nor where a new one is being written."""
        storage = opened(place)
        storage.write("folder/old", b"old")
        writers = [storage.writer(name) for name in ("folder/old", "folder/new", "new")]
        for writer in writers:
            writer.write(pattern(70_000))
        for prefix in ("", "folder/", "folder/n", "n"):
            expected = [name for name in ["folder/old"] if name.startswith(prefix)]
            same(names_in(storage, prefix), expected, f"the listing of {prefix!r} while writing")
        for writer in writers:
            writer.abort()
        same(names_in(storage), ["folder/old"], "the listing after the aborts")

    def test_a_deleted_object_is_not_listed(self, place: Place) -> None:
        """Nor does anything else disappear, or a folder stay behind as if it were an object."""
        storage = opened(place)
        for name in _NAMES:
            storage.write(name, b"x")
        left = list(_NAMES)
        for name in _NAMES[::2] + _NAMES[1::2]:
            storage.delete([name])
            left.remove(name)
            same(names_in(storage), left, f"the listing after {name} was deleted")

    def test_a_listing_is_right_beside_changes(self, place: Place) -> None:
        """While other objects come and go, all that stay are shown, once each, in order."""
        storage = opened(place)
        staying = [f"folder/{number:03}/staying" for number in range(60)]
        for name in staying:
            storage.write(name, b"x")
        over = threading.Event()
        problems: list[Exception] = []

        def come_and_go(kind: str) -> None:
            passing = [f"folder/{number:03}/{kind}" for number in range(0, 60, 7)]
            while not over.is_set() and not problems:
                try:
                    for name in [*passing, f"folder/{kind}", f"other/{kind}"]:
                        storage.write(name, b"x")
                    storage.delete([*passing, f"folder/{kind}", f"other/{kind}"])
                except Exception as error:  # noqa: BLE001 (it is raised where the test sees it)
                    problems.append(error)

        threads = [threading.Thread(target=come_and_go, args=(k,)) for k in ("a-side", "z-side")]
        for thread in threads:
            thread.start()
        try:
            for _ in range(_LISTINGS):
                _shows(names_in(storage, "folder/"), staying)
        finally:
            over.set()
            for thread in threads:
                thread.join(_WAIT_S)
        require(not problems, f"writing and deleting beside a listing failed: {problems}")


def _shows(found: list[str], staying: Iterable[str]) -> None:
    same([name for name in found if name.endswith("staying")], staying, "all that stayed")
    same(found, sorted(set(found)), "a listing beside changes: each once, in order")
