"""Options of an S3 storage: checked when they are given, and light enough to be sent with it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypedDict
from urllib.parse import urlsplit

from holdfast.storage.errors import Invalid
from holdfast.storage.options.checks import (
    check_count,
    check_known,
    check_number,
    check_switch,
    check_text,
)
from holdfast.storage.places.s3.secrets import Secret
from holdfast.storage.retries import RetryPolicy

__all__ = [
    "LARGEST_PART_BYTES",
    "MIB",
    "PROVIDERS",
    "SMALLEST_PART_BYTES",
    "S3Arguments",
    "S3Options",
    "S3Place",
    "s3_place",
    "url_to_show",
]

MIB = 1024 * 1024
# What S3 takes, and what memory holds several of.
SMALLEST_PART_BYTES = 5 * MIB
LARGEST_PART_BYTES = 1024 * MIB
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_URL = re.compile(r"s3a?://([^/]*)(?:/(.*))?", re.DOTALL)
_ENDPOINT = re.compile(r"(?:https?://)?(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?/?")
_ENCRYPTIONS = ("AES256", "aws:kms", "aws:kms:dsse")

PROVIDERS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "chain": frozenset(),  # all of botocore's, in its order
        "environment": frozenset({"env"}),
        "profile": frozenset(
            {"assume-role", "sso", "shared-credentials-file", "custom-process", "config-file"}
        ),
        "web-identity": frozenset({"assume-role-with-web-identity"}),
        "container": frozenset({"container-role"}),
        "instance": frozenset({"container-role", "iam-role"}),
    }
)
"""The choices of `provider`, with botocore's names for them."""

_PUT_ARGUMENTS = frozenset(
    {
        *("ACL", "GrantFullControl", "GrantRead", "GrantReadACP", "GrantWriteACP"),
        *("BucketKeyEnabled", "SSEKMSEncryptionContext", "ServerSideEncryption", "SSEKMSKeyId"),
        *("CacheControl", "ContentType", "ExpectedBucketOwner", "RequestPayer"),
        *("StorageClass", "Tagging"),
    }
)
"""Arguments that fit an object written by one request or in parts."""
_EVERY_CALL = ("ExpectedBucketOwner", "RequestPayer")
_UNREADABLE_CLASSES = ("GLACIER", "DEEP_ARCHIVE")


@dataclass(frozen=True, slots=True)
class S3Place:
    """A bucket, and the prefix of all objects in it: empty, or a path and `/`."""

    bucket: str
    prefix: str


def url_to_show(url: str) -> str:
    """The URL without the part before an `@`, where old tools had keys."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}" if separator else url


def s3_place(url: str) -> S3Place:
    """The place that a URL names; `s3://` and `s3a://` name the same one. Nothing is decoded.

    Raises:
        Invalid: the URL does not name a place.
    """
    shown = url_to_show(url)
    match = _URL.fullmatch(url)
    if match is None:
        raise Invalid("not the URL of a bucket", expected="s3://bucket/path", found=repr(shown))
    if "@" in match[1]:
        raise Invalid(
            "a URL has credentials in it",
            where=shown,
            fix="Leave them out: URLs are logged. Use the environment, a profile, or options",
        )
    if not _BUCKET.fullmatch(match[1]):
        raise Invalid(
            "a URL has no name of a bucket",
            where=shown,
            expected="s3://bucket/path, a name of 3 letters or more (an access point: its alias)",
            found=repr(match[1]),
        )
    if match[1].endswith("--x-s3"):
        raise Invalid(
            "a directory bucket (S3 Express) lists its objects in no order",
            where=shown,
            fix="Use a general purpose bucket",
        )
    path = (match[2] or "").strip("/")
    parts = path.split("/") if path else []
    if any(part in ("", ".", "..") for part in parts) or not path.isprintable():
        raise Invalid(
            "the path of a URL is not plain",
            where=repr(shown),
            expected="parts joined by one slash each, none of them . or .., no control characters",
        )
    return S3Place(match[1], f"{path}/" if path else "")


class S3Arguments(TypedDict, total=False):
    """The options by name, as callers give them; `S3Options` says what each means."""

    endpoint: str | None
    region: str | None
    key: str | Secret | None
    secret: str | Secret | None
    session_token: str | Secret | None
    profile: str | None
    provider: str
    anon: bool
    path_style: bool | None
    ssl: bool | None
    verify: bool | str
    part_size_bytes: int
    max_concurrency: int
    max_connections: int
    connect_timeout_s: float
    read_timeout_s: float
    max_attempts: int
    retry_timeout_s: float
    sign_payload: bool | None
    server_side_encryption: str | None
    kms_key_id: str | None
    put_arguments: Mapping[str, str | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """Settings of the client. Storages with equal ones share it, in each process.

    Attributes:
        endpoint: the URL of the store, `http://host:port`. None: AWS, or the one of the environment
            or a profile.
        region: None: the one of the environment or a profile.
        key: the access key's id. It travels with the storage wherever that is sent, as do `secret`
            and `session_token`; what a provider finds does not.
        secret: the secret access key.
        session_token: of temporary credentials.
        profile: the profile in the files of AWS's tools with credentials and settings.
        provider: where credentials are looked for, on the machine that uses them: `chain` (all, as
            AWS's tools do), or some of `environment`, `profile`, `web-identity`, `container`,
            `instance` in the order in which to ask them, separated by commas.
        anon: sign nothing; for public places.
        path_style: `endpoint/bucket/…` rather than `bucket.endpoint/…`. None: unless it is AWS.
        ssl: whether an endpoint without `http://` or `https://` encrypts; None: it does.
        verify: whether to check certificates; or a file of trusted ones, on each machine.
        part_size_bytes: the size of one request that writes or reads; smaller objects take one.
        max_concurrency: how many parts of one object are under way at once. A writer holds one
            more than that in memory.
        max_connections: how many requests a process makes at once.
        connect_timeout_s: for a connection to be made, or for a part to be sent; at least the time
            that a part takes at 256 KiB/s.
        read_timeout_s: for the first byte of an answer. max_attempts: how often a request is made
        that fails in a way that may pass by itself. retry_timeout_s: no attempt begins later than
        this after the first one. sign_payload: hash each body that is sent. None: only where
        nothing is encrypted. put_arguments: other arguments of S3's PutObject, such as `ACL`,
        `StorageClass`, `Tagging`, and
            those of encryption, which are given as `server_side_encryption` (`AES256`, `aws:kms`
            or `aws:kms:dsse`) and `kms_key_id`.
    """

    endpoint: str | None = None
    region: str | None = None
    key: Secret | None = None
    secret: Secret | None = None
    session_token: Secret | None = None
    profile: str | None = None
    provider: str = "chain"
    anon: bool = False
    path_style: bool | None = None
    ssl: bool | None = None
    verify: bool | str = True
    part_size_bytes: int = 8 * MIB
    max_concurrency: int = 4
    max_connections: int = 32
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 60.0
    max_attempts: int = 8
    retry_timeout_s: float = 60.0
    sign_payload: bool | None = None
    put_arguments: tuple[tuple[str, str | bool], ...] = ()

    @classmethod
    def of(cls, arguments: S3Arguments, *, others: Collection[str] = ()) -> S3Options:
        """The options given by name; `others` are known too, and are listed in errors.

        Raises:
            Invalid: an option is not known, or out of range.
        """
        given: dict[str, Any] = {**arguments}
        known = {*S3Arguments.__annotations__, *others}
        check_known(given, known, what="checkpoint storage", where="S3CheckpointStorage")
        for name in ("key", "secret", "session_token"):
            value = given.get(name)
            is_text = value is None or isinstance(value, Secret) or (type(value) is str and value)
            _check(is_text, name, "text", type(value).__name__)
            given[name] = Secret(value) if isinstance(value, str) else value
        given["put_arguments"] = _put_arguments(given)
        return cls(**given)

    def __post_init__(self) -> None:
        self._check_types()
        self._check_endpoint()
        self._check_credentials()
        self._check_numbers()
        RetryPolicy(self.max_attempts, self.retry_timeout_s)
        _check_put_arguments(dict(self.put_arguments))

    @property
    def retry_policy(self) -> RetryPolicy:
        """How often a call is made, and for how long."""
        return RetryPolicy(self.max_attempts, self.retry_timeout_s)

    @property
    def endpoint_url(self) -> str | None:
        """The endpoint with its scheme; None for AWS, or the one of the environment."""
        if self.endpoint is None or "://" in self.endpoint:
            return self.endpoint
        return f"{'http' if self.ssl is False else 'https'}://{self.endpoint}"

    @property
    def every_call(self) -> dict[str, Any]:
        """Arguments of every request, not only of those that write."""
        return {name: value for name, value in self.put_arguments if name in _EVERY_CALL}

    @property
    def providers(self) -> tuple[str, ...]:
        """The names of the providers of credentials, in order."""
        return tuple(name.strip() for name in self.provider.split(","))

    def _check_types(self) -> None:
        for name in ("endpoint", "region", "profile"):
            if getattr(self, name) is not None:
                check_text(getattr(self, name), name=f"option {name}")
        for name in ("path_style", "ssl", "sign_payload"):
            if getattr(self, name) is not None:
                check_switch(getattr(self, name), name=f"option {name}")
        check_switch(self.anon, name="option anon")
        _check(
            type(self.verify) is bool or (type(self.verify) is str and self.verify),
            "verify",
            "True, False, or the path of a file of certificates",
            self.verify,
        )

    def _check_endpoint(self) -> None:
        if self.endpoint is None:
            return
        shown = url_to_show(self.endpoint)
        expected = "http://host:port, https://host, or host:port"
        _check(_ENDPOINT.fullmatch(self.endpoint), "endpoint", expected, shown)
        try:
            urlsplit(self.endpoint_url or "").port  # noqa: B018 (the property parses the port)
        except ValueError:
            _check(False, "endpoint", expected, shown)
        scheme = "https" if self.ssl else "http"
        if self.ssl is not None and "://" in self.endpoint:
            _check(
                self.endpoint.startswith(f"{scheme}://"),
                "ssl",
                f"what the endpoint says, {shown}",
                self.ssl,
            )

    def _check_credentials(self) -> None:
        given = [
            name
            for name, is_given in (
                ("key", self.key is not None or self.secret is not None),
                ("profile", self.profile is not None),
                ("provider", self.provider != "chain"),
                ("anon", self.anon),
            )
            if is_given
        ]
        both = {"profile", "provider"} == set(given) and self.provider == "profile"
        if len(given) > 1 and not both:
            raise Invalid(
                "options of credentials exclude each other",
                expected="one of key and secret, profile, provider, anon",
                found=" and ".join(given),
            )
        if (self.key is None) != (self.secret is None):
            raise Invalid(
                f"option {'secret' if self.secret is None else 'key'} is missing",
                expected="key and secret, or neither",
            )
        if self.session_token is not None and self.key is None:
            raise Invalid("option session_token is given without key and secret")
        unknown = [name for name in self.providers if name not in PROVIDERS]
        _check(not unknown, "provider", f"one or more of {', '.join(PROVIDERS)}", self.provider)

    def _check_numbers(self) -> None:
        check_count(
            self.part_size_bytes,
            name="option part_size_bytes",
            least=SMALLEST_PART_BYTES,
            most=LARGEST_PART_BYTES,
        )
        for name in ("max_concurrency", "max_connections"):
            check_count(getattr(self, name), name=f"option {name}", least=1, most=1000)
        for name in ("connect_timeout_s", "read_timeout_s"):
            check_number(getattr(self, name), name=f"option {name}", least=0.001)


def _check(fact: object, name: str, expected: str, found: object) -> None:
    if not fact:
        raise Invalid(f"option {name} is out of range", expected=expected, found=repr(found))


def _put_arguments(given: dict[str, Any]) -> tuple[tuple[str, str | bool], ...]:
    """All arguments of PutObject; removes the options that stand for some of them."""
    arguments = given.pop("put_arguments", None) or {}
    _check(isinstance(arguments, Mapping), "put_arguments", "names with values", arguments)
    made = dict(arguments)
    for option, name in (
        ("server_side_encryption", "ServerSideEncryption"),
        ("kms_key_id", "SSEKMSKeyId"),
    ):
        value = given.pop(option, None)
        if value is not None:
            _check(name not in made, option, "it once", f"also {name} in put_arguments")
            made[name] = value
    return tuple(sorted(made.items()))


def _check_put_arguments(arguments: Mapping[str, Any]) -> None:
    unknown = sorted(set(arguments) - _PUT_ARGUMENTS)
    if any(name.startswith("SSECustomer") for name in unknown):
        raise Invalid(
            "encryption with a key of the customer is not supported",
            expected="server_side_encryption, with a key that the store keeps",
            found=unknown[0],
        )
    _check(not unknown, "put_arguments", f"some of {', '.join(sorted(_PUT_ARGUMENTS))}", unknown)
    odd = {name: value for name, value in arguments.items() if type(value) not in (str, bool)}
    _check(not odd, "put_arguments", "texts", odd)
    encryption = arguments.get("ServerSideEncryption")
    _check(
        encryption is None or encryption in _ENCRYPTIONS,
        "server_side_encryption",
        f"one of {', '.join(_ENCRYPTIONS)}",
        encryption,
    )
    _check(
        "SSEKMSKeyId" not in arguments or (encryption or "").startswith("aws:kms"),
        "kms_key_id",
        "server_side_encryption aws:kms or aws:kms:dsse with it",
        encryption,
    )
    _check(
        arguments.get("StorageClass") not in _UNREADABLE_CLASSES,
        "put_arguments",
        "a StorageClass that can be read at once",
        arguments.get("StorageClass"),
    )
