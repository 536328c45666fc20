"""What of a query's log is its position, told without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.runtime.spark.sources.positions import QUERY_KIND, read_position
from holdfast.runtime.spark.sources.query_log import (
    position_files,
    read_files,
    with_query_id,
    write_files,
)
from holdfast.storage import Corrupt, InlineHandle, StateSnapshot


def make_log(location: Path, *, batches: int, compactions: tuple[int, ...] = ()) -> None:
    """A log of a source of files of which the last batch is being run, and the next is planned."""
    files = {"metadata": b'{"id":"a"}'}
    for batch in range(batches):
        lines = ["v1", "{}", json.dumps({"logOffset": batch})]
        files[f"offsets/{batch}"] = "\n".join(lines).encode()
    for batch in range(batches - 1):
        files[f"commits/{batch}"] = b"v1\n{}"
    for entry in range(batches + 1):
        ending = ".compact" if entry in compactions else ""
        files[f"sources/0/{entry}{ending}"] = b"v1"
    files[f"sources/0/.{batches}.crc"] = b"hidden"
    write_files(location, files)


def entries(files: list[str]) -> list[str]:
    return [name.removeprefix("sources/0/") for name in files if name.startswith("sources/")]


def test_the_position_is_that_after_the_batch_and_no_later_one(tmp_path: Path) -> None:
    make_log(tmp_path, batches=4)
    found = position_files(tmp_path, 2)
    assert [name for name in found if not name.startswith("sources/")] == [
        "metadata",
        "offsets/1",
        "offsets/2",
        "commits/1",
        "commits/2",
    ]
    assert entries(found) == ["0", "1", "2"]
    assert "commits/3" not in position_files(tmp_path, 3), "the batch is not done"
    assert entries(position_files(tmp_path, 3)) == ["0", "1", "2", "3"]


def test_compacted_files_are_left_out(tmp_path: Path) -> None:
    make_log(tmp_path, batches=31, compactions=(9, 19, 29))
    assert set(entries(position_files(tmp_path, 30))) == {
        *map(str, range(20, 29)),
        "19.compact",
        "29.compact",
        "30",
    }


def test_a_compaction_of_a_later_batch_does_not_count(tmp_path: Path) -> None:
    make_log(tmp_path, batches=29, compactions=(9, 19, 29))
    assert set(entries(position_files(tmp_path, 28))) == {
        "9.compact",
        *map(str, range(10, 19)),
        "19.compact",
        *map(str, range(20, 29)),
    }


@pytest.mark.parametrize("offsets", ["v2\n{}\n{}", "v1\n{}\n-", 'v1\n{}\n{"partition":3}', "v1"])
def test_other_sources_keep_all_that_they_remember(tmp_path: Path, offsets: str) -> None:
    make_log(tmp_path, batches=2)
    (tmp_path / "offsets" / "1").write_text(offsets)
    assert entries(position_files(tmp_path, 1)) == ["0", "1", "2"]


def test_a_log_comes_back_as_it_was(tmp_path: Path) -> None:
    make_log(tmp_path / "log", batches=2)
    read = read_files(tmp_path / "log", position_files(tmp_path / "log", 1), where="source 'a'")
    write_files(tmp_path / "copy", read)
    assert read == read_files(tmp_path / "copy", list(read), where="source 'a'")


def test_a_file_that_nothing_can_do_without(tmp_path: Path) -> None:
    make_log(tmp_path, batches=2)
    assert "sources/0/9" not in read_files(tmp_path, ["sources/0/9"], where="source 'a'")
    with pytest.raises(Corrupt) as caught:
        read_files(tmp_path, ["offsets/9"], where="source 'a'")
    assert str(caught.value) == (
        f"a file of a query's log is missing [source 'a']: expected {tmp_path}/offsets/9. Nothing "
        "but Spark may change the log of a running query"
    )


def test_the_first_batch_has_none_before_it(tmp_path: Path) -> None:
    make_log(tmp_path, batches=2)
    found = position_files(tmp_path, 0)
    assert found == ["metadata", "offsets/0", "commits/0", "sources/0/0"]


def test_unfinished_files_are_left_out_and_all_sources_are_included(tmp_path: Path) -> None:
    make_log(tmp_path, batches=1)
    write_files(
        tmp_path, {"sources/1/0": b"v1", "sources/1/1.uuid.tmp": b"", "sources/1/.0.crc": b""}
    )
    found = position_files(tmp_path, 0)
    assert found[-2:] == ["sources/0/0", "sources/1/0"]


def test_before_the_first_batch_it_is_what_was_settled_by_then(tmp_path: Path) -> None:
    assert position_files(tmp_path, None) == []
    write_files(tmp_path, {"metadata": b"{}", "sources/0/0": b"latest is 7"})
    assert position_files(tmp_path, None) == ["metadata", "sources/0/0"]


def test_before_the_first_batch_it_keeps_how_that_was_planned(tmp_path: Path) -> None:
    make_log(tmp_path, batches=1)
    assert position_files(tmp_path, None) == ["metadata", "offsets/0", "sources/0/0"]


def test_before_the_first_batch_it_has_nothing_of_later_ones(tmp_path: Path) -> None:
    """Files are read in the background, and Spark may have gone on."""
    make_log(tmp_path, batches=3)
    assert position_files(tmp_path, None) == ["metadata", "offsets/0", "sources/0/0"]
    (tmp_path / "offsets" / "0").unlink()
    with pytest.raises(Corrupt, match="a file of a query's log is missing"):
        read_files(tmp_path, position_files(tmp_path, None), where="source 'a'")


def test_a_log_of_another_query_has_another_id_and_all_else() -> None:
    files = {"metadata": b'{"id":"a","kind":"b"}', "offsets/0": b"v1"}
    changed = with_query_id(files, "c")
    assert json.loads(changed["metadata"]) == {"id": "c", "kind": "b"}
    assert changed["offsets/0"] == b"v1"
    assert json.loads(with_query_id({}, "c")["metadata"]) == {"id": "c"}


@pytest.mark.parametrize("metadata", [b"", b"[]", b"\xff"])
def test_metadata_that_spark_did_not_write(metadata: bytes) -> None:
    with pytest.raises(Corrupt, match="the metadata of a query's log cannot be read"):
        with_query_id({"metadata": metadata}, "c")


@pytest.mark.parametrize(
    "name",
    [
        "../../.profile",
        "/etc/profile",
        "sources/../../x",
        "offsets/..",
        "offsets//x",
        "sources/0/./1",
        "sources\\..\\x",
        "metadata/\0",
        "elsewhere/0",
        "",
        ".",
    ],
)
def test_a_crafted_position_writes_no_file_elsewhere(name: str) -> None:
    """Refused before any of its files is read, or a folder for them is made."""
    snapshot = StateSnapshot(
        kind=QUERY_KIND,
        handles={"offsets/0": InlineHandle(b"1"), name: InlineHandle(b"1")},
        attributes={"batch": 0},
    )
    with pytest.raises(Corrupt, match="a file that no log of a query has"):
        read_position(snapshot, QUERY_KIND, "clicks")
