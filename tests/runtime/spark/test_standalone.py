"""Jobs on a real cluster of two workers, where everything is killed: output exactly once."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.jobs.spark_jobs import (
    Order,
    await_that,
    check_complete,
    check_sound,
    expected,
    make_orders,
    seen,
    write_orders,
)
from support.jobs.spark_sessions import prepare_environment
from support.kills import standalone_driver
from support.machines.wire_tap import WireTap
from support.servers.guarded import Program
from support.servers.spark_standalone import (
    WORKER_HOSTS,
    StandaloneCluster,
    executor_of,
    host_of,
)

USER = "legible"
"""What every row has in it."""
FILES = 2
ORDERS = 40
"""In each part of the input; a file is a batch."""
SECRET = "test-of-holdfast"
AUTHENTICATED = {"spark.authenticate": "true", "spark.authenticate.secret": SECRET}
ENCRYPTIONS = {
    "none": {},
    "authenticate": AUTHENTICATED,
    "network": {**AUTHENTICATED, "spark.network.crypto.enabled": "true"},
    "sasl": {**AUTHENTICATED, "spark.authenticate.enableSaslEncryption": "true"},
    "network and disks": {
        **AUTHENTICATED,
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
    },
}


def orders_of_all(parts: int) -> list[Order]:
    orders = make_orders(11, ORDERS * parts)
    return [order._replace(user=f"{USER}-{order.user}") for order in orders]


class Trial:
    """A cluster, a job on it whose driver is a child, and its input, which comes part by part."""

    def __init__(self, root: Path, cluster: StandaloneCluster, conf: dict[str, str], parts: int):
        self.root, self.cluster = root, cluster
        self.orders = orders_of_all(parts)
        write_orders(root / "all", self.orders, FILES * parts)
        (root / "in").mkdir()
        ports = [cluster.ports.take() for _ in range(14)]
        self.ports = {*ports}
        settings = {
            "master": cluster.master_url,
            "session": {
                "spark_executor_memory": "512m",
                "spark_executorEnv_PYTHONPATH": os.environ["PYTHONPATH"],
                **conf,
            },
            "network": {
                "driver_port": f"{ports[0]}-{ports[3]}",
                "slot_port": f"{ports[4]}-{ports[13]}",
                # On a cluster it is encrypted whatever Spark does, unless that is switched off.
                "ssl": "auto" if conf else False,
            },
        }
        (root / "settings").write_text(json.dumps(settings))
        self._shown = 0
        self._numbers = itertools.count(1)
        self.driver = self.start_driver()

    def start_driver(self) -> Program:
        (self.root / "told").unlink(missing_ok=True)
        command = [sys.executable, standalone_driver.__file__, str(self.root)]
        return self.cluster.run(f"driver-{next(self._numbers)}", command)

    def told(self) -> dict[str, Any]:
        assert self.driver.is_running, self.driver.log()[-8000:]
        path = self.root / "told"
        told: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return told

    def await_told(self, what: str, is_so: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        def is_there() -> bool:
            told = self.told()
            return bool(told) and bool(is_so(told))

        try:
            await_that(is_there, what, timeout_s=120)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.told()}; {self.driver.log()[-6000:]}") from None
        return self.told()

    def await_running(self, attempt: int = 1) -> dict[str, Any]:
        return self.await_told(
            f"attempt {attempt} runs",
            lambda told: told["status"] == "running" and told["attempts"] >= attempt,
        )

    def show(self) -> None:
        """Let the next part of the input come."""
        for number in range(self._shown, self._shown + FILES):
            path = self.root / "all" / f"{number:04}.json"
            path.rename(self.root / "in" / path.name)
        self._shown += FILES

    def in_the_middle(self) -> dict[str, Any]:
        """Let the next part come, and return while it is read."""
        running = self.await_running()
        self.show()
        return self.await_told(
            "a batch of the next part",
            lambda told: (
                told["batches"] > running["batches"] or told["attempts"] > running["attempts"]
            ),
        )

    def await_all_shown(self) -> None:
        """Return when readers see the results of all that has come."""
        count = self._shown * ORDERS // FILES

        def is_there() -> bool:
            self.told()
            orders = {n for kind, _, n, _ in seen(self.root)["out"] if kind == "order"}
            return len(orders) == count

        await_that(is_there, f"{count} orders are seen", timeout_s=120)

    def kill_slot(self) -> None:
        told = self.in_the_middle()
        victim = told["slots"]["1"]
        os.kill(victim, signal.SIGKILL)
        after = self.await_running(told["attempts"] + 1)
        (failure,) = after["failures"][-1:]
        assert failure.startswith(f"slot 1 (process {victim} on ")
        assert ") was killed, or has died" in failure
        assert "slot 0" not in failure, "that one was ended by Spark"

    def kill_executor(self) -> str:
        told = self.in_the_middle()
        executor = executor_of(told["slots"]["0"])
        host = host_of(executor)
        os.kill(executor, signal.SIGKILL)
        after = self.await_running(told["attempts"] + 1)
        (failure,) = after["failures"][-1:]
        assert failure.startswith("executor ")
        # Behind it may stand how often slots were killed at this position.
        assert "Command exited with code 137 (SIGKILL)" in failure
        return host

    def kill_worker(self) -> None:
        """As if its machine had died: what ran there goes with it."""
        told = self.in_the_middle()
        host = host_of(executor_of(told["slots"]["0"]))
        self.cluster.workers.pop(host).kill()
        self.await_running(told["attempts"] + 1)

    def lose_all_workers(self) -> None:
        """The job says what it waits for, and goes on when there is a worker again."""
        told = self.in_the_middle()
        for host in list(self.cluster.workers):
            self.cluster.workers.pop(host).kill()
        self.await_told(
            "it says that there is no room",
            lambda told: told["trouble"] == "too few task slots for the job: needs 3, has 0",
        )
        self.cluster.workers[WORKER_HOSTS[0]] = self.cluster.start_worker(WORKER_HOSTS[0])
        after = self.await_running(told["attempts"] + 1)
        assert after["trouble"] == ""

    def kill_driver(self) -> None:
        self.in_the_middle()
        self.driver.kill()
        self.driver = self.start_driver()
        self.await_running()

    def finish(self) -> None:
        while any((self.root / "all").iterdir()):
            self.show()
        self.await_all_shown()
        (self.root / "stop").touch()
        code = self.driver.wait(120)
        assert code == 0, self.driver.log()[-6000:]
        check_complete(self.root, expected(self.orders))


def tried(root: Path, encryption: str, *steps: Callable[[Trial], object]) -> str:
    """Run a job that all of this happens to; what its last driver has printed."""
    prepare_environment()
    conf = ENCRYPTIONS[encryption]
    with StandaloneCluster(settings=conf) as cluster:
        trial = Trial(root, cluster, conf, parts=len(steps) + 1)
        for step in steps:
            step(trial)
            check_sound(root, expected(trial.orders))
        trial.finish()
        return trial.driver.log()


def is_read_off_the_wire(trial: Trial) -> bool:
    """Whether rows can be read between tasks, slots and driver, while the next part comes."""
    with WireTap(trial.ports) as tap:
        trial.in_the_middle()
        trial.await_all_shown()
        return tap.has_seen(USER.encode())


def nothing_is_read(trial: Trial) -> None:
    assert not is_read_off_the_wire(trial)


def all_is_read(trial: Trial) -> None:
    """So the tap would see what there is."""
    assert is_read_off_the_wire(trial)


@pytest.mark.slow
def test_executors_and_workers_are_killed_on_an_encrypted_cluster(tmp_path: Path) -> None:
    """Slots and drivers are killed by `test_campaign.py`; here by `make soak`."""
    tried(tmp_path, "network", nothing_is_read, Trial.kill_executor, Trial.kill_worker)


@pytest.mark.soak
@pytest.mark.parametrize("encryption", ENCRYPTIONS)
def test_everything_is_killed_in_any_order(tmp_path: Path, encryption: str) -> None:
    kills = [Trial.kill_slot, Trial.kill_driver, Trial.kill_executor, Trial.kill_slot]
    look = all_is_read if encryption == "none" else nothing_is_read
    last = (Trial.kill_worker, Trial.lose_all_workers)
    tried(tmp_path, encryption, look, *kills, *reversed(kills), *last)
