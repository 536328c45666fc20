"""Which files of a query's log put it back to just after a batch. No Spark is needed for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.runtime.spark.query_log import position_files, read_files, write_files
from holdfast.storage import Corrupt


def log(location: Path, *names: str) -> Path:
    write_files(location, {name: name.encode() for name in names})
    return location


def test_the_last_two_batches_are_kept_with_their_commits(tmp_path: Path) -> None:
    batches = [f"{kind}/{number}" for kind in ("offsets", "commits") for number in range(5)]
    log(tmp_path, "metadata", *batches, "offsets/5")
    expected = ["metadata", "offsets/2", "offsets/3", "commits/2", "commits/3"]
    assert position_files(tmp_path, 3) == expected


def test_a_batch_that_spark_has_not_noted_is_offered_again(tmp_path: Path) -> None:
    log(tmp_path, "metadata", "offsets/0", "commits/0", "offsets/1")
    assert position_files(tmp_path, 1) == ["metadata", "offsets/0", "offsets/1", "commits/0"]


def test_the_first_batch_has_none_before_it(tmp_path: Path) -> None:
    log(tmp_path, "metadata", "offsets/0", "commits/0")
    assert position_files(tmp_path, 0) == ["metadata", "offsets/0", "commits/0"]


def test_what_sources_remember_is_kept_without_what_is_being_written(tmp_path: Path) -> None:
    log(tmp_path, "metadata", "offsets/0", "commits/0", "sources/0/0", "sources/1/0")
    log(tmp_path, "sources/0/.0.crc", "sources/0/.1.uuid.tmp", "sources/0/x.tmp")
    found = position_files(tmp_path, 0)
    assert [name for name in found if name.startswith("sources")] == ["sources/0/0", "sources/1/0"]


def test_what_a_compaction_before_the_last_has_taken_up_is_left_out(tmp_path: Path) -> None:
    numbers = [f"{n}.compact" if n % 10 == 9 else str(n) for n in range(25)]
    log(tmp_path, "metadata", "offsets/24", *(f"sources/0/{name}" for name in numbers))
    found = [name for name in position_files(tmp_path, 24) if name.startswith("sources")]
    assert {*found} == {f"sources/0/{name}" for name in numbers[9:]}


def test_one_compaction_leaves_out_nothing(tmp_path: Path) -> None:
    names = [f"sources/0/{name}" for name in (*map(str, range(9)), "9.compact", "10")]
    log(tmp_path, "metadata", "offsets/10", *names)
    found = [name for name in position_files(tmp_path, 10) if name.startswith("sources")]
    assert {*found} == {*names}


def test_files_go_there_and_back(tmp_path: Path) -> None:
    here = log(tmp_path / "a", "metadata", "offsets/0", "sources/0/0")
    files = read_files(here, position_files(here, 0), where="source 's'")
    write_files(tmp_path / "b", files)
    assert read_files(tmp_path / "b", [*files], where="") == files
    assert position_files(tmp_path / "b", 0) == position_files(here, 0)


def test_only_what_sources_remember_may_be_gone_meanwhile(tmp_path: Path) -> None:
    here = log(tmp_path, "metadata", "offsets/0")
    read = read_files(here, ["metadata", "sources/0/0", "offsets/0"], where="")
    assert {*read} == {"metadata", "offsets/0"}
    with pytest.raises(Corrupt, match="a file of a query's log is missing"):
        read_files(here, ["metadata", "offsets/1"], where="source 's'")
