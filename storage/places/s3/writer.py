"""Writing an object to S3: with one request where it is small, else in parts side by side.

A killed writer leaves an upload, which `unfinished` lists and `delete` aborts. Memory is bounded by
the parts that are under way.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from holdfast.storage.errors import HoldfastError, Invalid, TooLarge
from holdfast.storage.interface import Buffer, ObjectWriter, flat
from holdfast.storage.places.s3.requests import MultipartUpload, S3Requests, UploadedPart

__all__ = ["S3Writer", "part_size_bytes"]

_MOST_PARTS = 10_000
_PARTS_OF_A_SIZE = 1000


def part_size_bytes(number: int, base_bytes: int) -> int:
    """The size of a part, counted from 1: later parts of a very large object are larger.

    A store takes ten thousand. So with 8 MiB an object may have 430 GiB.
    """
    return base_bytes * (1 + (number - 1) // _PARTS_OF_A_SIZE)


class S3Writer(ObjectWriter):
    """Collects a part, and uploads parts in the background.

    It holds at most `at_once` parts of the smallest size and the one being collected, or two parts
    once they have grown.
    """

    def __init__(
        self, requests: S3Requests, key: str, mark: str, *, part_bytes: int, at_once: int
    ) -> None:
        self._requests = requests
        self._key = key
        self._mark = mark
        self._base_bytes = part_bytes
        self._at_once = at_once
        self._buffer = bytearray()
        self._number = 1
        self._upload: MultipartUpload | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._running: deque[Future[UploadedPart]] = deque()
        self._parts: list[UploadedPart] = []
        self._is_wanted = True
        self._is_over = False

    def write(self, data: Buffer) -> None:
        self._check_open()
        view = memoryview(flat(data))
        while view:
            room = part_size_bytes(self._number, self._base_bytes) - len(self._buffer)
            if not room:
                # Only when more data comes: an object that fits into one part needs one request.
                self._send()
                continue
            self._buffer += view[:room]
            view = view[room:]

    def commit(self) -> None:
        self._check_open()
        if self._upload is None:
            self._requests.put(self._key, self._buffer, self._mark)
        else:
            self._send()
            while self._running:
                self._collect()
            self._requests.complete(self._upload, self._parts, self._mark)
        self._end()

    def abort(self) -> None:
        if self._is_over:
            return
        self._is_wanted = False
        upload = self._upload
        self._end()
        if upload is not None:
            try:
                self._requests.abort(upload)
            except HoldfastError:
                return  # `unfinished` will find it

    def _send(self) -> None:
        """Start the upload of the collected part; wait while too many are under way."""
        if self._number > _MOST_PARTS:
            raise TooLarge(
                "an object has too many parts",
                where=self._requests.where(self._key),
                expected=f"at most {_MOST_PARTS} parts",
                fix="Pass a larger part_size_bytes",
            )
        if self._upload is None or self._pool is None:
            self._upload = self._requests.begin_upload(self._key, self._mark)
            self._pool = ThreadPoolExecutor(self._at_once, thread_name_prefix="holdfast-s3-write")
        grown = part_size_bytes(self._number, self._base_bytes) // self._base_bytes
        while len(self._running) >= max(1, self._at_once // grown):
            self._collect()
        body, self._buffer = self._buffer, bytearray()
        put = partial(self._requests.put_part, wanted=lambda: self._is_wanted)
        self._running.append(self._pool.submit(put, self._upload, self._number, body))
        self._number += 1

    def _collect(self) -> None:
        """Wait for the oldest part; if it has failed, the others stop."""
        try:
            self._parts.append(self._running.popleft().result())
        except HoldfastError:
            self._is_wanted = False
            raise

    def _end(self) -> None:
        """Wait for uploads under way, and drop the rest."""
        self._is_over = True
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._running.clear()
        self._buffer = bytearray()

    def _check_open(self) -> None:
        if self._is_over or not self._is_wanted:
            raise Invalid(
                "the object was committed or aborted before, or has failed",
                where=self._requests.where(self._key),
            )
