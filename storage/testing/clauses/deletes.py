"""Clauses about `delete` and `unfinished`: what is gone, what is left, and how to be rid of it."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.storage.checkpoint_storage import CheckpointStorage
from holdfast.storage.errors import Invalid
from holdfast.storage.interface import ObjectWriter
from holdfast.storage.testing import other_processes
from holdfast.storage.testing.checks import (
    is_absent,
    names_in,
    nothing_left,
    owed,
    pattern,
    reads,
    require,
    same,
)
from holdfast.storage.testing.place import Place, opened

__all__ = ["DeleteClauses", "UnfinishedClauses"]


class DeleteClauses:
    """What `delete` owes."""

    def test_delete_removes_the_named_objects(self, place: Place) -> None:
        """The object is gone for every reader, also one that was opened before; no other is."""
        storage, other = opened(place), place.open()
        names = ["object", "object-2", "objec", "folder/object", "folder/object-2"]
        for name in names:
            storage.write(name, pattern(100, name))
        for name in ("object", "folder/object"):
            storage.delete([name])
            is_absent(storage, name, "after delete")
            is_absent(other, name, "after delete, through another storage object")
        for name in ("object-2", "objec", "folder/object-2"):
            reads(other, name, pattern(100, name), "what was not deleted")

    def test_delete_takes_many_names_at_once(self, place: Place) -> None:
        """Any iterable, read once, also one that lists the storage while it is deleted from."""
        storage = opened(place)
        names = [f"many/{number:03}" for number in range(300)]
        for name in [*names, "kept/object"]:
            storage.write(name, b"x")
        storage.delete(name for name in names[:100])
        same(names_in(storage, "many/"), names[100:], "left of 300 after deleting 100")
        storage.delete(info.name for info in storage.list("many/"))
        same(names_in(storage), ["kept/object"], "left after deleting what a listing answered")
        storage.delete([])
        storage.delete(iter(()))
        same(names_in(storage), ["kept/object"], "left after deleting nothing")

    def test_deleting_an_absent_object_is_not_an_error(self, place: Place) -> None:
        """It was deleted before, never there, or only looks like a folder: no error, no harm."""
        storage = opened(place)
        storage.delete(["never", "folder/never"])
        storage.write("folder/one/object", b"kept")
        storage.write("object", b"deleted")
        storage.delete(["never", "object", "never", "object", "folder/one/never"])
        storage.delete(["object"])
        is_absent(storage, "object", "after deleting twice")
        for name in ("folder", "folder/one", "folder/one/object/below", "folder/one/object/b/c"):
            storage.delete([name])
            reads(storage, "folder/one/object", b"kept", f"after deleting {name}")

    def test_delete_goes_on_past_a_failure(self, place: Place) -> None:
        """Every object that can be deleted is; then the failure is reported.

        Else one name that fails would keep all those behind it, each time it is tried again.
        """
        storage = opened(place)
        names = ["folder/first", "folder/second", "third"]
        for name in names:
            storage.write(name, b"x")
        with owed(Invalid, "delete of legal names and illegal ones"):
            storage.delete([".illegal", names[0], "il legal", *names[1:], "illegal/"])
        same(names_in(storage), [], "the listing after a delete that failed for other names")
        nothing_left(storage, place.count, "after a delete that failed for other names")

    def test_delete_of_the_last_object_leaves_the_place_usable(self, place: Place) -> None:
        """A folder that goes with its last object comes back with its next.

        Also for a writer that was begun in it before.
        """
        storage = opened(place)
        for _ in range(3):
            storage.write("folder/one", b"1")
            writer = storage.writer("folder/two")
            writer.write(b"2")
            storage.delete(["folder/one"])
            writer.commit()
            reads(storage, "folder/two", b"2", "written while its folder was emptied")
            storage.delete(["folder/two"])
        nothing_left(storage, place.count, "after all was deleted")


class UnfinishedClauses:
    """What `unfinished` owes, and `delete` of the names in its answer."""

    def test_an_unfinished_write_is_found(self, place: Place) -> None:
        """Whatever a writer has left is found, with the object that it was meant for.

        Otherwise it would take up room for ever. A writer that left nothing has none to list.
        """
        storage = opened(place)
        storage.write("folder/done", b"done")
        writers = _begin(storage, ["folder/object", "object", "folder/done"])
        found = list(storage.unfinished(""))
        same(
            sorted({write.target for write in found} - {"folder/object", "object", "folder/done"}),
            [],
            "targets of unfinished writes that were never begun",
        )
        require(all(write.size_bytes >= 0 for write in found), "sizes of unfinished writes")
        if place.count is not None:
            same(place.count(), 1 + len(found), "files at the place: one object, and the found")
        same(len({write.name for write in found}), len(found), "names of unfinished writes")
        _abort(writers)

    def test_unfinished_writes_are_found_by_prefix(self, place: Place) -> None:
        """The prefix is that of the object that would have appeared, as in a listing."""
        storage = opened(place)
        names = ["a/b", "a/bc", "a/c/d", "a0/b", "b"]
        writers = _begin(storage, names)
        shown = sorted(write.target for write in storage.unfinished(""))
        for prefix in ("a", "a/", "a/b", "a/bc", "a/c", "a/c/", "a0", "b", "c", "a/b/"):
            expected = [name for name in shown if name.startswith(prefix)]
            found = sorted(write.target for write in storage.unfinished(prefix))
            same(found, expected, f"unfinished writes under {prefix!r}")
        _abort(writers)

    def test_a_finished_write_is_not_unfinished(self, place: Place) -> None:
        """After commit, abort and create nothing is left to clean up."""
        storage = opened(place)
        committed, aborted, _ = _begin(storage, ["folder/a", "folder/b", "folder/c"])
        before = sorted(write.target for write in storage.unfinished(""))
        committed.commit()
        aborted.abort()
        storage.create("folder/d", b"created")
        storage.create("folder/d", b"refused")
        expected = [name for name in before if name == "folder/c"]
        found = [write.target for write in storage.unfinished("")]
        same(found, expected, "unfinished writes after the others ended")

    def test_unfinished_writes_can_be_deleted(self, place: Place) -> None:
        """`delete` takes the names that `unfinished` gave, and the objects stay."""
        storage = opened(place)
        storage.write("folder/object", b"kept")
        writers = _begin(storage, ["folder/object", "folder/other", "other"])
        found = list(storage.unfinished(""))
        storage.delete(write.name for write in found)
        storage.delete([write.name for write in found])
        same(list(storage.unfinished("")), [], "unfinished writes after they were deleted")
        reads(storage, "folder/object", b"kept", "the object beside the leftovers")
        same(names_in(storage), ["folder/object"], "the listing after the leftovers were deleted")
        _abort(writers)
        reads(storage, "folder/object", b"kept", "after late aborts")
        storage.delete(["folder/object"])
        nothing_left(storage, place.count, "after object and leftovers were deleted")

    def test_a_killed_writer_leaves_nothing_visible(self, place: Place) -> None:
        """SIGKILL in the middle of a write: no object, and the remains are found and deleted."""
        storage = opened(place, "shared_between_processes")
        storage.write("folder/old", b"old")
        with other_processes.half_written(storage, ["folder/new", "folder/old"]) as kill:
            same(names_in(storage), ["folder/old"], "the listing while another process writes")
            kill()
        same(names_in(storage), ["folder/old"], "the listing after the writer was killed")
        reads(storage, "folder/old", b"old", "after its new writer was killed")
        left = list(storage.unfinished("folder/"))
        if place.count is not None:
            same(place.count(), 1 + len(left), "files at the place: one object, and the found")
        storage.delete([write.name for write in left])
        storage.write("folder/new", b"new")
        reads(storage, "folder/new", b"new", "written after a writer was killed")
        storage.delete(["folder/old", "folder/new"])
        nothing_left(storage, place.count, "after the remains of killed writers were deleted")


def _begin(storage: CheckpointStorage, names: Iterable[str]) -> list[ObjectWriter]:
    writers = []
    for name in names:
        writer = storage.writer(name)
        writer.write(pattern(70_000))
        writers.append(writer)
    return writers


def _abort(writers: Iterable[ObjectWriter]) -> None:
    for writer in writers:
        writer.abort()
