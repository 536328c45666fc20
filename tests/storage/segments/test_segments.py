import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.storage import (
    FileHandle,
    Handle,
    InlineHandle,
    Invalid,
    JobManagerCheckpointStorage,
    JobStorage,
    TooLarge,
    load_storage,
)
from holdfast.storage.segments.handles import CHECKED_BLOCK_BYTES, LZ4

MIB = 1024 * 1024
COMPRESSIONS = pytest.mark.parametrize("compression", ["", LZ4])


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path / "größe und mehr")).job("job")


def pieces(total: int, size: int) -> list[bytes]:
    data = bytes(range(251)) * (total // 251 + 1)
    return [data[start : min(start + size, total)] for start in range(0, total, size)]


@COMPRESSIONS
@pytest.mark.parametrize("total", [0, 1, 20 * 1024, 20 * 1024 + 1, 4 * MIB, 9 * MIB + 3])
def test_a_streamed_segment_comes_back(job: JobStorage, total: int, compression: str) -> None:
    parts = pieces(total, 700_001)
    with job.segments(1, compression=compression) as writer, writer.stream() as segment:
        for part in parts:
            segment.write(part)
    assert job.read(segment.handle) == b"".join(parts)
    assert b"".join(job.stream(segment.handle)) == b"".join(parts)
    assert list(job.read_all([segment.handle])) == [b"".join(parts)]
    assert segment.handle.state_bytes == total
    assert all(len(piece) <= CHECKED_BLOCK_BYTES for piece in job.stream(segment.handle))


@COMPRESSIONS
@given(sizes=st.lists(st.integers(0, 70_000), max_size=30), seed=st.integers(0, 255))
@settings(max_examples=40, deadline=None)
def test_many_segments_share_one_file(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seed: int, compression: str
) -> None:
    job = load_storage(str(tmp_path_factory.getbasetemp() / "shared")).job("job")
    data = [bytes([seed + i & 255]) * size for i, size in enumerate(sizes)]
    handles: list[Handle] = []
    with job.segments(1, compression=compression) as writer:
        for i, part in enumerate(data):
            if i % 3:
                handles.append(writer.add(part))
            else:
                with writer.stream() as segment:
                    segment.write(part)
                handles.append(segment.handle)
    assert list(job.read_all(handles)) == data
    assert list(job.read_all(reversed(handles))) == data[::-1]
    assert [job.read(handle) for handle in handles] == data
    assert len({handle.file for handle in handles if isinstance(handle, FileHandle)}) <= 1


def test_small_state_is_inline_up_to_a_limit_for_the_slot(job: JobStorage) -> None:
    with job.segments(1) as writer:
        handles = [writer.add(b"x" * 1000) for _ in range(30)]
    inline = [handle for handle in handles if isinstance(handle, InlineHandle)]
    assert len(inline) == 20
    assert sum(handle.size_bytes for handle in inline) <= 20 * 1024
    assert [info.size_bytes for info in job.storage.list("")] == [10_000]


def test_a_slot_with_small_state_writes_no_file(job: JobStorage) -> None:
    with job.segments(1) as writer:
        writer.add(b"x" * 1000)
    assert list(job.storage.list("")) == []


def test_the_first_few_bytes_of_a_log_are_inline_and_the_rest_is_a_shared_file(
    job: JobStorage,
) -> None:
    with job.log_segments(5, "log") as writer:
        handles = [writer.add(bytes([number]) * size) for number, size in enumerate((10, 50_000))]
    small, large = handles
    assert isinstance(small, InlineHandle)
    assert isinstance(large, FileHandle)
    assert large.file.startswith("shared/00000000000000000005-log-")
    assert [job.read(handle) for handle in handles] == [bytes(10), b"\1" * 50_000]


def test_shared_segments_are_files(job: JobStorage) -> None:
    with job.shared_segments(5) as writer:
        handle = writer.add(b"x")
    assert isinstance(handle, FileHandle)
    assert handle.file.startswith("shared/00000000000000000005-")


def test_nothing_is_visible_before_close_nor_after_a_failure(job: JobStorage) -> None:
    with pytest.raises(RuntimeError, match="stop"), job.segments(1) as writer:
        writer.add(b"x" * MIB * 3)
        assert list(job.storage.list("")) == []
        raise RuntimeError("stop")
    assert list(job.storage.list("")) == []
    assert list(job.storage.unfinished("")) == []


def test_a_segment_given_up_has_no_handle_and_harms_no_other(job: JobStorage) -> None:
    with job.segments(1) as writer:
        first = writer.add(b"a" * 30_000)
        with pytest.raises(RuntimeError, match="stop"), writer.stream() as segment:
            segment.write(b"b" * 30_000)
            raise RuntimeError("stop")
        last = writer.add(b"c" * 30_000)
    with pytest.raises(Invalid, match="no handle"):
        _ = segment.handle
    assert list(job.read_all([first, last])) == [b"a" * 30_000, b"c" * 30_000]


def test_segments_of_many_threads_are_whole(job: JobStorage) -> None:
    handles: dict[int, Handle] = {}
    with job.segments(1) as writer:

        def write(number: int) -> None:
            if number % 2:
                handles[number] = writer.add(bytes([number]) * 100_000)
                return
            with writer.stream() as segment:
                for _ in range(100):
                    segment.write(bytes([number]) * 1_000)
            handles[number] = segment.handle

        threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number, handle in handles.items():
        assert job.read(handle) == bytes([number]) * 100_000


def test_a_writer_is_used_once_and_one_segment_at_a_time(job: JobStorage) -> None:
    with job.segments(1) as writer:
        with writer.stream() as segment:
            with pytest.raises(Invalid, match="being streamed"):
                writer.add(b"x")
            with pytest.raises(Invalid, match="being streamed"):
                writer.stream()
        with pytest.raises(Invalid, match="has ended"):
            segment.write(b"x")
    for use in (writer.close, writer.stream, lambda: writer.add(b"x")):
        with pytest.raises(Invalid, match="closed"):
            use()


def test_compression_is_left_out_where_it_does_not_help(job: JobStorage) -> None:
    with job.shared_segments(1, compression=LZ4) as writer:
        small, dense = writer.add(b"x" * 10), writer.add(b"x" * 100_000)
    assert isinstance(small, FileHandle)
    assert isinstance(dense, FileHandle)
    assert small.compression == ""
    assert dense.compression == LZ4
    assert dense.length < 1000
    assert dense.state_bytes == 100_000


def test_unknown_compression_is_refused(job: JobStorage) -> None:
    with pytest.raises(Invalid, match="expected '' or 'lz4', found zip"):
        job.segments(1, compression="zip")


@pytest.mark.parametrize("streamed", [False, True])
def test_memory_storage_bounds_each_segment(*, streamed: bool) -> None:
    job = JobManagerCheckpointStorage().job("job")
    limit = 5 * MIB
    with job.segments(1) as writer:
        handles = [writer.add(b"x" * limit), writer.add(b"y" * limit)]
        with pytest.raises(
            TooLarge, match=r"at most 5242880 bytes.*Use a storage that keeps files"
        ):
            if streamed:
                with writer.stream() as segment:
                    for _ in range(6):
                        segment.write(b"z" * MIB)
            else:
                writer.add(b"z" * (limit + 1))
    assert all(isinstance(handle, InlineHandle) for handle in handles)
    assert list(job.storage.list("")) == []
