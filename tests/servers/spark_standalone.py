"""A real Spark Standalone cluster for tests, out of the jars that PySpark has.

Its master and workers are at loopback addresses of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from servers.guarded import Guarded, Program
from servers.ports import LOOPBACK, Ports

WORKER_HOSTS = ("127.0.0.2", "127.0.0.3")
"""Hosts that differ, without a network: to Linux all of 127.0.0.0/8 is this machine."""
_READY_S = 60
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


class StandaloneCluster:
    """One master and workers, each at a host of its own; they die with the test run.

    `settings` are for master and workers, such as those of authentication.
    """

    def __init__(
        self, *, hosts: Sequence[str] = WORKER_HOSTS, cores: int = 2, **settings: str
    ) -> None:
        self._ports = Ports()
        self._guarded = Guarded("standalone")
        self._cores = cores
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        port = self._ports.take()
        self.master_url = f"spark://{LOOPBACK}:{port}"
        words = ["--host", LOOPBACK, "--port", str(port), "--webui-port", "0"]
        self._master = self._start("master", _MASTER, LOOPBACK, words)
        self._master.await_that(
            "leadership",
            lambda: "I have been elected leader" in self._master.log(),
            within_s=_READY_S,
        )
        self.workers = {host: self.start_worker(host) for host in hosts}
        for worker in self.workers.values():
            self._await_worker(worker)

    def start_worker(self, host: str, cores: int | None = None) -> Program:
        """Start a worker; it registers a little later."""
        words = ["--host", host, "--cores", str(cores or self._cores), "--memory", "2g"]
        words += ["--webui-port", "0", "--work-dir", str(self.folder / f"work-{host}")]
        return self._start(f"worker-{host}", _WORKER, host, [*words, self.master_url])

    def kill_worker(self, host: str) -> None:
        """As if the machine had died: the executors of a worker go with it."""
        self.workers.pop(host).kill()

    @property
    def folder(self) -> Path:
        """Where the programs work."""
        return self._guarded.folder

    def close(self) -> None:
        """End all programs."""
        self._guarded.close()
        self._ports.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, name: str, kind: str, host: str, words: Sequence[str]) -> Program:
        home = _spark_home()
        options = " ".join(f"-D{name}={value}" for name, value in self._settings.items())
        env = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": options,
            "PYSPARK_PYTHON": sys.executable,
        }
        return self._guarded.start(name, [home / "bin" / "spark-class", kind, *words], env)

    def _await_worker(self, worker: Program) -> None:
        worker.await_that(
            "registration",
            lambda: "Successfully registered with master" in worker.log(),
            within_s=_READY_S,
        )


def _spark_home() -> Path:
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def settings_of(cluster: StandaloneCluster) -> dict[str, Any]:
    """What a session of the cluster needs to be small."""
    return {"master": cluster.master_url, "spark_executor_memory": "512m"}
