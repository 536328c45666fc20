"""Checkpoints in a bucket of S3, or of any store that speaks its language and keeps its promises.

An object appears whole by the nature of the store. `create` is a conditional put, decided by the
store; that a store honours the condition is tried before the first one, and never assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from typing import Unpack

from holdfast.storage.clock import Clock
from holdfast.storage.entropy import Entropy
from holdfast.storage.errors import HoldfastError, Invalid, NotFound, Unavailable
from holdfast.storage.interface import (
    Buffer,
    Capabilities,
    CheckpointStorage,
    ObjectInfo,
    ObjectWriter,
    UnfinishedWrite,
)
from holdfast.storage.names import check_name, is_legal
from holdfast.storage.ranges import check_range
from holdfast.storage.retries import Retries
from holdfast.storage.s3_options import S3Arguments, S3Options, s3_place, url_to_show
from holdfast.storage.s3_proof import prove
from holdfast.storage.s3_reading import read_object
from holdfast.storage.s3_requests import DELETED_AT_ONCE, Listed, Piece, S3Requests, Upload
from holdfast.storage.s3_secrets import warn_of_secrets
from holdfast.storage.s3_writer import S3Writer

__all__ = ["S3CheckpointStorage"]

_CREATE_ATTEMPTS = 20
_UPLOAD = "?uploadId="
_OWN_OPTIONS = ("allow_unsafe_commit", "clock", "entropy", "inline_limit_bytes")


class S3CheckpointStorage(CheckpointStorage):
    """Keeps checkpoints in a bucket, below a path.

    `s3://bucket/path` and `s3a://bucket/path` are the same place. Connections are made where the
    storage is used, one client for each process and equal options.
    """

    def __init__(
        self,
        url: str,
        *,
        allow_unsafe_commit: bool = False,
        inline_limit_bytes: int = 20 * 1024,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **options: Unpack[S3Arguments],
    ) -> None:
        """Name a place, `s3://bucket/path`; nothing is asked of it before it is used.

        `options` are those that `S3Options` describes. `allow_unsafe_commit` admits a store that
        does not honour conditional requests, on which two drivers of one job could both believe
        that they committed.

        Raises:
            Invalid: the URL names no place, or an option is not known or cannot be what it is.
        """
        super().__init__(inline_limit_bytes=inline_limit_bytes, clock=clock, entropy=entropy)
        self._url = url_to_show(url).rstrip("/")
        self._place = s3_place(url)
        self._is_unsafe = allow_unsafe_commit
        self._options = S3Options.of(options, others=_OWN_OPTIONS)
        self._capabilities = Capabilities(
            shared_between_processes=True,
            durable=True,
            atomic_create=not allow_unsafe_commit,
            ranges_at_once=self._options.max_concurrency,
        )
        if self._options.key is not None:
            warn_of_secrets(self._url)

    @property
    def url(self) -> str:
        return self._url

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def prepare(self) -> None:
        prove(self._requests, self._place, self.entropy, is_unsafe=self._is_unsafe)

    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        key = self._key(name)
        end = check_range(name, offset, length)
        if length == 0:
            self._requests.get(key, offset, offset + 1)
            return b""
        return self._read(key, offset, end).data

    def writer(self, name: str) -> ObjectWriter:
        return S3Writer(
            self._requests,
            self._key(name),
            self.entropy.token(),
            part_bytes=self._options.part_size_bytes,
            at_once=self._options.max_concurrency,
        )

    def create(self, name: str, data: Buffer) -> bytes | None:
        key = self._key(name)
        mine = bytes(data)
        if not self._is_unsafe:
            prove(self._requests, self._place, self.entropy, is_unsafe=False)
        mark = self.entropy.token()
        for _ in range(_CREATE_ATTEMPTS):
            if self._create(key, mine, mark):
                return None
            try:
                there = self._read(key, 0, None)
            except NotFound:
                continue  # somebody has just deleted it: there is room for ours
            # It bears our mark if we created it by an attempt whose answer was lost.
            return None if there.mark == mark else there.data
        raise self._refusal(name)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        if not _begins_a_name(prefix):
            return
        start = len(self._place.prefix)
        found: Iterable[Listed] = self._requests.list(self._place.prefix + prefix)
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
                        self._requests.abort(Upload(key, upload_id))
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

    @property
    def _requests(self) -> S3Requests:
        retries = Retries(self._options.retry_policy, self.clock, self.entropy)
        return S3Requests(self._options, self._place, self._url, retries)

    def _key(self, name: str) -> str:
        return self._place.prefix + check_name(name)

    def _read(self, key: str, offset: int, end: int | None) -> Piece:
        return read_object(
            self._requests,
            key,
            offset,
            end,
            piece_bytes=self._options.part_size_bytes,
            at_once=self._options.max_concurrency,
        )

    def _refusal(self, name: str) -> HoldfastError:
        """The error for an object that cannot be created where none is found."""
        if next(self.list(f"{name}/"), None) is not None:
            return Invalid(
                "this store keeps no object where the names of others have a folder",
                where=self.url_of(name),
                fix="Use another name",
            )
        return Unavailable(
            "cannot create",
            where=self.url_of(name),
            expected="an object, or none",
            found="one that comes and goes",
        )

    def _create(self, key: str, data: bytes, mark: str) -> bool:
        """Whether the object was created; without a store that decides, look before."""
        if not self._is_unsafe:
            return self._requests.put(key, data, mark, if_absent=True)
        with suppress(NotFound):
            self._requests.get(key, 0, 1)
            return False
        return self._requests.put(key, data, mark)


def _begins_a_name(prefix: str) -> bool:
    """Whether an object can have a name that begins so."""
    return is_legal(prefix) or is_legal(f"{prefix}x")
