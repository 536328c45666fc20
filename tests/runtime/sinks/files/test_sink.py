"""Files of a sink: their names, when they roll over, and what is refused and how."""

import itertools
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from holdfast.runtime.sinks import FileSink, SinkWriter
from holdfast.runtime.sinks.files.committables import Action, FileCommittable, action_for, age_of
from holdfast.runtime.sinks.files.local_folder import LocalOutputFolder
from holdfast.runtime.sinks.testing.sink_jobs import SCHEMA, rows
from holdfast.storage import (
    Corrupt,
    SeededEntropy,
    Unavailable,
)
from support.full_disk import largest_file
from support.jobs.sink_files import context, facts, files_in, prepared


def test_names_contain_writer_and_checkpoint_and_are_hidden_until_the_commit(
    tmp_path: Path,
) -> None:
    sink = FileSink(str(tmp_path), entropy=SeededEntropy(1))
    token = SeededEntropy(1).token()
    writer = sink.open_writer(context(uid="où/t", attempt="0.1"))
    writer.write(rows(0, 2))
    hidden = f"_holdfast/job/o~C3~B9~2Ft/0.1-00003-00000-{token}.unfinished"
    assert files_in(tmp_path) == [hidden]
    (committable,) = writer.prepare(42)
    assert files_in(tmp_path) == [hidden]
    final = f"part-o~C3~B9~2Ft-000000000042-00003-00000-{token}.parquet"
    assert committable == FileCommittable(
        root=str(tmp_path),
        hidden=hidden,
        final=final,
        size_bytes=(tmp_path / hidden).stat().st_size,
        rows=2,
    )
    sink.commit([committable], context(uid="où/t"))
    assert files_in(tmp_path) == [final]


CRAFTED = [
    ("../../victim", None),
    ("/etc/passwd", None),
    ("_holdfast/../victim/x/y", None),
    ("_holdfast/job/another/0.1-00003-00000-ab.unfinished", None),
    ("_holdfast/job/out/../out/0.1-00003-00000-ab.unfinished", None),
    ("_holdfast/job/out/README", None),
    ("_holdfast/job/out/~FF-00003-00000-ab.unfinished", None),
    ("_holdfast/job/out/~41-00003-00000-ab.unfinished", None),
    ("_holdfast/job/out/0.1-3-0-ab.unfinished", None),
    (None, "../victim"),
    (None, "/etc/cron.d/part-out-1"),
    (None, "part-out-/../../victim"),
    (None, "part-another-000000000042-00003-00000-ab.parquet"),
    (None, "part-out-1\n"),
]


@pytest.mark.parametrize(("hidden", "final"), CRAFTED)
def test_a_crafted_committable_moves_and_removes_nothing(
    tmp_path: Path, hidden: str | None, final: str | None
) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    sink = FileSink(str(tmp_path / "out"))
    (honest,) = prepared(sink)
    crafted = replace(
        honest, size_bytes=8, hidden=hidden or honest.hidden, final=final or honest.final
    )
    before = files_in(tmp_path)
    for verb in (sink.commit, sink.clean):
        with pytest.raises(Corrupt, match="no such sink has written"):
            verb([honest, crafted], context(attempt="9"))
    assert files_in(tmp_path) == before
    assert (tmp_path / "victim").read_bytes() == b"precious"


@pytest.mark.parametrize("uid", ["数" * 18, "数" * 200, "u" * 300, "." * 150, "🜁/" * 40])
def test_a_name_of_any_length_and_script_is_written_and_cleaned(tmp_path: Path, uid: str) -> None:
    """Two long ones that begin alike do not clean up for each other."""
    sink = FileSink(str(tmp_path))
    alike = f"{uid}!"
    left, listed, other = (prepared(sink, uid=each, attempt="1")[0] for each in (uid, uid, alike))
    sink.commit([listed], context(uid=uid, attempt="2"))
    sink.clean([listed], context(uid=uid, attempt="2"))
    assert sorted(files_in(tmp_path)) == sorted([other.hidden, listed.final])
    assert left.hidden != other.hidden


@pytest.mark.parametrize(
    ("file_format", "compression", "ending"),
    [
        ("parquet", None, ".parquet"),
        ("parquet", "zstd", ".parquet"),
        ("json", None, ".json"),
        ("json", "gzip", ".json.gz"),
        ("csv", "bz2", ".csv.bz2"),
        ("csv", "zstd", ".csv.zst"),
    ],
)
def test_names_end_as_readers_expect(
    tmp_path: Path, file_format: str, compression: str | None, ending: str
) -> None:
    sink = FileSink(str(tmp_path), file_format, compression=compression)
    sink.check(SCHEMA)
    (committable,) = prepared(sink)
    assert committable.final.endswith(f"0{ending}" if ending[0] != "." else ending)
    sink.commit([committable], context())
    data = (tmp_path / committable.final).read_bytes()
    assert len(data) == committable.size_bytes
    if compression is not None and file_format != "parquet":
        with pa.input_stream(tmp_path / committable.final) as stream:
            data = stream.read()
        assert b"row 0" in data
    if file_format == "parquet":
        chunk = pq.ParquetFile(tmp_path / committable.final).metadata.row_group(0).column(0)
        assert chunk.compression == (compression or "snappy").upper()


@pytest.mark.parametrize(("header", "first"), [(None, b"number,text\n"), (False, b"0,row 0\n")])
def test_csv_has_a_header_unless_it_shall_not(
    tmp_path: Path, *, header: bool | None, first: bytes
) -> None:
    sink = FileSink(str(tmp_path), "csv", header=header, max_rows=1)
    committables = prepared(sink, 2)
    sink.commit(committables, context())
    assert (tmp_path / committables[0].final).read_bytes().startswith(first)
    assert (tmp_path / committables[1].final).read_bytes().endswith(b"1,row 1\n")


@pytest.mark.parametrize("file_format", ["parquet", "json", "csv"])
def test_files_roll_over_by_rows_and_by_bytes(tmp_path: Path, file_format: str) -> None:
    by_rows = prepared(FileSink(str(tmp_path), file_format, max_rows=4), 10)
    assert [each.rows for each in by_rows] == [4, 4, 2]
    assert sorted(each.final for each in by_rows) == [each.final for each in by_rows]

    sink = FileSink(str(tmp_path), file_format, max_file_bytes=2_000)
    writer = sink.open_writer(context())
    for first in range(0, 1_000, 10):
        writer.write(rows(first, first + 10))
    by_bytes = writer.prepare(1)
    assert sum(each.rows for each in by_bytes) == 1_000
    assert len(by_bytes) > 3
    assert all(2_000 <= each.size_bytes < 6_000 for each in by_bytes[:-1])


def test_small_batches_make_large_row_groups(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path))
    writer = sink.open_writer(context())
    for first in range(100):
        writer.write(rows(first, first + 1))
    (committable,) = writer.prepare(1)
    assert pq.ParquetFile(tmp_path / committable.hidden).metadata.num_row_groups == 1


def test_a_writer_that_gives_up_leaves_what_was_prepared_and_nothing_else(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), max_rows=2)
    writer = sink.open_writer(context())
    writer.write(rows(0, 3))
    committables = writer.prepare(1)
    writer.write(rows(3, 8))
    assert len(files_in(tmp_path)) == 5
    writer.close()
    writer.close()
    assert files_in(tmp_path) == sorted(each.hidden for each in committables)


def test_cleaning_removes_what_older_attempts_left(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path))
    (old,) = prepared(sink, attempt="1")
    (kept,) = prepared(sink, attempt="2")
    (own,) = prepared(sink, attempt="3")
    (newer,) = prepared(sink, attempt="4")
    (other,) = prepared(sink, attempt="1", uid="other")
    (another,) = prepared(sink, attempt="1", job_id="other")
    foreign = tmp_path / "_holdfast/job/out/README"
    foreign.write_text("not ours")
    sink.clean([kept], context(attempt="3"))
    left = {each.hidden for each in (kept, own, newer, other, another)}
    assert set(files_in(tmp_path)) == left | {"_holdfast/job/out/README"}
    assert old.hidden not in left
    sink.clean([], context(attempt="9", uid="no such sink"))


def test_committables_of_another_folder_are_committed_and_cleaned_there(tmp_path: Path) -> None:
    before = FileSink(str(tmp_path / "before"))
    (left,) = prepared(before, attempt="1")
    (listed,) = prepared(before, attempt="1")
    after = FileSink((tmp_path / "after").as_uri(), "csv")
    after.commit([listed], context(attempt="2"))
    after.clean([listed], context(attempt="2"))
    assert files_in(tmp_path) == [f"before/{listed.final}"]
    assert left.final != listed.final


def test_the_decision_for_a_file_follows_from_what_is_there(tmp_path: Path) -> None:
    place = LocalOutputFolder(str(tmp_path))
    committable = FileCommittable(
        root=str(tmp_path), hidden="hidden", final="final", size_bytes=7, rows=1
    )
    decisions = {}
    for hidden, final in itertools.product((None, 5, 7), repeat=2):
        try:
            decision: Any = action_for(
                committable, hidden_bytes=hidden, final_bytes=final, place=place
            )
        except Corrupt as error:
            decision = error.where, error.found
        decisions[hidden, final] = decision
    gone = f"{tmp_path}/hidden", "neither"
    short_final = f"{tmp_path}/final", "5 bytes"
    assert decisions == {
        (None, None): gone,
        (5, None): (f"{tmp_path}/hidden", "5 bytes"),
        (7, None): Action.MOVE,
        (None, 5): short_final,
        (5, 5): short_final,
        (7, 5): short_final,
        (None, 7): Action.NOTHING,
        (5, 7): Action.REMOVE_HIDDEN,
        (7, 7): Action.REMOVE_HIDDEN,
    }


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path))
    (committable,) = prepared(sink)
    (tmp_path / committable.hidden).unlink()
    with pytest.raises(Corrupt) as caught:
        sink.commit([committable], context())
    assert facts(caught) == (
        "a file of a sink is gone before it was committed",
        f"{tmp_path}/{committable.hidden}",
        f"it here, or as {tmp_path}/{committable.final}",
        "neither",
    )


def test_a_torn_file_is_not_committed(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path))
    (committable,) = prepared(sink)
    os.truncate(tmp_path / committable.hidden, 10)
    with pytest.raises(Corrupt) as caught:
        sink.commit([committable], context())
    assert facts(caught) == (
        "a file of a sink is not as long as it was written",
        f"{tmp_path}/{committable.hidden}",
        f"{committable.size_bytes} bytes",
        "10 bytes",
    )
    assert files_in(tmp_path) == [committable.hidden]


def test_names_in_a_hidden_folder_tell_their_age() -> None:
    assert age_of("a-b~2Fc-00003-00000-token.unfinished") == "a-b/c"
    assert age_of("README") is None
    assert age_of("a-00003-00000-token") is None
    assert age_of("00003-00000-token.unfinished") is None


def test_foreign_files_in_a_hidden_folder_are_kept_and_ignored(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path))
    (left,) = prepared(sink, attempt="1")
    folder = os.fsencode(tmp_path / left.hidden).rpartition(b"/")[0]
    foreign = [b"~FF", b"\xff", b"~ZZ", b"~41", b"0~", "é".encode()]
    for name in foreign:
        with open(folder + b"/" + name + b"-00003-00000-ab.unfinished", "wb"):
            pass
    sink.clean([], context(attempt="9"))
    assert len(os.listdir(folder)) == len(foreign)
    assert not (tmp_path / left.hidden).exists()


@pytest.mark.parametrize("file_format", ["parquet", "json", "csv"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_full_disk_shows_nothing_and_can_be_tried_again(
    tmp_path: Path, file_format: str, compression: str
) -> None:
    sink = FileSink(str(tmp_path), file_format, compression=compression)
    writer = sink.open_writer(context())
    with largest_file(50), pytest.raises(Unavailable) as caught:
        writer.write(rows(0, 100))
        writer.prepare(1)
    (hidden,) = files_in(tmp_path)
    assert hidden.startswith("_holdfast/")
    assert caught.value.where == f"{tmp_path}/{hidden}"
    assert caught.value.expected == "room to write"
    assert caught.value.found == "File too large"
    assert caught.value.fix == "Free space, then retry"
    writer.close()
    assert files_in(tmp_path) == []


class Unstable(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A store of objects that can fail between the copy and the removal, or altogether."""

    protocol = "s3"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    failures: ClassVar[list[str]] = []

    def _fail(self, what: str) -> None:
        if what in self.failures:
            raise ConnectionError(f"{what}: the line is dead")

    def rm_file(self, path: str) -> None:
        self._fail("rm")
        super().rm_file(path)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        self._fail("cp")
        super().cp_file(path1, path2, **options)

    def info(self, path: str, **options: Any) -> Any:
        self._fail("info")
        return super().info(path, **options)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:  # noqa: FBT001, FBT002
        self._fail("ls")
        return super().ls(path, detail, **options)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("s3://").strip("/")


class Renaming(Unstable):
    """A file system that renames, and refuses to do so over a file."""

    protocol = "hdfs"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        if path2 in self.store:
            raise FileExistsError(path2)
        if path1 not in self.store:
            raise FileNotFoundError(path1)
        self._fail("mv")
        self.store[path2] = self.store.pop(path1)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("hdfs://").strip("/")


@pytest.fixture(params=[Unstable, Renaming])
def remote(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Takes the place of the real client of the scheme."""
    kind = request.param
    monkeypatch.setattr(fsspec, "get_filesystem_class", lambda _: kind)
    monkeypatch.setattr(fsspec, "filesystem", lambda _, **__: kind())
    monkeypatch.setattr(kind, "store", {})
    monkeypatch.setattr(kind, "failures", [])
    return kind


def final_files(kind: Any) -> list[str]:
    return sorted(path for path in kind.store if "/_holdfast/" not in path)


@pytest.mark.parametrize("failure", ["rm", "cp", "mv", "info"])
def test_a_commit_that_stops_anywhere_can_be_repeated(remote: Any, failure: str) -> None:
    sink = FileSink(f"{remote.protocol}://bucket/out", max_rows=1)
    sink.check(SCHEMA)
    committables = prepared(sink, 3)
    remote.failures = [failure]
    if failure in {"s3": ("rm", "cp", "info"), "hdfs": ("mv", "info")}[remote.protocol]:
        with pytest.raises(Unavailable) as caught:
            sink.commit(committables, context())
        assert facts(caught) == (
            "cannot commit a file of a sink",
            f"{remote.protocol}://bucket/out/{committables[0].final}",
            "",
            f"{failure}: the line is dead",
        )
    remote.failures = []
    for _ in range(3):
        sink.commit(committables, context())
        assert final_files(remote) == [f"/bucket/out/{each.final}" for each in committables]
        assert len(remote.store) == 3


def test_cleaning_a_remote_place_fails_loudly_and_can_be_repeated(remote: Any) -> None:
    sink = FileSink(f"{remote.protocol}://user:secret@bucket/out")
    shown = f"{remote.protocol}://{'' if remote.protocol == 's3' else 'user@'}bucket/out"
    prepared(sink, attempt="1")
    remote.failures = ["ls"]
    with pytest.raises(Unavailable) as caught:
        sink.clean([], context())
    assert facts(caught) == (
        "cannot remove what earlier attempts have left",
        f"{shown}/_holdfast/job/out",
        "",
        "ls: the line is dead",
    )
    assert "secret" not in repr(sink)
    remote.failures = []
    sink.clean([], context())
    assert remote.store == {}


def test_a_writer_that_gives_up_at_a_remote_place_leaves_nothing(remote: Any) -> None:
    sink = FileSink(f"{remote.protocol}://bucket/out", max_rows=2)
    writer: SinkWriter[FileCommittable] = sink.open_writer(context())
    writer.write(rows(0, 3))
    assert len(remote.store) == 2
    writer.close()
    assert remote.store == {}


def test_a_relative_path_means_the_folder_of_the_driver_in_every_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, slot = tmp_path / "driver", tmp_path / "slot"
    for folder in (driver, slot):
        folder.mkdir()
    monkeypatch.chdir(driver)
    sent = pickle.dumps(FileSink("out/rows"))
    monkeypatch.chdir(slot)
    sink = pickle.loads(sent)
    sink.commit(prepared(sink, 3), context())
    assert files_in(driver / "out/rows")
    assert not list(slot.iterdir())


def test_a_sink_can_be_pickled(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), "csv", header=False, max_rows=9, max_file_bytes=8)
    copy = pickle.loads(pickle.dumps(sink))
    assert {**vars(copy), "_entropy": 0} == {**vars(sink), "_entropy": 0}
    assert repr(copy) == f"FileSink({str(tmp_path)!r}, 'csv')"
