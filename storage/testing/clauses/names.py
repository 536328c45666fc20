"""Clauses about names: every legal one works, no illegal one does anything."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.storage.checkpoint_storage import CheckpointStorage
from holdfast.storage.errors import Invalid
from holdfast.storage.names import LEGAL_CHARACTERS
from holdfast.storage.testing.checks import (
    names_in,
    nothing_left,
    outcome_of,
    owed,
    pattern,
    reads,
    require,
    same,
)
from holdfast.storage.testing.place import Place, opened

__all__ = ["ILLEGAL_NAMES", "NameClauses"]

ILLEGAL_NAMES = (
    "",
    "/",
    "/absolute",
    "ends/",
    "two//slashes",
    ".",
    "..",
    "../outside",
    "inside/../../outside",
    "inside/.",
    ".hidden",
    "inside/.hidden",
    "a b",
    "back\\slash",
    "nul\0character",
    "line\n",
    "a*b?",
    "per%cent",
    "col:on",
    "é",
    "部",
    "\ud800",
    "p" * 201,
    "/".join("p" * 100 for _ in range(10)),
)


class NameClauses:
    """What a storage owes for names that `names.check_name` accepts, and for others."""

    def test_every_legal_character_is_kept(self, place: Place) -> None:
        """All of them in one name, and each by itself wherever it may stand."""
        storage = opened(place)
        leading = LEGAL_CHARACTERS.replace(".", "")
        names = [LEGAL_CHARACTERS, f"folder-{LEGAL_CHARACTERS}/{LEGAL_CHARACTERS}"]
        names += [f"first/{character}x" for character in leading]
        names += [f"last/x{character}" for character in LEGAL_CHARACTERS]
        names += [f"folders/x{character}/x" for character in LEGAL_CHARACTERS]
        _keeps(storage, names)

    def test_names_that_look_alike_stay_apart(self, place: Place) -> None:
        """No case folding, no decoding, no trimming: each of these is an object of its own."""
        storage = opened(place)
        names = ["a", "A", "a.", "a..", "a~", "a=", "a-", "a--", "a_", "a~61", "~61", "=", "a.a"]
        _keeps(storage, names + [f"folder/{name}" for name in names])
        _keeps(storage, ["Folder/a", "FOLDER/a"])

    def test_long_names_are_kept(self, place: Place) -> None:
        """Parts of two hundred characters, names of nine hundred, and as deep as they can go."""
        storage = opened(place)
        part = "p" * 200
        deep = "/".join("d" * 450)
        _keeps(storage, [f"f{part[1:]}", "/".join([part] * 4 + ["p" * 96]), deep])
        storage.delete([deep])
        require(deep not in names_in(storage), "a deep name must be gone once deleted")

    def test_no_legal_name_is_hidden(self, place: Place) -> None:
        """A storage may mark unfinished writes by name, but not by a name that an object has."""
        storage = opened(place)
        names = ["object.unfinished", "object.tmp", "object~", "_metadata", "_temporary", "-", "~"]
        names += ["object.0123456789abcdef.unfinished", "a.part", "a.crc", "_SUCCESS", "CON"]
        _keeps(storage, names + [f"folder/{name}" for name in names])
        same(list(storage.unfinished("")), [], "unfinished writes, where all were finished")

    def test_an_illegal_name_is_refused_by_every_verb(self, place: Place) -> None:
        """Invalid, and nothing is done: no name leads out of the root, none is quietly changed."""
        storage = opened(place)
        for name in ILLEGAL_NAMES:
            verbs: dict[str, Callable[[], object]] = {
                "read": partial(storage.read, name),
                "read_range": partial(storage.read_range, name, 0, 1),
                "writer": partial(storage.writer, name),
                "write": partial(storage.write, name, b"x"),
                "create": partial(storage.create, name, b"x"),
                "delete": partial(storage.delete, [name]),
            }
            for verb, call in verbs.items():
                with owed(Invalid, f"{verb} of {name[:40]!r}"):
                    call()
        nothing_left(storage, place.count, "after illegal names were refused")

    def test_an_illegal_name_is_no_other_name(self, place: Place) -> None:
        """A mistaken name harms no object that a file system would take it for.

        Two slashes are not one, and a dot is not the folder itself.
        """
        storage = opened(place)
        storage.write("folder/object", b"kept")
        mistaken = ("folder//object", "/folder/object", "folder/./object", "folder/object/")
        for name in (*mistaken, "x/../folder/object"):
            outcomes = [
                outcome_of(partial(storage.delete, [name])),
                outcome_of(partial(storage.write, name, b"harm")),
                outcome_of(partial(storage.create, name, b"harm")),
            ]
            reads(storage, "folder/object", b"kept", f"after delete and write of {name}")
            same([type(found) for found in outcomes], [Invalid] * 3, f"verbs for {name}")

    def test_a_name_below_another_is_kept_or_refused(self, place: Place) -> None:
        """`a` and `a/b` at once: Invalid, or both are kept. Never is one lost without a word.

        Directories cannot have both, buckets can. Holdfast itself never asks for it.
        """
        storage = opened(place)
        for verb in ("write", "create"):
            for first, second in ((f"{verb}-a", f"{verb}-a/b"), (f"{verb}-c/d/e", f"{verb}-c")):
                call = storage.write if verb == "write" else storage.create
                call(first, b"first")
                outcome = outcome_of(partial(call, second, b"second"))
                reads(storage, first, b"first", f"after {verb} of {second}")
                kept = [first] if isinstance(outcome, Invalid) else sorted([first, second])
                if outcome is None:
                    reads(storage, second, b"second", f"after {verb} of {second} beside {first}")
                allowed = outcome is None or isinstance(outcome, Invalid)
                require(allowed, f"{verb} of {second} beside {first} must work or be Invalid")
                same(names_in(storage, min(first, second)), kept, f"the listing after {verb}")
                same(list(storage.unfinished("")), [], f"left by the {verb} of {second}")


def _keeps(storage: CheckpointStorage, names: list[str]) -> None:
    for name in names:
        storage.write(name, pattern(20, name))
    for name in names:
        reads(storage, name, pattern(20, name), "a legal name")
    listed = set(names_in(storage))
    missing = [name for name in names if name not in listed]
    require(not missing, f"every legal name must be listed as it was given, not so: {missing[:5]}")
