"""Conversions that go on where they were: what was done before, and what of it is gone."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from holdfast.savepoints import StoredSnapshot, find_snapshot, validate
from holdfast.savepoints.conversion import ConversionOptions, InProcess
from holdfast.savepoints.conversion.journal import Journal
from holdfast.storage import (
    Corrupt,
    FileHandle,
    Invalid,
    SavepointFolder,
    Taken,
    Unavailable,
    load_storage,
)
from holdfast.storage.jobs.envelope import seal
from holdfast.storage.places.local import LocalObjects
from support.jobs.conversion_on_small_disk import (
    begin_until_full,
    check_is_none,
    check_same,
    conversion,
    tasks_done,
)

pytestmark = pytest.mark.usefixtures("small_pieces")


@pytest.mark.slow
@pytest.mark.parametrize("room", [1, 4, 9, 30, 55])
def test_a_full_disk_leaves_no_savepoint_and_another_run_resumes(
    large: StoredSnapshot, quick_path: Path, room: int
) -> None:
    to = quick_path / "to"
    begin_until_full(large, to, room)
    check_is_none(to)
    done = conversion(large, to).run()
    assert done.resumed == tasks_expected(room)
    check_same(large, to)


def tasks_expected(room: int) -> int:
    """Two writes for each piece; the plan and the marker of the run are created, not written."""
    return room // 2


def test_another_conversion_is_refused_unless_fresh_deletes_it(
    large: StoredSnapshot, quick_path: Path
) -> None:
    to = quick_path / "to"
    begin_until_full(large, to, 9)
    other = {"options": {"max_parallelism": 64}}
    with pytest.raises(Invalid, match=r"another conversion was begun.*--fresh"):
        conversion(large, to, **other).run()
    done = conversion(large, to, **other).run(fresh=True)
    assert done.resumed == 0
    check_same(large, to)


NEWER = seal("conversion plan", 2, ConversionOptions(backend=None, is_canonical=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "data"),
    [("plan", NEWER), ("plan", b"damaged"), ("task-00000000", b"damaged"), ("plan", NEWER[:40])],
    ids=["newer plan", "damaged plan", "damaged task", "truncated plan"],
)
def test_an_unreadable_journal_is_deleted_by_the_way_in_its_error(
    large: StoredSnapshot, quick_path: Path, file: str, data: bytes
) -> None:
    to = quick_path / "to"
    begin_until_full(large, to, 5)
    (to / "_conversion" / file).write_bytes(data)
    with pytest.raises((Invalid, Corrupt), match=f"{file}.*[Pp]ass --fresh"):
        conversion(large, to).run()
    assert conversion(large, to).run(fresh=True).resumed == 0
    check_same(large, to)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["lost", "truncated"])
@pytest.mark.parametrize("spread", [False, True])
def test_pieces_with_missing_files_are_done_again(
    large: StoredSnapshot, quick_path: Path, how: str, *, spread: bool
) -> None:
    to = quick_path / "to"
    options = {"options": {"max_parallelism": 64}} if spread else {}
    begin_until_full(large, to, 9, **options)
    noted = tasks_done(to)
    for file in [to / each for each in sorted(files_noted(to))[:2]]:
        if how == "lost":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:-9])
    done = conversion(large, to, **options).run()
    assert done.resumed == noted - 2
    check_same(large, to)


@pytest.mark.slow
@pytest.mark.parametrize("deletes", [1, 2, 3, 5])
def test_the_rest_of_a_killed_fresh_run_is_resumed(
    large: StoredSnapshot, quick_path: Path, monkeypatch: pytest.MonkeyPatch, deletes: int
) -> None:
    """It deletes what notes of pieces name only after the notes."""
    to = quick_path / "to"
    begin_until_full(large, to, 9)
    left = deletes
    delete = LocalObjects.delete

    def die(self: LocalObjects, listed: Iterable[str]) -> None:
        nonlocal left
        for name in listed:
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            delete(self, [name])

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(LocalObjects, "delete", die)
        conversion(large, to).run(fresh=True)
    assert all((to / file).exists() for file in files_noted(to))
    conversion(large, to).run()
    check_same(large, to)


def files_noted(to: Path) -> set[str]:
    journal = Journal(SavepointFolder(load_storage(str(to)), ""))
    noted = [journal.result(int(each.name[-8:])) for each in to.glob("_conversion/task-*")]
    handles = [handle for result in noted if result is not None for handle in result.handles]
    return {handle.file for handle in handles if isinstance(handle, FileHandle)}


def test_a_damaged_result_is_an_error_with_a_way_on(
    large: StoredSnapshot, quick_path: Path
) -> None:
    to = quick_path / "to"
    begin_until_full(large, to, 9)
    file = to / min(files_noted(to))
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)
    with pytest.raises(Corrupt, match=f"{file.name}.*with --fresh; the source is as it was"):
        conversion(large, to).run()
    check_is_none(to)
    conversion(large, to).run(fresh=True)
    check_same(large, to)


def test_a_complete_savepoint_is_not_replaced(large: StoredSnapshot, quick_path: Path) -> None:
    to = quick_path / "to"
    conversion(large, to).run()
    for changes in ({}, {"options": {"max_parallelism": 64}}):
        with pytest.raises(Taken, match=r"is complete.*--fresh"):
            conversion(large, to, **changes).run(fresh=True)
    check_same(large, to)


def test_a_completed_conversion_with_missing_files_is_an_error(
    large: StoredSnapshot, quick_path: Path
) -> None:
    to = quick_path / "to"
    conversion(large, to).run()
    (file, *_) = find_snapshot(str(to)).metadata.files()
    (to / file).unlink()
    with pytest.raises(Corrupt, match=f"files of a savepoint are missing or too short.*{file}"):
        conversion(large, to).run()


def test_an_abandoned_task_that_goes_on_does_no_harm(
    large: StoredSnapshot, quick_path: Path
) -> None:
    to = quick_path / "to"
    begun: list[tuple[Any, Any]] = []

    class Lost(InProcess):
        def run(self, work: Any, tasks: Any) -> Any:
            if not tasks:
                return iter(())
            begun.append((work, tasks))
            raise Unavailable("the driver has died")

    with pytest.raises(Unavailable, match="the driver has died"):
        conversion(large, to, runner=Lost()).run()
    other = {"options": {"max_parallelism": 64}}
    conversion(large, to, **other).run(fresh=True)
    ((work, tasks),) = begun
    work.do(tasks[0])
    assert not validate(find_snapshot(str(to)), lambda _: None).findings


def test_a_completed_conversion_is_not_done_again(large: StoredSnapshot, quick_path: Path) -> None:
    to = quick_path / "to"
    assert not conversion(large, to).run().was_done
    assert conversion(large, to).run().was_done
    with pytest.raises(Taken, match="a savepoint at the destination already"):
        conversion(large, to, options={"max_parallelism": 64}).run()
