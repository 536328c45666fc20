"""Checkpoints in an HDFS, without a JVM."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from typing import Unpack

from holdfast.storage.clock import Clock
from holdfast.storage.distribution import install_line
from holdfast.storage.entropy import Entropy
from holdfast.storage.errors import Invalid
from holdfast.storage.interface import Capabilities
from holdfast.storage.places.delegating import DelegatingStorage, Verbs
from holdfast.storage.places.hdfs.hadoop_config import HdfsPlace, HdfsSettings, place_of, service_of
from holdfast.storage.places.hdfs.objects import HdfsObjects
from holdfast.storage.places.hdfs.options import HdfsKeywords, hdfs_options
from holdfast.storage.retries import Retries

__all__ = ["HdfsCheckpointStorage"]


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
        given = hdfs_options(options)
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
