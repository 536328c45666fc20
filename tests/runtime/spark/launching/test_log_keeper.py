"""The files of a query's log in checkpoints: each is written once for those that are complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.runtime.spark.sources.positions import LogKeeper
from holdfast.storage import FileHandle, FileSystemCheckpointStorage, Handle, JobStorage


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    storage = FileSystemCheckpointStorage(str(tmp_path))
    storage.prepare()
    return storage.job("job")


def log(*names: str) -> dict[str, bytes]:
    return {name: name.encode() * 10 for name in names}


def writers(handles: dict[str, Handle]) -> dict[str, int]:
    """Which checkpoint has written each file."""
    found = {name: each.file for name, each in handles.items() if isinstance(each, FileHandle)}
    assert found.keys() == handles.keys()
    return {name: int(file.removeprefix("shared/")[:20]) for name, file in found.items()}


def test_a_file_that_the_completed_checkpoint_has_is_not_written_again(job: JobStorage) -> None:
    keeper = LogKeeper("orders", job)
    first = keeper.keep(1, log("a", "b"), completed=None)
    assert writers(first) == {"a": 1, "b": 1}
    second = keeper.keep(2, log("b", "c"), completed=1)
    assert writers(second) == {"b": 1, "c": 2}
    third = keeper.keep(3, log("b", "c", "d"), completed=2)
    assert writers(third) == {"b": 1, "c": 2, "d": 3}
    assert {name: job.read(each) for name, each in third.items()} == log("b", "c", "d")
    assert keeper.keep(4, log("c", "d"), completed=3) == {name: third[name] for name in "cd"}
    assert writers(keeper.keep(5, log("a"), completed=4)) == {"a": 5}, "4 does not have it any more"


def test_a_file_of_a_checkpoint_that_is_not_complete_is_written_again(job: JobStorage) -> None:
    """It may never be, and its files are deleted then."""
    keeper = LogKeeper("orders", job)
    keeper.keep(1, log("a"), completed=None)
    assert writers(keeper.keep(2, log("a", "b"), completed=1)) == {"a": 1, "b": 2}
    assert writers(keeper.keep(3, log("a", "b"), completed=1)) == {"a": 1, "b": 3}
    assert writers(keeper.keep(4, log("a", "b"), completed=2)) == {"a": 1, "b": 2}
    assert writers(keeper.keep(5, log("a", "b"), completed=2)) == {"a": 1, "b": 2}
    assert writers(keeper.keep(6, log("a", "b"), completed=4)) == {"a": 1, "b": 2}


def test_the_first_builds_on_what_was_restored_if_that_is_in_the_same_folder(
    job: JobStorage,
) -> None:
    restored = LogKeeper("orders", job).keep(7, log("a", "b"), completed=None)
    keeper = LogKeeper("orders", job, restored)
    assert writers(keeper.keep(9, log("b", "c"), completed=7)) == {"b": 7, "c": 9}
    assert writers(keeper.keep(10, log("b", "c"), completed=7)) == {"b": 7, "c": 10}
    assert writers(keeper.keep(11, log("b", "c"), completed=10)) == {"b": 7, "c": 10}
    assert writers(LogKeeper("orders", job).keep(12, log("b"), completed=None)) == {"b": 12}
