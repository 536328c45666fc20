"""Checkpoints in an HDFS, without a JVM."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TypedDict, Unpack

from holdfast.storage.clock import Clock
from holdfast.storage.distribution import install_line
from holdfast.storage.entropy import Entropy
from holdfast.storage.errors import Invalid
from holdfast.storage.interface import Capabilities
from holdfast.storage.options.checks import check_count, check_known, check_number, check_text
from holdfast.storage.options.sizes import size_bytes
from holdfast.storage.places.delegating import DelegatingStorage, Verbs
from holdfast.storage.places.hdfs.hadoop_config import (
    HdfsPlace,
    HdfsSettings,
    check_config,
    place_of,
    read_hadoop_config,
    service_of,
)
from holdfast.storage.places.hdfs.objects import HdfsObjects
from holdfast.storage.retries import Retries, RetryPolicy

__all__ = ["HdfsCheckpointStorage", "HdfsKeywords"]


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
class _Options:
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
            if getattr(self, option) is not None:
                check_text(getattr(self, option), name=f"option {option}")
        for option in ("kerberos_keytab", "kerberos_cache"):
            if getattr(self, option) is not None and self.kerberos_principal is None:
                raise Invalid(
                    f"option {option} has no effect without a principal",
                    found=repr(getattr(self, option)),
                    fix="Pass kerberos_principal too",
                )
        for option in ("replication", "block_size_bytes"):
            if getattr(self, option) is not None:
                check_count(getattr(self, option), name=f"option {option}", least=1, most=2**62)
        check_number(self.call_timeout_s, name="option call_timeout_s", least=0.001, most=1e9)
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


class HdfsCheckpointStorage(DelegatingStorage):
    """Keeps checkpoints in a directory of an HDFS.

    `url` is `hdfs://host:port/path`, `hdfs://service/path` of a name service with several name
    nodes, or `viewfs://cluster/path`. The Hadoop configuration is read once, where the storage is
    made, and travels with it. The user is `HADOOP_USER_NAME`, or that of the process, or with
    Kerberos the principal.
    """

    def __init__(
        self,
        url: str,
        *,
        inline_limit_bytes: int = 20 * 1024,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **options: Unpack[HdfsKeywords],
    ) -> None:
        """Name a directory; no request is made before it is used.

        Args:
            url: the directory; it is made when it is first written to.
            inline_limit_bytes: see `CheckpointStorage`, as for `clock` and `entropy`.
            clock: times pauses between tries.
            entropy: makes hidden names unique.
            options: one of
                `config_dir`: where `core-site.xml` and `hdfs-site.xml` are, if not in
                `HADOOP_CONF_DIR`. `config`: Hadoop settings by key, stronger than those of files.
                `kerberos_principal`: the user, where `hadoop.security.authentication` is kerberos;
                by default that of the process's credential cache. `kerberos_keytab`: the path of a
                keytab for the principal, on every machine. `kerberos_cache`: the credential cache
                of the principal, on every machine. `replication`: copies of each block; by default
                `dfs.replication`, else the servers'. `block_size_bytes`: of new files; by default
                `dfs.blocksize`, else the servers'. `call_timeout_s`: how long a single call may
                take. A call that moves bytes may take a minute and a half more, and the time for
                them at a quarter of a mebibyte a second. `max_attempts`: how often a call is made
                before it fails. `retry_timeout_s`: how long after its first attempt a call may be
                made again.

        Raises:
            Invalid: the URL, an option or the Hadoop configuration is wrong.
        """
        if find_spec("hdfs_native") is None:
            raise Invalid(
                "a package that HDFS needs is not installed",
                where=url,
                found="no package hdfs_native",
                fix=install_line("hdfs"),
            )
        super().__init__(inline_limit_bytes=inline_limit_bytes, clock=clock, entropy=entropy)
        known = {*HdfsKeywords.__annotations__, "inline_limit_bytes"}
        check_known(options, known, what="checkpoint storage", where="HdfsCheckpointStorage")
        given = _Options(**options)
        config = given.hadoop_config()
        place = place_of(url, config)
        self._settings = HdfsSettings(
            name_node=place.name_node,
            config=tuple(sorted(config.items())),
            kerberos_principal=given.kerberos_principal,
            kerberos_keytab=given.kerberos_keytab,
            kerberos_cache=given.kerberos_cache,
            timeout_s=float(given.call_timeout_s),
            replication=given.replicas(config),
            block_size_bytes=given.block_size(config),
        )
        self._retries = Retries(given.policy, self.clock, self.entropy)
        self._go_to(url, place)

    def _go_to(self, url: str, place: HdfsPlace) -> None:
        self._url, self._place = url, place
        self._objects = HdfsObjects(
            self._settings, place.root, url.rstrip("/"), self._retries, self.clock, self.entropy
        )

    @property
    def url(self) -> str:
        return self._url

    @property
    def identity(self) -> str:
        return f"{self._server_of(self._place)}{self._place.root}"

    def at(self, url: str) -> HdfsCheckpointStorage | None:
        try:
            place = place_of(url, dict(self._settings.config))
        except Invalid:
            return None
        if self._server_of(place) != self._server_of(self._place):
            return None
        other = copy.copy(self)
        other._go_to(url, HdfsPlace(self._place.name_node, place.root))
        return other

    def _server_of(self, place: HdfsPlace) -> str:
        return service_of(place.name_node, dict(self._settings.config))

    @property
    def capabilities(self) -> Capabilities:
        return self._objects.capabilities

    @property
    def _verbs(self) -> Verbs:
        return self._objects


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
