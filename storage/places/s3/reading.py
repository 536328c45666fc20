"""Reading a range of an object in S3: a long one in parallel pieces, all of one version."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

from holdfast.storage.errors import Unavailable
from holdfast.storage.places.s3.requests import ObjectRange, S3Requests

__all__ = ["read_object"]

_TRIES = 10
_TRUSTED_BYTES = 1 << 30
"""Up to here a requested length is taken for the object's; beyond, its size is asked first."""


def read_object(
    requests: S3Requests,
    key: str,
    offset: int,
    end: int | None,
    *,
    piece_bytes: int,
    at_once: int,
) -> ObjectRange:
    """The bytes from `offset` to `end` (None: the object's end), with size, version and mark.

    Raises:
        NotFound: there is no such object.
        Unavailable: the store does not answer, or the object is replaced again and again.
    """
    if end is not None and end - offset <= piece_bytes + piece_bytes // 2:
        return requests.get(key, offset, end)
    for _ in range(_TRIES):
        stop = end
        if stop is None or stop - offset > _TRUSTED_BYTES:
            first = requests.get(key, offset, offset + piece_bytes)
            total = first.total_bytes
            if total is None or len(first.data) >= min(stop or total, total) - offset:
                return first
            stop = min(stop or total, total)
        spans = [
            (start, min(start + piece_bytes, stop)) for start in range(offset, stop, piece_bytes)
        ]
        found = _read_spans(requests, key, spans, at_once)
        if found is not None:
            return found
    raise Unavailable(
        "cannot read a whole object",
        where=requests.where(key),
        expected="one version from the first to the last piece",
        found=f"a new version, {_TRIES} times",
    )


def _read_spans(
    requests: S3Requests, key: str, spans: list[tuple[int, int]], at_once: int
) -> ObjectRange | None:
    """Adjacent spans as one piece; None when the object has changed meanwhile."""
    offset, stop = spans[0][0], spans[-1][1]
    # One buffer that all pieces are read into: joining pieces would take as long again.
    whole = BytesIO(bytes(stop - offset))
    with (
        whole.getbuffer() as room,
        ThreadPoolExecutor(at_once, thread_name_prefix="holdfast-s3-read") as pool,
    ):

        def read(span: tuple[int, int]) -> ObjectRange:
            return requests.get(key, *span, into=room[span[0] - offset : span[1] - offset])

        pieces = [*pool.map(read, spans)]
    first = pieces[0]
    total = first.total_bytes
    if total is None:
        return first if all(piece.total_bytes is None for piece in pieces) else None
    for (begin, end), piece in zip(spans, pieces, strict=True):
        is_past = begin >= total
        if piece.size_bytes != max(min(end, total) - begin, 0):
            return None
        if not is_past and piece.version != first.version:
            return None
    if stop > total:
        whole.truncate(total - offset)
    return ObjectRange(whole.getvalue(), total, first.version, first.mark)
