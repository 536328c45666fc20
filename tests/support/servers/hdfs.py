"""A real HDFS for tests: a NameNode and a DataNode, on loopback."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from support.servers import hadoop
from support.servers.guarded import Guarded, Program
from support.servers.ports import LOOPBACK, Ports

_READY_S = 90
_STATE = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
_REPORTED = "Successfully sent block report"


class HdfsServer:
    """One NameNode and one DataNode, with their data in a folder that goes with them.

    `start` begins what does not run, on the same ports and data; `kill` is SIGKILL. `settings` is a
    folder as HADOOP_CONF_DIR names it. It trusts the user name that a client gives.
    """

    def __init__(self, *, permissions: bool = False, config: Mapping[str, str] | None = None):
        """`config`: of hdfs-site, over what is set here."""
        self._permissions = permissions
        self._config = dict(config or {})
        self._guarded: Guarded | None = None
        self._name_node: Program | None = None
        self._data_node: Program | None = None
        self._is_kept_safe = False

    @property
    def port(self) -> int:
        """Of the NameNode, for clients."""
        self._begin()
        return self._ports["name"]

    @property
    def data_port(self) -> int:
        """Of the DataNode, for the data of clients."""
        self._begin()
        return self._ports["data"]

    @property
    def settings(self) -> Path:
        """The folder with core-site.xml and hdfs-site.xml."""
        return self._begin().folder / "conf"

    def url(self, path: str = "") -> str:
        """Of a place in it."""
        return f"hdfs://{LOOPBACK}:{self.port}/{path}"

    @property
    def programs(self) -> list[Program]:
        """What it consists of, once started."""
        return [each for each in (self._name_node, self._data_node) if each]

    @property
    def is_running(self) -> bool:
        """Whether both do."""
        return [each.is_running for each in self.programs] == [True, True]

    def start(self) -> Self:
        """Have both run, out of safe mode, and return when files can be written.

        Raises:
            ServerFailed: it does not start.
        """
        self._launch_name_node()
        self._launch_data_node()
        if self._is_kept_safe:
            self.set_safe_mode(on=False)
        self.start_data_node()
        return self

    def start_name_node(self) -> None:
        """Have it run, and answer. Without a DataNode it may stay in safe mode."""
        program = self._launch_name_node()
        program.await_that("answer", lambda: bool(self.state()), within_s=_READY_S)

    def start_data_node(self) -> None:
        """Have it run, and the NameNode count on it."""
        program = self._launch_data_node()
        program.await_that("place for files", self._is_writable, within_s=_READY_S)

    def kill(self) -> None:
        """End both at once, by SIGKILL."""
        self.kill_name_node()
        self.kill_data_node()

    def kill_name_node(self) -> None:
        if self._name_node is not None:
            self._name_node.kill()
            self._is_kept_safe = False

    def kill_data_node(self) -> None:
        if self._data_node is not None:
            self._data_node.kill()

    def stop(self) -> None:
        """End it for good, data and all."""
        if self._guarded is not None:
            self._guarded.close()
            self._held.close()
        self._guarded = self._name_node = self._data_node = None

    def set_safe_mode(self, *, on: bool) -> None:
        """Have the NameNode refuse every change, or take changes again."""
        self.admin("-safemode", "enter" if on else "leave")
        self._is_kept_safe = on

    def admin(self, *arguments: str) -> str:
        """Run `hdfs dfsadmin`; what it printed."""
        return self._tool(hadoop.DFS_ADMIN, *arguments)

    def shell(self, *arguments: str) -> str:
        """Run `hdfs dfs` as the superuser; returns what it printed."""
        return self._tool(hadoop.SHELL, *arguments)

    def state(self) -> dict[str, Any]:
        """What the NameNode says of itself; nothing if it does not answer."""
        page = f"http://{LOOPBACK}:{self._ports['web']}{_STATE}"
        try:
            with urllib.request.urlopen(page, timeout=2) as answer:
                beans = json.load(answer)["beans"]
        except (OSError, ValueError):
            return {}
        return dict(beans[0]) if beans else {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch_name_node(self) -> Program:
        guarded = self._begin()
        if self._name_node is None:
            guarded.run("format", self._command(hadoop.NAME_NODE, "-format", "-nonInteractive"))
        if self._name_node is None or not self._name_node.is_running:
            self._name_node = guarded.start("name-node", self._command(hadoop.NAME_NODE))
        return self._name_node

    def _launch_data_node(self) -> Program:
        guarded = self._begin()
        if self._data_node is None or not self._data_node.is_running:
            self._data_node = guarded.start("data-node", self._command(hadoop.DATA_NODE))
        return self._data_node

    def _is_writable(self) -> bool:
        """Whether the NameNode takes changes, and knows the blocks of the DataNode that runs."""
        assert self._data_node is not None
        state = self.state()
        return (
            state.get("FSState") == "Operational"
            and state["NumLiveDataNodes"] == 1
            and state["CapacityTotal"] > 0
            and state["NumStaleStorages"] == 0
            and _REPORTED in self._data_node.log()
        )

    def _tool(self, main_class: str, *arguments: str) -> str:
        return self._begin().run("tool", self._command(main_class, *arguments))

    def _command(self, main_class: str, *arguments: str) -> list[str]:
        return hadoop.java_command(self.settings, main_class, *arguments)

    def _begin(self) -> Guarded:
        """Take the ports and write the settings, once."""
        if self._guarded is None:
            self._held = Ports()
            names = ("name", "web", "data", "data-web", "data-ipc")
            self._ports = {name: self._held.take() for name in names}
            self._guarded = Guarded("hdfs")
            core = {
                "fs.defaultFS": f"hdfs://{LOOPBACK}:{self._ports['name']}",
                "ipc.client.connect.retry.interval": "200",  # of a DataNode that is there first
                "ipc.client.connect.max.retries": "100",
            }
            hadoop.write_settings(self._guarded.folder / "conf", core, self._hdfs_site())
        return self._guarded

    def _hdfs_site(self) -> dict[str, str]:
        assert self._guarded is not None
        at = {name: f"{LOOPBACK}:{port}" for name, port in self._ports.items()}
        return {
            "dfs.replication": "1",
            "dfs.permissions.enabled": str(self._permissions).lower(),
            "dfs.namenode.name.dir": f"file://{self._guarded.folder}/name",
            "dfs.namenode.http-address": at["web"],
            "dfs.namenode.safemode.extension": "0",
            "dfs.namenode.heartbeat.recheck-interval": "1000",
            "dfs.namenode.fs-limits.min-block-size": "1024",
            "dfs.heartbeat.interval": "1",
            "dfs.datanode.data.dir": f"file://{self._guarded.folder}/data",
            "dfs.datanode.address": at["data"],
            "dfs.datanode.http.address": at["data-web"],
            "dfs.datanode.ipc.address": at["data-ipc"],
            **self._config,
        }
