"""A real Spark Standalone cluster for tests, out of the jars that PySpark has.

Its master and workers are at loopback addresses of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from support.servers.guarded import Guarded, Program
from support.servers.java_archive import quick_java
from support.servers.ports import LOOPBACK, Ports

WORKER_HOSTS = ("127.0.0.2", "127.0.0.3")
"""Hosts that differ, without a network: to Linux all of 127.0.0.0/8 is this machine."""
_READY_S = 120
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


class StandaloneCluster:
    """One master and workers, each at a host of its own; they die with the test run.

    `settings` are those of Spark for master and workers, such as of authentication.
    """

    def __init__(
        self,
        *,
        hosts: Sequence[str] = WORKER_HOSTS,
        cores: int = 3,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.ports = Ports()
        self._guarded = Guarded("standalone")
        self._cores = cores
        self._settings = settings or {}
        port = self.ports.take()
        self.master_url = f"spark://{LOOPBACK}:{port}"
        words = ["--host", LOOPBACK, "--port", str(port), "--webui-port", "0"]
        master = self._start("master", _MASTER, LOOPBACK, words)
        # They try again until the master is there, and so does it take the time of one.
        self.workers = {host: self.start_worker(host) for host in hosts}
        _await(master, "I have been elected leader")
        for worker in self.workers.values():
            _await(worker, "Successfully registered with master")

    def start_worker(self, host: str) -> Program:
        """Start a worker; it registers a little later."""
        words = ["--host", host, "--cores", str(self._cores), "--memory", "2g"]
        words += ["--webui-port", "0", "--work-dir", str(self._guarded.folder / f"work-{host}")]
        return self._start(f"worker-{host}", _WORKER, host, [*words, self.master_url])

    def run(self, name: str, command: Sequence[str | Path]) -> Program:
        """Start a program that dies with the cluster, such as a driver."""
        return self._guarded.start(name, command)

    def close(self) -> None:
        """End all programs."""
        self._guarded.close()
        self.ports.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, name: str, kind: str, host: str, words: Sequence[str]) -> Program:
        home = _spark_home()
        options = [quick_java(), *(f"-D{name}={value}" for name, value in self._settings.items())]
        env = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join(options),
            "PYSPARK_PYTHON": sys.executable,
        }
        return self._guarded.start(name, [home / "bin" / "spark-class", kind, *words], env)


def executor_of(pid: int) -> int:
    """The executor that a Python worker on this machine belongs to."""
    while _EXECUTOR not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def host_of(executor: int) -> str:
    """The host of an executor's worker."""
    words = Path(f"/proc/{executor}/cmdline").read_bytes().decode().split("\0")
    return words[words.index("--hostname") + 1]


def _await(program: Program, line: str) -> None:
    program.await_that(line, lambda: line in program.log(), within_s=_READY_S)


def _spark_home() -> Path:
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent
