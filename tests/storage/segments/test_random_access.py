"""A segment as a file: read at any place, checked wherever it is read, in little memory."""

import io
import random
from pathlib import Path

import pytest

from holdfast.storage import Corrupt, FileHandle, Handle, JobStorage, load_storage
from holdfast.storage.segments.handles import CHECKED_BLOCK_BYTES

DATA = random.Random(1).randbytes(3 * CHECKED_BLOCK_BYTES + 1000)


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path)).job("job")


def written(job: JobStorage, data: bytes, compression: str = "") -> Handle:
    with job.shared_segments(1, compression=compression) as writer:
        writer.add(b"something before")
        return writer.add(data)


@pytest.mark.parametrize("compression", ["", "lz4"])
def test_a_segment_is_read_like_a_file(job: JobStorage, compression: str) -> None:
    chance = random.Random(2)
    with job.open(written(job, DATA, compression)) as file, io.BytesIO(DATA) as model:
        for _ in range(300):
            whence = chance.choice((io.SEEK_SET, io.SEEK_CUR, io.SEEK_END))
            around = {io.SEEK_SET: chance.randrange(len(DATA)), io.SEEK_CUR: 0}.get(whence, -900)
            assert file.seek(around, whence) == model.seek(around, whence)
            size = chance.choice((0, 1, 10, 5000, CHECKED_BLOCK_BYTES, len(DATA)))
            assert file.read(size) == model.read(size)
            assert file.tell() == model.tell()
        assert file.seek(5) == 5
        assert file.read() == DATA[5:]
        assert file.read() == file.read(3) == b""
        buffer = bytearray(20)
        file.seek(-10, io.SEEK_END)
        assert file.readinto(buffer) == 10
        assert bytes(buffer[:10]) == DATA[-10:]
        assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)


def test_an_inline_segment_is_read_like_a_file(tmp_path: Path) -> None:
    job = load_storage(str(tmp_path)).job("job")
    with job.segments(1) as writer:
        handle = writer.add(b"little")
    assert not isinstance(handle, FileHandle)
    assert job.open(handle).read() == b"little"


def test_only_the_part_that_is_read_must_be_whole(job: JobStorage, tmp_path: Path) -> None:
    handle = written(job, DATA)
    assert isinstance(handle, FileHandle)
    file = tmp_path / "job" / handle.file
    data = bytearray(file.read_bytes())
    data[handle.offset + CHECKED_BLOCK_BYTES + 5] ^= 1
    file.write_bytes(data)
    opened = job.open(handle)
    assert opened.read(CHECKED_BLOCK_BYTES) == DATA[:CHECKED_BLOCK_BYTES]
    with pytest.raises(Corrupt, match=f"was changed.*{handle.file}"):
        opened.read(1)
    opened.seek(2 * CHECKED_BLOCK_BYTES)
    assert opened.read() == DATA[2 * CHECKED_BLOCK_BYTES :]


def test_a_file_that_is_gone_is_named(job: JobStorage, tmp_path: Path) -> None:
    handle = written(job, DATA)
    assert isinstance(handle, FileHandle)
    (tmp_path / "job" / handle.file).unlink()
    with pytest.raises(Corrupt, match=f"missing.*{handle.file}"):
        job.open(handle).read(1)
