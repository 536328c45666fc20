"""Checkpoints in a bucket of S3, or of any store that speaks its protocol and keeps its guarantees.

An object appears whole by the nature of the store. `create` is a conditional put, decided by the
store. Whether a store honours the condition is tried before the first create, and never assumed.
"""

from __future__ import annotations

import copy
from importlib.util import find_spec
from typing import Unpack

from holdfast.storage.clock import Clock
from holdfast.storage.distribution import install_line
from holdfast.storage.entropy import Entropy
from holdfast.storage.errors import Invalid
from holdfast.storage.interface import Capabilities
from holdfast.storage.options.checks import check_switch
from holdfast.storage.places.delegating import DelegatingStorage, Verbs
from holdfast.storage.places.s3.options import S3Arguments, S3Options, s3_place, url_to_show
from holdfast.storage.places.s3.secrets import warn_of_secrets
from holdfast.storage.retries import Retries

__all__ = ["S3CheckpointStorage"]

_OWN_OPTIONS = ("allow_unsafe_commit", "clock", "entropy", "inline_limit_bytes")


class S3CheckpointStorage(DelegatingStorage):
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
        """Name a place, `s3://bucket/path`; no request is made before it is used.

        `options` are those that `S3Options` describes. `allow_unsafe_commit` admits a store that
        does not honour conditional requests, on which two drivers of one job could both believe
        that they committed.

        Raises:
            Invalid: the URL is not that of a place, or an option is not known or out of range.
        """
        if find_spec("botocore") is None:
            raise Invalid(
                "a package that S3 needs is not installed",
                where=url_to_show(url),
                found="no package botocore",
                fix=install_line("s3"),
            )
        super().__init__(inline_limit_bytes=inline_limit_bytes, clock=clock, entropy=entropy)
        self._url = url_to_show(url).rstrip("/")
        self._place = s3_place(url)
        check_switch(allow_unsafe_commit, name="option allow_unsafe_commit")
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
    def identity(self) -> str:
        endpoint = (self._options.endpoint_url or "").rstrip("/").lower()
        return f"s3://{self._place.bucket}/{self._place.prefix} {endpoint}".rstrip()

    def at(self, url: str) -> S3CheckpointStorage | None:
        try:
            place = s3_place(url)
        except Invalid:
            return None
        if place.bucket != self._place.bucket:
            return None  # another bucket may need another endpoint, or other keys
        other = copy.copy(self)
        other._url, other._place = url.rstrip("/"), place
        return other

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def _verbs(self) -> Verbs:
        """The verbs by requests to S3. The library below is loaded only here: few jobs need it."""
        from holdfast.storage.places.s3.objects import S3Objects  # noqa: PLC0415
        from holdfast.storage.places.s3.requests import S3Requests  # noqa: PLC0415

        retries = Retries(self._options.retry_policy, self.clock, self.entropy)
        requests = S3Requests(self._options, self._place, self._url, retries)
        return S3Objects(
            requests, self._options, self._place, self.entropy, is_unsafe=self._is_unsafe
        )
