"""A job on two machines, with everything that can be observed: see `test_two_machines.py`.

`python job_on_two.py ROOT`, alone on a machine. Spark's own encryption is on. The first network is
the way to the driver, the second one is that of the executors.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark  # noqa: TID251 - for the place of its programs

from holdfast.runtime import JobStatus, NetworkConfig, StreamEnvironment
from support.jobs.spark_jobs import await_that, build_from_files, make_orders
from support.jobs.spark_sessions import prepare_environment, start_session
from support.machines.joined_machines import Listener, address, second_machine
from support.servers.java_archive import quick_java

CONFIDENTIAL = "confidential-"
ORDERS = [
    order._replace(user=f"{CONFIDENTIAL}{order.user}") for order in make_orders(3, 300, users=40)
]
DRIVER, MASTER_PORT = address(1, 1), 7077
WORKERS = (address(2, 1), address(2, 2))
ENCRYPTED = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "a-secret-of-sparks-own",
    "spark.network.crypto.enabled": "true",
}
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
LOOKED_FOR_CHARACTERS = 12
"""So much of a secret is looked for: no other text has it by chance."""


@contextmanager
def cluster(root: Path) -> Iterator[str]:
    """A master on this machine, and a worker on each; the URL of the master."""
    settings = root / "spark.conf"
    settings.write_text("".join(f"{name} {value}\n" for name, value in ENCRYPTED.items()))
    url = f"spark://{DRIVER}:{MASTER_PORT}"
    common = ["--properties-file", str(settings), "--webui-port", "0"]
    with second_machine() as there:
        master = ["--host", DRIVER, "--port", str(MASTER_PORT), *common]
        begun = [_begin(root, "Master", [], DRIVER, master)]
        try:
            for host, prefix in zip(WORKERS, ([], there), strict=True):
                worker = ["--host", host, "--cores", "2", "--memory", "700m", *common, url]
                begun.append(_begin(root, "Worker", prefix, host, worker))
            yield url
        finally:
            for each in begun:
                each.terminate()
            for each in begun:
                each.wait(30)


def _begin(
    root: Path, kind: str, prefix: list[str], host: str, arguments: list[str]
) -> subprocess.Popen[bytes]:
    of_spark = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
    folder = root / f"{kind}-{host}"
    folder.mkdir()
    if kind == "Worker":
        arguments = ["--work-dir", str(folder), *arguments]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [*prefix, str(SPARK_CLASS), of_spark, *arguments],
            stdout=log,
            stderr=log,
            env=os.environ
            | {
                "SPARK_LOCAL_IP": host,
                "SPARK_NO_DAEMONIZE": "1",
                "SPARK_DAEMON_JAVA_OPTS": quick_java(),
            },
        )


def processes(is_found: Callable[[bytes], bool]) -> list[str]:
    """What of the processes of this machine shows something in its arguments or environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                shown = (path / name).read_bytes()
            except OSError:
                continue
            if is_found(shown):
                found.append(f"{path.name} {name}: {shown[:300]!r}")
    return found


def secrets_of(run: Any) -> list[bytes]:
    """All pieces of what must not be readable."""
    identity = run._parts.protection.identity
    lines = identity.key.splitlines()[1:-1]
    texts = [run._token.encode(), b"".join(lines)]
    raw = base64.b64decode(b"".join(lines))
    size = LOOKED_FOR_CHARACTERS
    pieces = [text[at : at + size] for text in texts for at in range(len(text) - size + 1)]
    # The beginning of a key says only of which kind it is.
    of_kind = b"".join(lines)[:52]
    return [piece for piece in pieces if piece not in of_kind] + [raw[40:56]]


def main(root: Path) -> None:
    prepare_environment()
    listener = Listener()
    events = root / "events"
    events.mkdir()
    with cluster(root) as master:
        os.environ["SPARK_LOCAL_IP"] = DRIVER
        spark = start_session(
            master,
            **ENCRYPTED,
            **{
                "spark.driver.host": DRIVER,
                "spark.driver.bindAddress": DRIVER,
                "spark.executor.memory": "600m",
                "spark.executor.cores": "2",
                "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
                "spark.eventLog.enabled": "true",
                "spark.eventLog.compress": "false",
                "spark.eventLog.dir": events.as_uri(),
                "spark.cores.max": "4",
                "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            },
        )
        spark.sparkContext.setLogLevel("INFO")
        env = StreamEnvironment(
            spark,
            parallelism=2,
            storage=str(root / "checkpoints"),
            checkpointing="1s",
            network=NetworkConfig(driver_port="45000-45009", slot_port="45100-45119"),
        )
        job = build_from_files(env, root).execute_async("on two machines")
        run: Any = job._run
        await_that(lambda: job.checkpoints().counts.completed, "a checkpoint")
        addresses = {*run._attempt._addresses.values()}
        secrets = secrets_of(run)
        shown = processes(lambda text: any(piece in text for piece in secrets))
        assert not shown, shown
        saved = job.trigger_savepoint(str(root / "savepoints"))
        assert job.result(400) is JobStatus.FINISHED
        assert (Path(saved.removeprefix("file://")) / "_metadata").exists()
        spark.stop()
    listener.close()
    check_addresses(addresses)
    check_wire(bytes(listener.heard), secrets)
    check_files(root, secrets)


def check_addresses(addresses: set[str]) -> None:
    """Each slot is found at its executor's host, not at the way from there to the driver."""
    hosts = {each.rpartition(":")[0] for each in addresses}
    assert hosts == {f"grpc+tls://{host}" for host in WORKERS}, addresses
    assert all(45100 <= int(each.rpartition(":")[2]) < 45120 for each in addresses), addresses


def check_wire(heard: bytes, secrets: list[bytes]) -> None:
    """What went between the machines shows neither rows nor secrets."""
    assert b"holdfast.invalid" in heard, "the greeting of TLS can be read, so it was listened to"
    assert CONFIDENTIAL.encode() not in heard
    assert not [piece for piece in secrets if piece in heard]


def check_files(root: Path, secrets: list[bytes]) -> None:
    """Nor does what Spark has logged, here and there, nor what its page shows."""
    logs = [*root.glob("Worker-*/**/std*"), *root.glob("*/log"), *root.glob("events/**/*")]
    written = {path: path.read_bytes() for path in logs if path.is_file()}
    assert any(b"Holdfast: slots of" in text for text in written.values()), [*written]
    for path, text in written.items():
        assert not [piece for piece in secrets if piece in text], path


if __name__ == "__main__":
    main(Path(sys.argv[1]))
