"""How a writer collects parts: bounded, in order, and ever larger where there are many."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from holdfast.storage import Invalid, TooLarge, Unavailable
from holdfast.storage.places.s3 import writer as s3_writer
from holdfast.storage.places.s3.options import MIB
from holdfast.storage.places.s3.requests import MultipartUpload, S3Requests, UploadedPart
from holdfast.storage.places.s3.writer import S3Writer, part_size_bytes

WAIT_S = 20


class Requests:
    """Keeps what is put, and lets parts end when it is told to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.may_end = threading.Event()
        self.may_end.set()
        self.parts: dict[int, bytes] = {}
        self.begun: list[int] = []
        self.now = self.most = 0
        self.completed: list[int] = []
        self.whole: bytes | None = None
        self.aborted = 0
        self.failing: set[int] = set()

    def where(self, key: str) -> str:
        return key

    def put(self, key: str, body: bytearray, mark: str) -> bool:
        self.whole = bytes(body)
        return True

    def begin_upload(self, key: str, mark: str) -> MultipartUpload:
        return MultipartUpload(key, "U")

    def put_part(
        self, upload: MultipartUpload, number: int, body: bytearray, wanted: object
    ) -> UploadedPart:
        with self.lock:
            self.begun.append(number)
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            assert self.may_end.wait(WAIT_S)
            if number in self.failing:
                raise Unavailable("no")
            self.parts[number] = bytes(body)
            return UploadedPart(number, f"e{number}")
        finally:
            with self.lock:
                self.now -= 1

    def complete(self, upload: MultipartUpload, parts: list[UploadedPart], mark: str) -> None:
        self.completed = [part.number for part in parts]

    def abort(self, upload: MultipartUpload) -> None:
        assert self.now == 0, "parts are still under way"
        self.aborted += 1


@pytest.fixture
def requests() -> Requests:
    return Requests()


def writer_to(requests: Requests, *, part_bytes: int = 10, at_once: int = 3) -> S3Writer:
    return S3Writer(
        cast("S3Requests", requests), "key", "mark", part_bytes=part_bytes, at_once=at_once
    )


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "s3-write" in thread.name]


@pytest.mark.parametrize("piece", [1, 3, 10, 11, 25, 1000])
@pytest.mark.parametrize("total", [0, 1, 9, 10, 11, 20, 21, 99])
def test_parts_are_whole_but_for_the_last(requests: Requests, piece: int, total: int) -> None:
    data = bytes(range(total))
    with writer_to(requests) as writer:
        for start in range(0, total, piece):
            writer.write(data[start : start + piece])
    if total <= 10:
        assert (requests.whole, requests.begun) == (data, [])
        return
    assert requests.completed == [*range(1, -(-total // 10) + 1)]
    assert b"".join(requests.parts[number] for number in requests.completed) == data
    assert all(len(requests.parts[number]) == 10 for number in requests.completed[:-1])
    assert threads() == []


def test_only_so_many_parts_are_under_way(requests: Requests) -> None:
    requests.may_end.clear()
    writer = writer_to(requests)
    written: list[int] = []

    def write() -> None:
        for number in range(8):
            writer.write(bytes(10))
            written.append(number)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join(0.3)
    assert requests.begun == [1, 2, 3]
    assert written == [0, 1, 2, 3]  # three are under way, one is collected, the next must wait
    requests.may_end.set()
    thread.join(WAIT_S)
    writer.commit()
    assert requests.most == 3
    assert requests.completed == [*range(1, 9)]


def test_an_object_that_fits_into_one_part_begins_no_thread(requests: Requests) -> None:
    with writer_to(requests) as writer:
        writer.write(bytes(10))
        assert threads() == []


def test_abort_waits_for_what_is_under_way_and_begins_no_more(requests: Requests) -> None:
    requests.may_end.clear()
    writer = writer_to(requests, at_once=2)
    writer.write(bytes(25))
    thread = threading.Thread(target=writer.abort)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    requests.may_end.set()
    thread.join(WAIT_S)
    assert requests.aborted == 1
    assert threads() == []


def test_a_part_that_fails_is_told_at_the_next_call(requests: Requests) -> None:
    requests.failing = {2}
    writer = writer_to(requests, at_once=1)
    with pytest.raises(Unavailable, match="no"):
        for _ in range(10):
            writer.write(bytes(10))
    with pytest.raises(Invalid, match="has failed"):
        writer.write(b"x")
    with pytest.raises(Invalid, match="has failed"):
        writer.commit()
    writer.abort()
    assert requests.aborted == 1
    assert requests.completed == []


def test_a_part_that_fails_at_the_end_aborts_the_upload(requests: Requests) -> None:
    requests.failing = {3}
    with pytest.raises(Unavailable, match="no"), writer_to(requests) as writer:
        writer.write(bytes(25))
    assert requests.aborted == 1
    assert requests.completed == []


def test_later_parts_of_a_very_large_object_are_larger() -> None:
    sizes = [part_size_bytes(number, 8 * MIB) for number in range(1, 10_001)]
    assert sizes == sorted(sizes)
    assert set(sizes[:1000]) == {8 * MIB}
    assert sizes[-1] == 80 * MIB
    assert sum(sizes) > 400 * 1024 * MIB


@pytest.mark.parametrize(("full", "at_once"), [(5, 4), (15, 2), (25, 1), (95, 1)])
def test_fewer_are_under_way_as_parts_grow(
    requests: Requests, monkeypatch: pytest.MonkeyPatch, full: int, at_once: int
) -> None:
    monkeypatch.setattr(s3_writer, "_PARTS_OF_A_SIZE", 10)
    writer = writer_to(requests, part_bytes=1, at_once=4)
    while len(requests.begun) < full:
        writer.write(b"x")
    requests.may_end.clear()
    thread = threading.Thread(target=writer.write, args=(bytes(100),))
    thread.start()
    thread.join(0.2)
    assert requests.now <= at_once
    requests.may_end.set()
    thread.join(WAIT_S)
    writer.commit()
    assert sum(map(len, requests.parts.values())) > 100


def test_too_many_parts_are_refused_with_what_helps(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_writer, "_MOST_PARTS", 20)
    writer = writer_to(requests, part_bytes=1, at_once=4)
    writer.write(bytes(20))
    with pytest.raises(TooLarge, match=r"at most 20 parts.*larger part_size_bytes"):
        writer.write(bytes(2))
    writer.abort()
    assert requests.aborted == 1
