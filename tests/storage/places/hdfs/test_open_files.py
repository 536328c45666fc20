"""Files of an HDFS that were opened lately are kept, a few of them, for a few seconds."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.storage import ManualClock
from holdfast.storage.places.hdfs.client import OpenFiles


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0)


@pytest.fixture
def files(clock: ManualClock) -> OpenFiles:
    return OpenFiles(clock)


def file(name: str) -> Any:
    """Stands for a file; these tests do not read it."""
    return name


def test_a_file_is_kept_for_a_while(files: OpenFiles, clock: ManualClock) -> None:
    files.keep("/a", file("first"))
    clock.advance(4_900)
    assert files.get("/a") == file("first")
    clock.advance(200)
    assert files.get("/a") is None
    assert files.get("/never") is None


def test_use_does_not_extend_how_long_a_file_is_kept(files: OpenFiles, clock: ManualClock) -> None:
    files.keep("/a", file("first"))
    for _ in range(3):
        clock.advance(2_000)
        files.get("/a")
    assert files.get("/a") is None


def test_a_reopened_file_replaces_the_kept_one(files: OpenFiles) -> None:
    files.keep("/a", file("first"))
    files.keep("/a", file("second"))
    assert files.get("/a") == file("second")
    files.drop("/a")
    files.drop("/a")
    assert files.get("/a") is None


def test_the_oldest_make_room(files: OpenFiles) -> None:
    for number in range(20):
        files.keep(f"/{number}", file(str(number)))
    there = [number for number in range(20) if files.get(f"/{number}") is not None]
    assert there == [*range(4, 20)]
