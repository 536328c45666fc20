"""Pieces of logs are written between checkpoints: batched, tried again, raced, and bounded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import pytest

from holdfast.backends import Segments
from holdfast.changelog import ChangelogOptions, StateChangelogStorage
from holdfast.changelog.change_sets import ChangeSet, Encoded
from holdfast.changelog.writing.local_copies import LocalCopies
from holdfast.changelog.writing.uploader import LogUploader
from holdfast.storage import (
    Buffer,
    FileHandle,
    Handle,
    HoldfastError,
    JobStorage,
    SegmentStream,
    SegmentWriter,
    SystemClock,
    Unavailable,
    load_storage,
)

WAIT_S = 30


class OneSet:
    """What an uploader sees of a set of changes."""

    def __init__(self, data: bytes) -> None:
        self._encoded = Encoded(data, 0, 0, 1)
        self.upload: Any = None

    @property
    def about_bytes(self) -> int:
        return len(self._encoded.data)

    def encoded(self) -> Encoded:
        return self._encoded


class File(Segments):
    """A file whose end is told what to do."""

    def __init__(self, writer: SegmentWriter, before_the_end: Callable[[], None]) -> None:
        self._writer = writer
        self._before_the_end = before_the_end

    def add(self, data: Buffer) -> Handle:
        return self._writer.add(data)

    def stream(self) -> SegmentStream:
        return self._writer.stream()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._writer:
            if error is not None:
                raise error
            self._before_the_end()


class Scripted(StateChangelogStorage):
    """The files do one after the other what the script says, then nothing more."""

    def __init__(self, *script: Callable[[], None]) -> None:
        self.left = list(script)
        self.begun: list[int] = []

    def begin(self, job: JobStorage, number: int, *, compression: str) -> Segments:
        self.begun.append(number)
        act = self.left.pop(0) if self.left else lambda: None
        return File(job.shared_segments(number, "log", compression=compression), act)


class Unopened(Scripted):
    """The first file cannot even be begun."""

    def begin(self, job: JobStorage, number: int, *, compression: str) -> Segments:
        if not self.begun:
            self.begun.append(number)
            fail()
        return super().begin(job, number, compression=compression)


def fail() -> None:
    raise Unavailable("the storage is away")


def after(event: threading.Event) -> Callable[[], None]:
    def wait() -> None:
        assert event.wait(WAIT_S)

    return wait


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path / "storage")).job("job")


class Started:
    """An uploader with these options, closed in the end."""

    def __init__(self, job: JobStorage, **options: Any) -> None:
        self.job = job
        self.storage: StateChangelogStorage = options.pop("storage", None) or Scripted()
        self.copies: LocalCopies | None = options.pop("copies", None)
        self.uploader = LogUploader(
            job, self.storage, ChangelogOptions(**options), SystemClock(), self.copies
        )

    def submit(self, *contents: bytes, number: int = 7) -> list[OneSet]:
        sets = list(map(OneSet, contents))
        self.uploader.submit(cast("list[ChangeSet]", sets), number)
        return sets

    def files(self) -> set[str]:
        prefix = f"{self.job.folder}/"
        return {info.name.removeprefix(prefix) for info in self.job.storage.list(prefix)}


@pytest.fixture
def start(job: JobStorage) -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def begin(**options: Any) -> Started:
        started.append(Started(job, **options))
        return started[-1]

    yield begin
    for each in started:
        each.uploader.close()


def file_of(handle: Handle) -> str:
    assert isinstance(handle, FileHandle)
    return handle.file


def test_sets_that_arrive_together_are_one_file(start: Callable[..., Started]) -> None:
    started = start(batch_delay_s=5.0, batch_bytes=30)
    first = started.submit(b"a" * 10, b"b" * 10, number=3)
    second = started.submit(b"c" * 10, number=5)
    handles = [each.upload.result(WAIT_S) for each in (*first, *second)]
    assert len(set(map(file_of, handles))) == 1
    assert "00000000000000000005" in file_of(handles[0])  # the later number: both may refer to it
    contents = [started.job.read(handle) for handle in handles]
    assert contents == [b"a" * 10, b"b" * 10, b"c" * 10]
    assert started.uploader.statistics.files == 1
    assert started.uploader.statistics.bytes == 30


def test_a_small_batch_waits_for_the_delay_only(start: Callable[..., Started]) -> None:
    started = start(batch_delay_s=0.01)
    assert started.job.read(started.submit(b"a")[0].upload.result(WAIT_S)) == b"a"


def test_a_slow_attempt_is_overtaken_and_leaves_nothing(start: Callable[..., Started]) -> None:
    go_on, has_ended = threading.Event(), threading.Event()

    def slow() -> None:
        assert go_on.wait(WAIT_S)
        has_ended.set()

    storage = Scripted(slow)
    started = start(storage=storage, upload_timeout_s=0.05)
    (one,) = started.submit(b"data")
    handle = one.upload.result(WAIT_S)
    assert len(storage.begun) == 2
    go_on.set()
    assert has_ended.wait(WAIT_S)
    started.uploader.close()
    assert started.files() == {file_of(handle)}
    assert started.job.read(handle) == b"data"


def test_the_first_attempt_may_still_win(start: Callable[..., Started]) -> None:
    first_may, second_may = threading.Event(), threading.Event()
    storage = Scripted(after(first_may), after(second_may))
    started = start(storage=storage, upload_timeout_s=0.05, upload_attempts=2)
    (one,) = started.submit(b"data")
    while len(storage.begun) < 2:
        threading.Event().wait(0.01)
    first_may.set()
    handle = one.upload.result(WAIT_S)
    second_may.set()
    started.uploader.close()
    assert started.files() == {file_of(handle)}


@pytest.mark.parametrize("make", [lambda: Scripted(fail, fail), Unopened])
def test_a_failed_attempt_is_repeated(
    start: Callable[..., Started], make: Callable[[], StateChangelogStorage]
) -> None:
    started = start(storage=make(), next_attempt_delay_s=0.01)
    handle = started.submit(b"data")[0].upload.result(WAIT_S)
    assert started.job.read(handle) == b"data"
    assert started.uploader.statistics.failures == 0


def test_the_error_of_the_last_attempt_is_raised(start: Callable[..., Started]) -> None:
    storage = Scripted(fail, fail, fail)
    started = start(storage=storage, next_attempt_delay_s=0.01, upload_attempts=3)
    (one,) = started.submit(b"data")
    with pytest.raises(Unavailable, match="the storage is away"):
        one.upload.result(WAIT_S)
    assert len(storage.begun) == 3
    assert started.uploader.statistics.failures == 1
    assert started.files() == set()
    assert started.submit(b"later")[0].upload.result(WAIT_S)  # it goes on


def test_without_retries_there_is_one_attempt(start: Callable[..., Started]) -> None:
    storage = Scripted(fail)
    started = start(storage=storage, retry_policy="none", upload_timeout_s=0.01)
    with pytest.raises(Unavailable):
        started.submit(b"data")[0].upload.result(WAIT_S)
    assert len(storage.begun) == 1


def test_waiting_bytes_are_bounded(start: Callable[..., Started]) -> None:
    started = start(max_in_flight_bytes=100, persist_threshold_bytes=10)
    one, other = object(), object()
    found = []
    for holder, size_bytes in ((one, 60), (other, 60), (one, 0)):
        started.uploader.hold(holder, size_bytes)
        found.append((started.uploader.held_bytes, started.uploader.has_room))
    assert found == [(60, True), (120, False), (60, True)]


def test_close_cancels_pending_uploads(start: Callable[..., Started]) -> None:
    go_on = threading.Event()
    started = start(storage=Scripted(after(go_on)), upload_attempts=1)
    (one,) = started.submit(b"data")
    closer = threading.Thread(target=started.uploader.close)
    closer.start()
    with pytest.raises(HoldfastError):
        one.upload.result(WAIT_S)
    go_on.set()
    closer.join(WAIT_S)
    assert not closer.is_alive()
    assert started.files() == set()  # no checkpoint refers to what it has written


@pytest.mark.parametrize("compression", ["", "lz4"])
def test_copies_have_the_written_bytes(
    start: Callable[..., Started], tmp_path: Path, compression: str
) -> None:
    copies = LocalCopies(str(tmp_path / "near"), "job", SystemClock())
    started = start(copies=copies, compression=compression)
    contents = [bytes([number]) * 1000 for number in range(3)]
    handles = [each.upload.result(WAIT_S) for each in started.submit(*contents)]
    assert [copies.job.read(handle) for handle in handles] == contents
