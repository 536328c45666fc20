"""Options of an S3 storage from Hadoop's `fs.s3a.*`, as Spark users have set them already."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.storage.errors import Invalid
from holdfast.storage.options.codecs import SECONDS, SIZE, SWITCH
from holdfast.storage.places.s3.options import LARGEST_PART_BYTES, SMALLEST_PART_BYTES

__all__ = ["s3a_options"]

_SPARK = "spark.hadoop."
_S3A = "fs.s3a."
_AWS_HOST = re.compile(r"s3[.-](?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?")
_TEMPORARY, _SIMPLE, _ANONYMOUS = "temporary", "simple", "anonymous"
_PROVIDERS = {
    "TemporaryAWSCredentialsProvider": _TEMPORARY,
    "SimpleAWSCredentialsProvider": _SIMPLE,
    "AnonymousAWSCredentialsProvider": _ANONYMOUS,
    "AnonymousCredentialsProvider": _ANONYMOUS,
    "EnvironmentVariableCredentialsProvider": "environment",
    "IAMInstanceCredentialsProvider": "instance",
    "InstanceProfileCredentialsProvider": "instance",
    "EC2ContainerCredentialsProviderWrapper": "instance",
    "ContainerCredentialsProvider": "container",
    "ProfileCredentialsProvider": "profile",
    "ProfileAWSCredentialsProvider": "profile",
    "WebIdentityTokenCredentialsProvider": "web-identity",
    "WebIdentityTokenFileCredentialsProvider": "web-identity",
    "DefaultAWSCredentialsProviderChain": "chain",
    "DefaultCredentialsProvider": "chain",
}
"""By the last part of the class's name: Hadoop's own, and those of both versions of AWS's SDK."""
_ENCRYPTIONS = {
    "AES256": "AES256",
    "SSE-S3": "AES256",
    "SSE-KMS": "aws:kms",
    "DSSE-KMS": "aws:kms:dsse",
}
_ACLS = {
    "Private": "private",
    "PublicRead": "public-read",
    "PublicReadWrite": "public-read-write",
    "AuthenticatedRead": "authenticated-read",
    "BucketOwnerRead": "bucket-owner-read",
    "BucketOwnerFullControl": "bucket-owner-full-control",
}

_STORAGE_CLASSES = (
    *("STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR"),
    *("REDUCED_REDUNDANCY", "OUTPOSTS", "SNOW"),
)
"""Classes that Hadoop knows and whose objects can be read at once."""
_CREDENTIAL_FILES = "security.credential.provider.path"
_REFUSED = {
    "proxy.host": "Set HTTPS_PROXY and NO_PROXY for the driver and for executors, and make the "
    "storage in code, with load_storage and options",
    "accesspoint.arn": "Name the access point by its alias, in place of the bucket",
    "delegation.token.binding": "Make the storage in code, with load_storage and options",
    "custom.signers": "Make the storage in code, with load_storage and options",
}
"""Settings of identity or route: if ignored, requests would go elsewhere, or as another user."""


def s3a_options(conf: Mapping[str, str], bucket: str | None = None) -> dict[str, Any]:
    """The options of `S3CheckpointStorage` that this configuration sets, and no others.

    `conf` has Hadoop's `fs.s3a.*`, each with or without Spark's `spark.hadoop.` before it; settings
    for the bucket (`fs.s3a.bucket.BUCKET.*`) have priority over those for all. Settings that do not
    matter to checkpoints are ignored: docs/storages.md lists those that count.

    Raises:
        Invalid: a value cannot be read, or asks for what is not supported; names the setting.
    """
    settings = _Settings(conf, bucket)
    options: dict[str, Any] = {}
    _refuse(settings)
    _add_endpoint(settings, options)
    _add_credentials(settings, options)
    _add_encryption(settings, options)
    settings.copy("path.style.access", "path_style", options, SWITCH.read)
    settings.copy("multipart.size", "part_size_bytes", options, _size)
    settings.copy("connection.maximum", "max_connections", options, _connections)
    settings.copy("attempts.maximum", "max_attempts", options, lambda text: _number(text) + 1)
    settings.copy("connection.timeout", "read_timeout_s", options, _seconds)
    settings.copy("connection.establish.timeout", "connect_timeout_s", options, _seconds)
    arguments: dict[str, Any] = {}
    settings.copy("acl.default", "ACL", arguments, _ACLS.__getitem__)
    settings.copy("create.storage.class", "StorageClass", arguments, _storage_class)
    settings.copy("requester.pays.enabled", "RequestPayer", arguments, _payer)
    put_arguments = {name: value for name, value in arguments.items() if value is not None}
    return {**options, "put_arguments": put_arguments} if put_arguments else options


class _Settings:
    """The settings, by the part of their names after `fs.s3a.`."""

    def __init__(self, conf: Mapping[str, str], bucket: str | None) -> None:
        self._found: dict[str, tuple[str, str]] = {}
        prefixes = [_S3A] if bucket is None else [_S3A, f"{_S3A}bucket.{bucket}."]
        for prefix in prefixes:
            for outer in ("", _SPARK):
                for name, value in conf.items():
                    if name.startswith(outer + prefix):
                        self._found[name.removeprefix(outer + prefix)] = (name, value.strip())

        for name in (_SPARK + "hadoop." + _CREDENTIAL_FILES, "hadoop." + _CREDENTIAL_FILES):
            if conf.get(name, "").strip():
                self._found[_CREDENTIAL_FILES] = (name, conf[name].strip())

    def get(self, name: str) -> str:
        """The value; empty if it is not set."""
        return self._found.get(name, ("", ""))[1]

    def full_name(self, name: str) -> str:
        return self._found.get(name, (_S3A + name, ""))[0]

    def copy(
        self, name: str, option: str, options: dict[str, Any], read: Callable[[str], Any]
    ) -> None:
        """Parse a value that is set into an option.

        Raises:
            Invalid: it cannot be parsed; names the setting.
        """
        text = self.get(name)
        if not text:
            return
        try:
            options[option] = read(text)
        except (KeyError, ValueError):
            raise Invalid(
                f"setting {self.full_name(name)} cannot be read", found=repr(text)
            ) from None


def _refuse(settings: _Settings) -> None:
    """Refuse settings that cannot be ignored: they change identity, route or encryption."""
    for name, fix in _REFUSED.items():
        if settings.get(name):
            raise _not_supported(settings, name, fix)
    fips: dict[str, bool] = {}
    settings.copy("endpoint.fips", "fips", fips, SWITCH.read)
    if fips.get("fips"):
        fix = f"Name the endpoint itself by {_S3A}endpoint"
        raise _not_supported(settings, "endpoint.fips", fix)


def _not_supported(settings: _Settings, name: str, fix: str) -> Invalid:
    return Invalid(
        f"setting {settings.full_name(name)} asks for something that is not supported",
        expected="no value",
        fix=fix,
    )


def _add_endpoint(settings: _Settings, options: dict[str, Any]) -> None:
    settings.copy("endpoint.region", "region", options, str)
    endpoint = settings.get("endpoint")
    settings.copy("connection.ssl.enabled", "ssl", options, SWITCH.read)
    host = endpoint.partition("://")[2] or endpoint
    aws = _AWS_HOST.fullmatch(host.rstrip("/"))
    if aws is not None:
        options.setdefault("region", aws["region"])
    if host.rstrip("/") == "s3.amazonaws.com":
        endpoint = ""  # AWS's oldest endpoint stands for all regions, as no endpoint does
    if endpoint:
        options["endpoint"] = endpoint
    if "://" in endpoint or not endpoint:
        is_encrypted = options.pop("ssl", True)
        if not endpoint and not is_encrypted:
            raise Invalid(
                f"setting {settings.full_name('connection.ssl.enabled')} is off for AWS",
                expected=f"{_S3A}endpoint to be set: only another store may be without encryption",
            )


def _add_credentials(settings: _Settings, options: dict[str, Any]) -> None:
    key, secret = settings.get("access.key"), settings.get("secret.key")
    token = settings.get("session.token")
    if bool(key) != bool(secret):
        missing = "secret.key" if key else "access.key"
        raise Invalid(f"setting {_S3A}{missing} is missing", expected="both keys, or neither")
    keys = {"key": key, "secret": secret} if key else {}
    with_token = {**keys, "session_token": token} if key and token else {}
    chosen = settings.get("aws.credentials.provider")
    classes = [name for name in re.split(r"[,\s]+", chosen) if name]
    asked = [_provider(settings, name) for name in classes] or [_TEMPORARY, _SIMPLE, "chain"]
    _refuse_other_credentials(settings, asked, is_chosen=bool(classes))
    others = [name for name in asked if name not in (_TEMPORARY, _SIMPLE, _ANONYMOUS)]
    if with_token and _TEMPORARY in asked:
        options.update(with_token)
    elif keys and _SIMPLE in asked:
        options.update(keys)
    elif not classes:
        return
    elif others:
        options["provider"] = ",".join(dict.fromkeys(others))
    elif _ANONYMOUS in asked:
        options["anon"] = True
    else:
        raise Invalid(
            f"setting {settings.full_name('aws.credentials.provider')} asks for keys not set",
            expected=f"{_S3A}access.key and {_S3A}secret.key, and session.token if it is Temporary",
            found=chosen,
        )


def _refuse_other_credentials(
    settings: _Settings, asked: Sequence[str], *, is_chosen: bool
) -> None:
    """Refuse Hadoop files that may hold other keys, and roles to assume, where they count."""
    if settings.get(_CREDENTIAL_FILES) and {_TEMPORARY, _SIMPLE} & {*asked}:
        fix = (
            f"Name the provider of credentials by {_S3A}aws.credentials.provider, such as an "
            "instance; or make the storage in code, with load_storage and a profile"
        )
        raise _not_supported(settings, _CREDENTIAL_FILES, fix)
    if settings.get("assumed.role.arn") and not is_chosen:
        raise _not_supported(
            settings,
            "assumed.role.arn",
            "Make the storage in code, with load_storage and a profile that has role_arn",
        )


def _provider(settings: _Settings, class_name: str) -> str:
    provider = _PROVIDERS.get(class_name.rpartition(".")[2])
    if provider is None:
        raise Invalid(
            f"setting {settings.full_name('aws.credentials.provider')} names an unknown class",
            expected=f"some of {', '.join(sorted(_PROVIDERS))}",
            found=class_name,
            fix="Give the storage its credentials by options, a profile, or the environment",
        )
    return provider


def _add_encryption(settings: _Settings, options: dict[str, Any]) -> None:
    for algorithm, key in (
        ("server-side-encryption-algorithm", "server-side-encryption.key"),
        ("encryption.algorithm", "encryption.key"),
    ):
        name = settings.get(algorithm)
        if not name:
            continue
        if name not in _ENCRYPTIONS:
            raise Invalid(
                f"setting {settings.full_name(algorithm)} asks for something that is not supported",
                expected=f"one of {', '.join(_ENCRYPTIONS)}",
                found=name,
            )
        options["server_side_encryption"] = _ENCRYPTIONS[name]
        if _ENCRYPTIONS[name] != "AES256":
            settings.copy(key, "kms_key_id", options, str)


def _number(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def _connections(text: str) -> int:
    return max(1, min(_number(text), 1000))


def _size(text: str) -> int:
    """As near to it as parts can be: Hadoop's may be larger, since it keeps them on disks."""
    size: int = SIZE.read(text)
    return max(SMALLEST_PART_BYTES, min(size, LARGEST_PART_BYTES))


def _seconds(text: str) -> float:
    seconds: float = SECONDS.read(text)
    if not seconds:
        raise ValueError(text)  # to Hadoop none is for ever, but here each request must end
    return seconds


def _storage_class(text: str) -> str:
    if text.upper() not in _STORAGE_CLASSES:
        raise ValueError(text)
    return text.upper()


def _payer(text: str) -> str | None:
    return "requester" if SWITCH.read(text) else None
