"""A real HDFS of two NameNodes, of which one is active, and a DataNode that knows both."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Self

from support.servers import hadoop
from support.servers.guarded import Guarded
from support.servers.ports import LOOPBACK, Ports, is_answering

_READY_S = 90
_SERVICE = "testservice"
_NODES = ("first", "second")


class HdfsPair:
    """Two NameNodes with one log of edits in a folder; only the test makes one active."""

    def __enter__(self) -> Self:
        self._held = Ports()
        self._guarded = Guarded("hdfs-pair")
        self.settings = self._guarded.folder / "conf"
        hadoop.write_settings(
            self.settings, {"fs.defaultFS": f"hdfs://{_SERVICE}"}, self._hdfs_site()
        )
        self._guarded.run("format", self._node_command("first", "-format", "-nonInteractive"))
        folder = self._guarded.folder
        shutil.copytree(folder / "name-first", folder / "name-second")
        self._nodes = {
            node: self._guarded.start(f"name-node-{node}", self._node_command(node))
            for node in _NODES
        }
        self._guarded.start("data-node", hadoop.java_command(self.settings, hadoop.DATA_NODE))
        for node, program in self._nodes.items():
            is_there = partial(is_answering, self._ports[node])
            program.await_that("answer", is_there, within_s=_READY_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._guarded.close()
        self._held.close()

    def url(self, path: str) -> str:
        """Of a place in it, by the name service."""
        return f"hdfs://{_SERVICE}/{path}"

    def kill(self, node: str) -> None:
        """By SIGKILL."""
        self._nodes[node].kill()

    def make_active(self, node: str, *, alone: bool = False) -> None:
        """Have a NameNode take changes; `alone`: the other one is dead."""
        force = ("-forceactive",) if alone else ()
        self._admin("-transitionToActive", *force, node)

    def _admin(self, *arguments: str) -> None:
        self._guarded.run("admin", hadoop.java_command(self.settings, hadoop.HA_ADMIN, *arguments))

    def _node_command(self, node: str, *arguments: str) -> list[str]:
        identity = f"-Ddfs.ha.namenode.id={node}"  # both are on this machine
        return hadoop.java_command(self.settings, hadoop.NAME_NODE, identity, *arguments)

    def _hdfs_site(self) -> dict[str, str]:
        folder: Path = self._guarded.folder
        names = ("first", "second", "web-first", "web-second", "data", "data-web", "data-ipc")
        self._ports = {name: self._held.take() for name in names}
        at = {name: f"{LOOPBACK}:{port}" for name, port in self._ports.items()}
        site = {
            "dfs.nameservices": _SERVICE,
            f"dfs.ha.namenodes.{_SERVICE}": ",".join(_NODES),
            f"dfs.client.failover.proxy.provider.{_SERVICE}": (
                "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
            ),
            "dfs.namenode.shared.edits.dir": f"file://{folder}/edits",
            "dfs.ha.fencing.methods": "shell(/bin/true)",
            "dfs.ha.tail-edits.period": "1s",
            "dfs.replication": "1",
            "dfs.permissions.enabled": "false",
            "dfs.namenode.safemode.extension": "0",
            "dfs.heartbeat.interval": "1",
            "dfs.datanode.data.dir": f"file://{folder}/data",
            "dfs.datanode.address": at["data"],
            "dfs.datanode.http.address": at["data-web"],
            "dfs.datanode.ipc.address": at["data-ipc"],
        }
        for node in _NODES:
            site[f"dfs.namenode.rpc-address.{_SERVICE}.{node}"] = at[node]
            site[f"dfs.namenode.http-address.{_SERVICE}.{node}"] = at[f"web-{node}"]
            site[f"dfs.namenode.name.dir.{_SERVICE}.{node}"] = f"file://{folder}/name-{node}"
        return site
