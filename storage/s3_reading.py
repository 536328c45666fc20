"""Reading a range of an object in S3: a long one in pieces side by side, all of one version."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from holdfast.storage.errors import Unavailable
from holdfast.storage.s3_requests import Piece, S3Requests

__all__ = ["read_object"]

_TRIES = 10


def read_object(
    requests: S3Requests,
    key: str,
    offset: int,
    end: int | None,
    *,
    piece_bytes: int,
    at_once: int,
) -> Piece:
    """The bytes from `offset` to `end` (None: the object's end), with what it says of itself.

    Raises:
        NotFound: there is no such object.
        Unavailable: it does not answer, or is replaced again and again.
    """
    if end is not None and end - offset <= piece_bytes + piece_bytes // 2:
        return requests.get(key, offset, end)
    # How long it is shows with the first answers. Most that are read to their end are small.
    first_end = offset + piece_bytes * (1 if end is None else at_once)
    first_spans = _spans(offset, first_end if end is None else min(first_end, end), piece_bytes)
    with ThreadPoolExecutor(at_once, thread_name_prefix="holdfast-s3-read") as pool:
        for _ in range(_TRIES):
            pieces = [*pool.map(lambda span: requests.get(key, *span), first_spans)]
            first = pieces[0]
            if first.total_bytes is None:
                return first
            stop = first.total_bytes if end is None else min(end, first.total_bytes)
            more = _spans(first_spans[-1][1], stop, piece_bytes)
            pieces += pool.map(lambda span: requests.get(key, *span), more)
            pieces = [piece for piece in pieces if piece.data]
            data = b"".join(piece.data for piece in pieces)
            is_one = all(piece.version == first.version for piece in pieces)
            if is_one and len(data) == max(stop - offset, 0):
                return Piece(data, first.total_bytes, first.version, first.mark)
    raise Unavailable(
        "cannot read a whole object",
        where=key,
        expected="one version of it from the first to the last piece",
        found=f"another one, {_TRIES} times",
    )


def _spans(begin: int, end: int, piece_bytes: int) -> list[tuple[int, int]]:
    return [(start, min(start + piece_bytes, end)) for start in range(begin, end, piece_bytes)]
