"""Options of an HDFS storage: checked when they are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from holdfast.storage.errors import Invalid
from holdfast.storage.options.sizes import size_bytes
from holdfast.storage.places.hdfs.hadoop_config import check_config, read_hadoop_config
from holdfast.storage.retries import RetryPolicy

__all__ = ["HdfsKeywords", "HdfsOptions", "hdfs_options"]


class HdfsKeywords(TypedDict, total=False):
    """The options that only `HdfsCheckpointStorage` has, which says what they mean."""

    config_dir: str | None
    config: Mapping[str, str] | None
    kerberos_principal: str | None
    kerberos_keytab: str | None
    kerberos_cache: str | None
    replication: int | None
    block_size_bytes: int | None
    call_timeout_s: float
    max_attempts: int
    retry_timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsOptions:
    """The same options with their defaults."""

    config_dir: str | None = None
    config: Mapping[str, str] | None = None
    kerberos_principal: str | None = None
    kerberos_keytab: str | None = None
    kerberos_cache: str | None = None
    replication: int | None = None
    block_size_bytes: int | None = None
    call_timeout_s: float = 20.0
    max_attempts: int = 8
    retry_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        for option in ("config_dir", "kerberos_principal", "kerberos_keytab", "kerberos_cache"):
            _check_text(option, getattr(self, option))
        for option in ("kerberos_keytab", "kerberos_cache"):
            if getattr(self, option) is not None and self.kerberos_principal is None:
                raise Invalid(
                    f"option {option} has no effect without a principal",
                    found=repr(getattr(self, option)),
                    fix="Pass kerberos_principal too",
                )
        for option in ("replication", "block_size_bytes"):
            _check_number(option, getattr(self, option))
        if type(self.call_timeout_s) not in (int, float) or not 0 < self.call_timeout_s < 1e9:
            raise Invalid(
                "option call_timeout_s is out of range",
                expected="seconds, more than 0",
                found=repr(self.call_timeout_s),
            )
        _ = self.policy

    @property
    def policy(self) -> RetryPolicy:
        """When calls are repeated."""
        return RetryPolicy(self.max_attempts, self.retry_timeout_s)

    def hadoop_config(self) -> dict[str, str]:
        """Hadoop's settings: those of files, overridden by those given in code."""
        return read_hadoop_config(self.config_dir) | check_config(self.config or {})

    def replicas(self, config: Mapping[str, str]) -> int | None:
        """Copies of each block; None for as many as the servers make."""
        return self.replication or _setting("dfs.replication", config)

    def block_size(self, config: Mapping[str, str]) -> int | None:
        """Bytes of each block; None for as many as the servers say."""
        return self.block_size_bytes or _setting("dfs.blocksize", config)


def hdfs_options(options: Mapping[str, Any]) -> HdfsOptions:
    """The options by name.

    Raises:
        Invalid: an option is not known, or out of range.
    """
    known = [field.name for field in fields(HdfsOptions)]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise Invalid(
            f"checkpoint storage option {unknown[0]!r} is not known",
            where="HdfsCheckpointStorage",
            expected="one of " + ", ".join(sorted([*known, "inline_limit_bytes"])),
        )
    return HdfsOptions(**options)


def _check_text(option: str, value: object) -> None:
    if value is not None and (not isinstance(value, str) or not value or "\0" in value):
        raise Invalid(f"option {option} is not usable", expected="text", found=repr(value))


def _check_number(option: str, value: object) -> None:
    if value is not None and (type(value) is not int or not 1 <= value < 1 << 62):
        raise Invalid(
            f"option {option} is out of range",
            expected="a whole number, 1 or more",
            found=repr(value),
        )


def _setting(key: str, config: Mapping[str, str]) -> int | None:
    """A number in a Hadoop setting, which may end with a unit."""
    value = config.get(key)
    if value is None:
        return None
    size = size_bytes(value)
    if not size:
        raise Invalid(
            f"Hadoop setting {key} is out of range",
            expected="a whole number, 1 or more",
            found=repr(value),
        )
    return size
