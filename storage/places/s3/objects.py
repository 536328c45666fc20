"""The objects below one place in S3; `ObjectStorage` says what each verb owes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from operator import attrgetter

from holdfast.storage.entropy import Entropy
from holdfast.storage.errors import HoldfastError, Invalid, NotFound, Unavailable
from holdfast.storage.interface import (
    Buffer,
    ObjectInfo,
    ObjectWriter,
    UnfinishedWrite,
    check_range,
)
from holdfast.storage.names import check_name, is_legal
from holdfast.storage.places.s3.options import S3Options, S3Place
from holdfast.storage.places.s3.probing import prove
from holdfast.storage.places.s3.reading import read_object
from holdfast.storage.places.s3.requests import (
    DELETED_AT_ONCE,
    ListedObject,
    MultipartUpload,
    S3Requests,
)
from holdfast.storage.places.s3.writer import S3Writer

__all__ = ["S3Objects"]

_CREATE_ATTEMPTS = 20
_UPLOAD = "?uploadId="


class S3Objects:
    """The verbs of a storage, by requests to a store."""

    def __init__(
        self,
        requests: S3Requests,
        options: S3Options,
        place: S3Place,
        entropy: Entropy,
        *,
        is_unsafe: bool,
    ) -> None:
        self._requests = requests
        self._place = place
        self._entropy = entropy
        self._is_unsafe = is_unsafe
        self._piece_bytes = options.part_size_bytes
        self._at_once = options.max_concurrency

    def prepare(self) -> None:
        prove(self._requests, self._place, self._entropy, is_unsafe=self._is_unsafe)

    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        key = self._key(name)
        end = check_range(name, offset, length)
        if length == 0:  # S3 has no empty range: one byte tells whether it exists
            self._requests.get(key, offset, offset + 1)
            return b""
        pieces = {"piece_bytes": self._piece_bytes, "at_once": self._at_once}
        return read_object(self._requests, key, offset, end, **pieces).data

    def writer(self, name: str) -> ObjectWriter:
        return S3Writer(
            self._requests,
            self._key(name),
            self._entropy.token(),
            part_bytes=self._piece_bytes,
            at_once=self._at_once,
        )

    def create(self, name: str, data: Buffer) -> bytes | None:
        key = self._key(name)
        mine = bytes(data)
        if not self._is_unsafe:
            prove(self._requests, self._place, self._entropy, is_unsafe=False)
        mark = self._entropy.token()
        for _ in range(_CREATE_ATTEMPTS):
            if self._create(key, mine, mark):
                return None
            try:
                there = self._requests.get(key, 0, None)
            except NotFound:
                continue  # it was just deleted: try again
            # It bears our mark if an earlier attempt created it and the answer was lost.
            return None if there.mark == mark else there.data
        raise self._refusal(name)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        if not _begins_a_name(prefix):
            return
        start = len(self._place.prefix)
        found: Iterable[ListedObject] = self._requests.list(self._place.prefix + prefix)
        if not self._requests.connection.lists_in_order:
            found = sorted(found, key=attrgetter("key"))
        for line in found:
            name = line.key[start:]
            if is_legal(name):
                yield ObjectInfo(name, line.size_bytes)

    def delete(self, names: Iterable[str]) -> None:
        failure: HoldfastError | None = None
        left = iter(names)
        while batch := [*islice(left, DELETED_AT_ONCE)]:
            keys = []
            for name in batch:
                try:
                    target, is_upload, upload_id = name.partition(_UPLOAD)
                    key = self._key(target)
                    if is_upload:
                        self._requests.abort(MultipartUpload(key, upload_id))
                    else:
                        keys.append(key)
                except HoldfastError as error:
                    failure = failure or error
            refused = self._requests.delete(keys)
            failure = failure or refused
        if failure is not None:
            raise failure

    def unfinished(self, prefix: str) -> Iterator[UnfinishedWrite]:
        if not _begins_a_name(prefix):
            return
        start = len(self._place.prefix)
        for upload in self._requests.uploads(self._place.prefix + prefix):
            target = upload.key[start:]
            size_bytes = self._requests.size_of(upload) if is_legal(target) else None
            if size_bytes is not None:
                yield UnfinishedWrite(f"{target}{_UPLOAD}{upload.upload_id}", target, size_bytes)

    def _key(self, name: str) -> str:
        return self._place.prefix + check_name(name)

    def _refusal(self, name: str) -> HoldfastError:
        """The error for an object that cannot be created where none is found."""
        if next(self.list(f"{name}/"), None) is not None:
            return Invalid(
                "this store keeps no object under a name that is a folder of others",
                where=self._requests.where(self._place.prefix + name),
                fix="Use another name",
            )
        return Unavailable(
            "cannot create",
            where=self._requests.where(self._place.prefix + name),
            expected="an object, or none",
            found="one that comes and goes",
        )

    def _create(self, key: str, data: bytes, mark: str) -> bool:
        """Whether the object was created; an unsafe store is asked before whether it exists."""
        if not self._is_unsafe:
            return self._requests.put(key, data, mark, if_absent=True)
        with suppress(NotFound):
            self._requests.get(key, 0, 1)
            return False
        return self._requests.put(key, data, mark)


def _begins_a_name(prefix: str) -> bool:
    """Whether a legal name can begin with this prefix."""
    return is_legal(prefix) or is_legal(f"{prefix}x")
