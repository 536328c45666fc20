"""Clauses about reading: ranges, empty objects, missing objects."""

from __future__ import annotations

from itertools import product

from holdfast.storage.errors import Invalid, NotFound
from holdfast.storage.testing.checks import names_place, owed, pattern, reads, require, same
from holdfast.storage.testing.place import Place, opened

__all__ = ["ReadingClauses"]


class ReadingClauses:
    """What `read` and `read_range` owe."""

    def test_reads_back_what_was_written(self, place: Place) -> None:
        """Every byte value comes back as it was given, whatever the size: state is binary."""
        storage = opened(place)
        contents = [bytes(range(256)), b"\r\n\0\x1a\xff", *map(pattern, (1, 255, 4097, 70_001))]
        for number, content in enumerate(contents):
            storage.write(f"object-{number}", content)
        for number, content in enumerate(contents):
            reads(storage, f"object-{number}", content, "what was written")

    def test_a_range_is_just_its_bytes(self, place: Place) -> None:
        """A range is `data[offset:offset + length]`; handles point into the middle of files."""
        storage = opened(place)
        data = pattern(9)
        storage.write("object", data)
        for offset, length in product(range(10), (None, *range(1, 10))):
            end = None if length is None else offset + length
            found = storage.read_range("object", offset, length)
            same(found, data[offset:end], f"{length} bytes from {offset}")

    def test_a_range_past_the_end_answers_what_is_there(self, place: Place) -> None:
        """Fewer bytes, or none, and no error: a reader tells a short file by what it gets."""
        storage = opened(place)
        data = pattern(9)
        storage.write("object", data)
        storage.write("empty", b"")
        far = 1 << 40
        for offset, length in product((0, 8, 9, 10, far), (None, 10, far)):
            end = None if length is None else offset + length
            what = f"{length} bytes from {offset} of 9"
            same(storage.read_range("object", offset, length), data[offset:end], what)
            same(storage.read_range("empty", offset, length), b"", f"{what}, of an empty object")

    def test_a_range_of_no_bytes_is_empty(self, place: Place) -> None:
        """Length zero is no bytes, not "to the end", wherever it begins."""
        storage = opened(place)
        storage.write("object", pattern(9))
        for offset in (0, 4, 9, 20):
            same(storage.read_range("object", offset, 0), b"", f"no bytes from {offset}")

    def test_a_negative_range_is_invalid(self, place: Place) -> None:
        """A negative number is a mistake in the code, never counted from the end."""
        storage = opened(place)
        storage.write("object", pattern(9))
        for offset, length in ((-1, None), (-1, 1), (-9, 9), (0, -1), (3, -2), (-1, -1)):
            with owed(Invalid, f"{length} bytes from {offset}"):
                storage.read_range("object", offset, length)

    def test_an_empty_object_is_not_a_missing_one(self, place: Place) -> None:
        """Empty state exists: it is read and listed, and differs from no state."""
        storage = opened(place)
        storage.write("empty", b"")
        reads(storage, "empty", b"", "an empty object")
        same([(i.name, i.size_bytes) for i in storage.list("")], [("empty", 0)], "its listing")

    def test_a_missing_object_is_not_found(self, place: Place) -> None:
        """NotFound for every range, in an empty place, beside other objects and after a delete."""
        storage = opened(place)
        with owed(NotFound, "read in an empty place"):
            storage.read("missing")
        storage.write("missing-not", b"x")
        storage.write("folder/deleted", b"x")
        storage.delete(["folder/deleted"])
        for name in ("missing", "missing-not-at-all", "folder/missing", "folder/deleted"):
            for offset, length in ((0, None), (0, 0), (3, 5)):
                with owed(NotFound, f"{length} bytes from {offset} of {name}"):
                    storage.read_range(name, offset, length)

    def test_a_missing_object_is_named(self, place: Place) -> None:
        """The error says which object, and in which storage: an operator must find the place."""
        storage = opened(place)
        with owed(NotFound, "read of a missing object") as caught:
            storage.read("folder/missing-object")
        message = str(caught[0])
        require("folder/missing-object" in message, f"the error must name the object: {message}")
        names_place(message, storage, "the error")

    def test_a_folder_is_not_an_object(self, place: Place) -> None:
        """A prefix of a name, or a name continued, is not an object: NotFound."""
        storage = opened(place)
        storage.write("one/two/three", b"x")
        for name in ("one", "one/two", "one/two/three/four", "one/two/three/four/five"):
            for offset, length in ((0, None), (0, 0)):
                with owed(NotFound, f"{length} bytes of {name}, where one/two/three is"):
                    storage.read_range(name, offset, length)
