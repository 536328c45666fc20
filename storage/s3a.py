"""Options of an S3 storage from Hadoop's `fs.s3a.*`, as Spark users have set them already."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.storage.errors import Invalid

__all__ = ["s3a_options"]

_SPARK = "spark.hadoop."
_S3A = "fs.s3a."
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}
_SIZE = re.compile(r"(\d+)\s*([KMGTPE]?)(?:I?B)?", re.IGNORECASE)
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


def s3a_options(conf: Mapping[str, str], bucket: str | None = None) -> dict[str, Any]:
    """The options of `S3CheckpointStorage` that this configuration sets, and no others.

    `conf` has Hadoop's `fs.s3a.*`, each with or without Spark's `spark.hadoop.` before it; what is
    set for the bucket (`fs.s3a.bucket.BUCKET.*`) counts before what is set for all. What does not
    matter to checkpoints is left alone: docs/storages.md lists what counts.

    Raises:
        Invalid: a value cannot be read, or asks for what is not supported; names the setting.
    """
    settings = _Settings(conf, bucket)
    options: dict[str, Any] = {}
    _add_endpoint(settings, options)
    _add_credentials(settings, options)
    _add_encryption(settings, options)
    settings.copy("path.style.access", "path_style", options, _flag)
    settings.copy("multipart.size", "part_size_bytes", options, _size)
    settings.copy("connection.maximum", "max_connections", options, _connections)
    settings.copy("attempts.maximum", "max_attempts", options, lambda text: _number(text) + 1)
    settings.copy("acl.default", "put_arguments", options, lambda name: {"ACL": _ACLS[name]})
    return options


class _Settings:
    """What is set, by the part of its name behind `fs.s3a.`."""

    def __init__(self, conf: Mapping[str, str], bucket: str | None) -> None:
        self._found: dict[str, tuple[str, str]] = {}
        prefixes = [_S3A] if bucket is None else [_S3A, f"{_S3A}bucket.{bucket}."]
        for prefix in prefixes:
            for outer in ("", _SPARK):
                for name, value in conf.items():
                    if name.startswith(outer + prefix):
                        self._found[name.removeprefix(outer + prefix)] = (name, value.strip())

    def get(self, name: str) -> str:
        """The value; nothing where it is not set."""
        return self._found.get(name, ("", ""))[1]

    def full_name(self, name: str) -> str:
        """The setting's name as it was written."""
        return self._found.get(name, (_S3A + name, ""))[0]

    def copy(
        self, name: str, option: str, options: dict[str, Any], read: Callable[[str], Any]
    ) -> None:
        """Read a value that is set into an option.

        Raises:
            Invalid: it cannot be read; names the setting.
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


def _add_endpoint(settings: _Settings, options: dict[str, Any]) -> None:
    settings.copy("endpoint.region", "region", options, str)
    endpoint = settings.get("endpoint")
    settings.copy("connection.ssl.enabled", "ssl", options, _flag)
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


def _provider(settings: _Settings, class_name: str) -> str:
    provider = _PROVIDERS.get(class_name.rpartition(".")[2])
    if provider is None:
        raise Invalid(
            f"setting {settings.full_name('aws.credentials.provider')} names what is not known",
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
                f"setting {settings.full_name(algorithm)} asks for what is not supported",
                expected=f"one of {', '.join(_ENCRYPTIONS)}",
                found=name,
            )
        options["server_side_encryption"] = _ENCRYPTIONS[name]
        if _ENCRYPTIONS[name] != "AES256":
            settings.copy(key, "kms_key_id", options, str)


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _number(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def _connections(text: str) -> int:
    return max(1, min(_number(text), 1000))


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(match[1]) << _UNITS[match[2].upper()]
