"""Places that cannot be written to, or only for a while: a clear error, nothing half-written."""

import errno
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from holdfast.storage import (
    CheckpointMetadata,
    HoldfastError,
    Invalid,
    JobStorage,
    OperatorState,
    StateSnapshot,
    Unavailable,
    load_storage,
)

MIB = 1024 * 1024


def commit_one(job: JobStorage, size: int = 100_000) -> int:
    owner = job.take_over()
    number = owner.next_checkpoint_id
    with job.segments(number) as writer:
        handle = writer.add(b"x" * size)
    part = StateSnapshot(kind="test", handles={"x": handle})
    metadata = CheckpointMetadata(
        job_id=job.job_id,
        checkpoint_id=number,
        triggered_ms=0,
        completed_ms=0,
        operators={"o": OperatorState(parallelism=1, max_parallelism=1, parts=(part,))},
    )
    owner.commit(metadata)
    return number


def files_under(path: Path) -> list[Path]:
    return [found for found in path.rglob("*") if found.is_file()]


@pytest.fixture
def small_disk() -> Iterator[int]:
    """No file may grow past a mebibyte, as on a disk that is almost full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, before[1]))
    yield MIB
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_missing_directory_is_made(tmp_path: Path) -> None:
    job = load_storage(str(tmp_path / "a" / "b")).job("job")
    assert job.completed() == ()
    assert job.latest() is None
    assert not (tmp_path / "a").exists()
    commit_one(job)
    assert job.completed() == (1,)


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in ("file", "file/below"):
        job = load_storage(str(tmp_path / path)).job("job")
        with pytest.raises(Invalid, match=rf"{tmp_path}/{path}.*Not a directory") as caught:
            job.take_over()
        assert caught.value.fix == "Choose another place for checkpoints"
        with pytest.raises(Invalid, match="Not a directory"):
            job.completed()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_job_s_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("mine")
    job = load_storage(str(tmp_path)).job("job")
    with pytest.raises(Invalid, match="Not a directory"):
        job.take_over()
    with pytest.raises(Invalid, match="Not a directory"), job.segments(1) as writer:
        writer.add(b"x" * 100_000)


def test_a_directory_without_permission_is_refused() -> None:
    program = """
        import os, sys, tempfile
        from holdfast.storage import Invalid, load_storage
        with tempfile.TemporaryDirectory() as root:
            os.chmod(root, 0o755)
            os.mkdir(f"{root}/readonly", 0o555)
            if os.geteuid() == 0:
                os.chown(f"{root}/readonly", 65534, 65534)
                os.seteuid(65534)
            job = load_storage(f"{root}/readonly").job("job")
            for act in (job.take_over, lambda: job.storage.write("a", b"x")):
                try:
                    act()
                except Invalid as error:
                    print(error.found, "|", error.fix)
            print(os.listdir(f"{root}/readonly"))
            os.seteuid(os.getuid())
        """
    ran = subprocess.run(
        [sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    refused = (
        "Permission denied | Give this user the right to read, write, link and move files here, "
        "or choose another place"
    )
    assert ran.stdout.splitlines() == [refused, refused, "[]"]


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path, small_disk: int) -> None:
    job = load_storage(str(tmp_path)).job("job")
    assert commit_one(job, small_disk // 2) == 1
    before = files_under(tmp_path)
    with pytest.raises(Unavailable, match=r"room to write, found File too large.*Free space"):
        commit_one(job, small_disk * 2)
    owners = sorted(path.name for path in set(files_under(tmp_path)) - set(before))
    assert len(owners) == 2
    assert owners[0] == f"owner-{2:020d}"
    assert owners[1].startswith(f"owner-{2:020d}.start-")
    assert list(job.storage.unfinished("")) == []
    assert job.completed() == (1,)
    assert job.read(next(job.load(1).handles())) == b"x" * (small_disk // 2)
    assert commit_one(job, small_disk // 2) == 2


def test_a_disk_that_fills_while_a_segment_streams(tmp_path: Path, small_disk: int) -> None:
    job = load_storage(str(tmp_path)).job("job")
    with (
        pytest.raises(Unavailable, match="File too large"),
        job.segments(1) as writer,
        writer.stream() as segment,
    ):
        for _ in range(20):
            segment.write(b"x" * (small_disk // 8))
    assert files_under(tmp_path) == []


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace", "link"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_call_that_fails_half_way_leaves_nothing_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    job = load_storage(str(tmp_path)).job("job")
    commit_one(job)
    owner = job.take_over()
    before = {info.name for info in job.storage.list("")}
    real = getattr(os, call)

    def failing(*arguments: object, **options: object) -> object:
        if call == "open" and not int(str(arguments[1])) & os.O_CREAT:
            return real(*arguments, **options)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, failing)
    caught: list[HoldfastError] = []
    for act in (
        lambda: job.storage.write("job/x", b"x"),
        lambda: job.storage.create("job/y", b"y"),
        lambda: owner.commit(
            CheckpointMetadata(job_id="job", checkpoint_id=2, triggered_ms=0, completed_ms=0)
        ),
    ):
        try:
            act()
        except Unavailable as error:
            caught.append(error)
    monkeypatch.undo()
    touched = {"replace": 1, "link": 2}.get(call, 3)
    assert len(caught) == touched
    assert all(os.strerror(number) in str(error) for error in caught)
    assert list(job.storage.unfinished("")) == []
    left = {info.name for info in job.storage.list("")} - before
    assert left == {"replace": {"job/y", f"job/chk-{2:020d}/_metadata"}, "link": {"job/x"}}.get(
        call, set()
    )


@pytest.mark.slow
def test_ten_thousand_checkpoints_in_one_folder(tmp_path: Path) -> None:
    job = load_storage(str(tmp_path)).job("job")
    owner = job.take_over()
    template = CheckpointMetadata(job_id="job", checkpoint_id=1, triggered_ms=0, completed_ms=0)
    owner.commit(template)
    data = job.storage.read(f"job/chk-{1:020d}/_metadata")
    for number in range(2, 10_001):
        folder = tmp_path / "job" / f"chk-{number:020d}"
        folder.mkdir()
        (folder / "_metadata").write_bytes(data)
    assert job.completed() == tuple(range(1, 10_001))
    later = job.take_over()
    assert later.next_checkpoint_id == 10_001
    assert later.completed == tuple(range(1, 10_001))
    committed = CheckpointMetadata(
        job_id="job", checkpoint_id=10_001, triggered_ms=0, completed_ms=0
    )
    later.commit(committed)
    newest = job.latest()
    assert newest is not None
    assert newest.checkpoint_id == 10_001


def test_files_are_readable_but_not_writable_by_others(tmp_path: Path) -> None:
    load_storage(str(tmp_path)).write("x", b"x")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) & 0o022 == 0
