"""The requests to one place in S3: each is repeated where that helps, and answers plain facts.

Errors are those of Holdfast. A repeated request may find the effect of an earlier one whose answer
was lost; a mark in the object's own metadata tells it from the effects of other writers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeVar

from botocore.exceptions import ClientError, IncompleteReadError, NoCredentialsError

from holdfast.storage.errors import HoldfastError, Unavailable
from holdfast.storage.places.s3.connection import S3Connection, connection, drop, not_found
from holdfast.storage.places.s3.errors import Attempted, code_of, failed, trouble_of
from holdfast.storage.places.s3.options import S3Options, S3Place
from holdfast.storage.retries import Retries, Tried

__all__ = [
    "DELETED_AT_ONCE",
    "ListedObject",
    "MultipartUpload",
    "ObjectRange",
    "S3Requests",
    "UploadedPart",
]

_Answer = TypeVar("_Answer")

DELETED_AT_ONCE = 1000
_CHUNK_BYTES = 256 * 1024
"""Small enough that the copy comes from the processor's cache."""
_MARK = "holdfast-mark"
_GONE = frozenset({"NoSuchUpload", "NoSuchKey"})
_CONFLICTS = frozenset({"PreconditionFailed", "412"})


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """A range of an object, as one answer has it."""

    data: bytes
    total_bytes: int | None
    """The size of the object; None where the range lies past its end."""
    version: str
    """Equal for two pieces of the same object, and not for one that has replaced it."""
    mark: str
    """The mark of the request that made the object."""
    size_bytes: int = 0
    """The number of bytes read, also if they were put into a given buffer."""


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One object of a listing."""

    key: str
    size_bytes: int
    age_s: float
    """By the store's own clock."""


@dataclass(frozen=True, slots=True)
class MultipartUpload:
    """An object that is being written in parts."""

    key: str
    upload_id: str


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """A part that has been uploaded."""

    number: int
    etag: str


def _always() -> bool:
    return True


class S3Requests:
    """Requests about the objects below one place. Safe to use from many threads."""

    def __init__(self, options: S3Options, place: S3Place, url: str, retries: Retries) -> None:
        self._options = options
        self._place = place
        self._url = url
        self._retries = retries

    @property
    def connection(self) -> S3Connection:
        """The connection of this process."""

        def gave_up(error: Exception, tried: Tried) -> Exception:
            return failed(error, tried, self._attempted("connect", "", None))

        return self._retries.run(
            lambda: connection(self._options), trouble_of=trouble_of, failed=gave_up
        )

    def where(self, key: str) -> str:
        """The object, or the storage, as users write it."""
        name = key.removeprefix(self._place.prefix)
        return f"{self._url}/{name}" if name else self._url

    def put(self, key: str, body: bytes | bytearray, mark: str, *, if_absent: bool = False) -> bool:
        """Write a whole object with one request; with `if_absent` tell whether it was written."""
        condition = {"IfNoneMatch": "*"} if if_absent else {}

        def call(client: Any) -> bool:
            try:
                client.put_object(
                    Key=key, Body=body, Metadata={_MARK: mark}, **condition, **self._writing
                )
            except ClientError as error:
                if if_absent and code_of(error) in _CONFLICTS:
                    return False
                raise
            return True

        return self._call("create" if if_absent else "write", key, call)

    def get(
        self, key: str, begin: int, end: int | None, *, into: memoryview | None = None
    ) -> ObjectRange:
        """A range of an object, written `into` a buffer if given; past its end no bytes.

        Raises:
            NotFound: there is no such object.
        """
        return self._call("read", key, lambda client: self._piece(client, key, begin, end, into))

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """The objects whose keys begin so, as the store orders them."""
        where: dict[str, str] = {}
        while True:
            arguments = {"Prefix": prefix, **where, **self._reading}
            page = self._call("list", prefix, _made_with("list_objects_v2", arguments))
            now = _date(page)
            for line in page.get("Contents", ()):
                age_s = (now - line["LastModified"]).total_seconds() if now else 0.0
                yield ListedObject(line["Key"], line["Size"], age_s)
            if not page.get("IsTruncated"):
                return
            where = {"ContinuationToken": self._next(page, "NextContinuationToken", prefix)}

    def delete(self, keys: Sequence[str]) -> HoldfastError | None:
        """Delete up to a thousand objects; absent ones count as deleted.

        Goes on past failures; answers the first error.
        """
        left = list(keys)

        def call(client: Any) -> None:
            answer = client.delete_objects(
                Delete={"Objects": [{"Key": key} for key in left], "Quiet": True}, **self._reading
            )
            errors = [line for line in answer.get("Errors", ()) if line.get("Code") != "NoSuchKey"]
            left[:] = [line["Key"] for line in errors if "Key" in line]
            if errors:
                raise _as_error(errors)

        def call_one(client: Any) -> None:
            try:
                client.delete_object(Key=left[0], **self._reading)
            except ClientError as error:
                if code_of(error) != "NoSuchKey":
                    raise

        try:
            if len(left) == 1:
                self._call("delete", left[0], call_one)
            elif left:
                self._call("delete", lambda: left[0] if left else "", call)
        except HoldfastError as error:
            return error
        return None

    def begin_upload(self, key: str, mark: str) -> MultipartUpload:
        """Begin to write an object in parts."""
        answer = self._call(
            "begin to write",
            key,
            lambda client: client.create_multipart_upload(
                Key=key, Metadata={_MARK: mark}, **self._writing
            ),
        )
        return MultipartUpload(key, answer["UploadId"])

    def put_part(
        self,
        upload: MultipartUpload,
        number: int,
        body: bytearray,
        wanted: Callable[[], bool] = _always,
    ) -> UploadedPart:
        """Upload one part; gives up early when it is no longer `wanted`."""
        answer = self._call(
            "write",
            upload.key,
            lambda client: client.upload_part(
                Key=upload.key,
                UploadId=upload.upload_id,
                PartNumber=number,
                Body=body,
                **self._reading,
            ),
            wanted=wanted,
        )
        return UploadedPart(number, answer["ETag"])

    def complete(self, upload: MultipartUpload, parts: Sequence[UploadedPart], mark: str) -> None:
        """Make the object of its parts, whole, replacing one of the same name."""
        lines = [{"PartNumber": part.number, "ETag": part.etag} for part in parts]

        def call(client: Any) -> None:
            try:
                client.complete_multipart_upload(
                    Key=upload.key,
                    UploadId=upload.upload_id,
                    MultipartUpload={"Parts": lines},
                    **self._reading,
                )
            except ClientError as error:
                if code_of(error) != "NoSuchUpload" or not self._has_mark(client, upload.key, mark):
                    raise  # otherwise an earlier try succeeded, and its answer was lost

        self._call("finish writing", upload.key, call)

    def abort(self, upload: MultipartUpload) -> None:
        """Drop an upload and its parts; an absent one is fine."""

        def call(client: Any) -> None:
            try:
                client.abort_multipart_upload(
                    Key=upload.key, UploadId=upload.upload_id, **self._reading
                )
            except ClientError as error:
                if code_of(error) not in _GONE:
                    raise

        self._call("give up writing", upload.key, call)

    def uploads(self, prefix: str) -> Iterator[MultipartUpload]:
        """Uploads of objects whose keys begin so, which are neither completed nor aborted."""
        where: dict[str, str] = {}
        while True:
            arguments = {"Prefix": prefix, **where, **self._reading}
            made = _made_with("list_multipart_uploads", arguments)
            page = self._call("list unfinished writes", prefix, made)
            for line in page.get("Uploads", ()):
                yield MultipartUpload(line["Key"], line["UploadId"])
            if not page.get("IsTruncated"):
                return
            where = {"KeyMarker": self._next(page, "NextKeyMarker", prefix)}
            if page.get("NextUploadIdMarker"):
                where["UploadIdMarker"] = page["NextUploadIdMarker"]

    def size_of(self, upload: MultipartUpload) -> int | None:
        """The bytes of an upload's parts; None when it has just ended."""
        total = 0
        where: dict[str, Any] = {}
        while True:
            page = self._parts(upload, where)
            if page is None:
                return None
            total += sum(int(line["Size"]) for line in page.get("Parts", ()))
            if not page.get("IsTruncated"):
                return total
            marker = self._next(page, "NextPartNumberMarker", upload.key)
            where = {"PartNumberMarker": marker}

    def _parts(self, upload: MultipartUpload, where: dict[str, Any]) -> Any:
        def call(client: Any) -> Any:
            try:
                return client.list_parts(
                    Key=upload.key, UploadId=upload.upload_id, **where, **self._reading
                )
            except ClientError as error:
                if code_of(error) in _GONE:
                    return None
                raise

        return self._call("list unfinished writes", upload.key, call)

    @property
    def _reading(self) -> dict[str, Any]:
        return {"Bucket": self._place.bucket, **self._options.every_call}

    @property
    def _writing(self) -> dict[str, Any]:
        return {"Bucket": self._place.bucket, **dict(self._options.put_arguments)}

    def _piece(
        self, client: Any, key: str, begin: int, end: int | None, into: memoryview | None = None
    ) -> ObjectRange:
        is_part = begin > 0 or end is not None
        span = {"Range": f"bytes={begin}-{'' if end is None else end - 1}"} if is_part else {}
        try:
            answer = client.get_object(Key=key, **span, **self._reading)
        except ClientError as error:
            if is_part and code_of(error) in ("InvalidRange", "416"):
                return ObjectRange(b"", None, "", "")
            raise
        total = _total_bytes(answer)
        if into is not None and total is not None:
            data = b""
            size = _put_into(into, iter(partial(answer["Body"].read, _CHUNK_BYTES), b""))
        else:
            data = answer["Body"].read()
            if total is None:  # no range was requested, or the store ignores ranges
                total = len(data)
                data = data[begin:end]
            size = len(data)
            if into is not None:
                into[:size], data = data, b""
        mark = answer.get("Metadata", {}).get(_MARK, "")
        return ObjectRange(data, total, answer.get("ETag", ""), mark, size)

    def _has_mark(self, client: Any, key: str, mark: str) -> bool:
        """Uses the client of the request under way: another request would wait for the gate."""
        try:
            return self._piece(client, key, 0, 1).mark == mark
        except ClientError as error:
            if code_of(error) == "NoSuchKey":
                return False
            raise

    def _next(self, page: Any, marker: str, prefix: str) -> Any:
        if not page.get(marker):
            raise Unavailable(
                "cannot list",
                where=self.where(prefix),
                expected="the beginning of the next page",
                found=f"an answer that goes on, without {marker}",
            )
        return page[marker]

    def _call(
        self,
        action: str,
        key: str | Callable[[], str],
        call: Callable[[Any], _Answer],
        wanted: Callable[[], bool] = _always,
    ) -> _Answer:
        here: S3Connection | None = None

        def gated() -> _Answer:
            nonlocal here
            here = now = connection(self._options)
            with now.gate:
                try:
                    return call(now.client)
                except NoCredentialsError as error:
                    drop(self._options, now)  # this client would never look for them again
                    raise not_found(self._options, error) from None

        def gave_up(error: Exception, tried: Tried) -> Exception:
            if here is None:
                return failed(error, tried, self._attempted("connect", "", None))
            shown = key if isinstance(key, str) else key()
            return failed(error, tried, self._attempted(action, shown, here))

        return self._retries.run(gated, trouble_of=trouble_of, failed=gave_up, wanted=wanted)

    def _attempted(self, action: str, key: str, here: S3Connection | None) -> Attempted:
        return Attempted(
            action=action,
            where=self.where(key),
            bucket=self._place.bucket,
            endpoint=here.endpoint if here else self._options.endpoint_url or "S3",
        )


def _total_bytes(answer: Any) -> int | None:
    """The size of the object if the answer holds a range; None if it holds all of it."""
    range_of = answer.get("ContentRange")
    return int(range_of.rpartition("/")[2]) if range_of else None


def _put_into(room: memoryview, chunks: Iterator[bytes]) -> int:
    """Copy the chunks; the number of bytes.

    Raises:
        IncompleteReadError: there are more bytes than requested, so it is another range.
    """
    size = 0
    for chunk in chunks:
        if size + len(chunk) > len(room):
            raise IncompleteReadError(actual_bytes=size + len(chunk), expected_bytes=len(room))
        room[size : size + len(chunk)] = chunk
        size += len(chunk)
    return size


def _made_with(operation: str, arguments: dict[str, Any]) -> Callable[[Any], dict[str, Any]]:
    def call(client: Any) -> dict[str, Any]:
        answer: dict[str, Any] = getattr(client, operation)(**arguments)
        return answer

    return call


def _date(page: Any) -> datetime | None:
    """The store's time, from the headers of its answer."""
    head = page.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        return parsedate_to_datetime(head.get("date", ""))
    except ValueError:
        return None


def _as_error(lines: Sequence[dict[str, Any]]) -> ClientError:
    """The worst error of a deletion: a refusal before one that may pass."""
    errors = [
        ClientError(
            {"Error": {"Code": line.get("Code", ""), "Message": line.get("Message", "")}},
            "DeleteObjects",
        )
        for line in lines
    ]
    return next((error for error in errors if trouble_of(error) is None), errors[0])
