"""Where driver and slots listen, and when what they say is encrypted: decided from settings."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from holdfast.backends import StateBackend, load_backend
from holdfast.changelog import ChangelogOptions, ChangelogStateBackend
from holdfast.runtime import NetworkConfig
from holdfast.runtime.api.addresses import Listening, PortRange
from holdfast.runtime.spark.launching.job_network import executor_host, job_network, slot_listening
from holdfast.storage import Invalid

HASHMAP = load_backend("hashmap")
CLUSTER = {"spark.driver.host": "10.0.0.1"}
ENCRYPTED = [
    "spark.authenticate",
    "spark.authenticate.enableSaslEncryption",
    "spark.io.encryption.enabled",
    "spark.network.crypto.enabled",
    "spark.network.sasl.serverAlwaysEncrypt",
    "spark.ssl.enabled",
    "spark.ssl.rpc.enabled",
]


def is_encrypted(master: str, conf: dict[str, str], **config: Any) -> bool:
    network = job_network(NetworkConfig(**config), master, conf, HASHMAP)
    return network.protection.identity is not None


def test_a_job_on_this_machine_needs_no_encryption_but_may_have_it() -> None:
    assert not is_encrypted("local[4]", CLUSTER), "where Spark itself listens does not matter"
    assert is_encrypted("local[4]", {}, ssl=True)
    assert not is_encrypted("local[4]", {}, ssl=False)
    network = job_network(NetworkConfig(), "local[4]", CLUSTER, HASHMAP)
    assert network.driver == Listening("127.0.0.1")
    assert slot_listening(network.slots, "10.0.0.9") == Listening("127.0.0.1")
    assert network.notes == ()


@pytest.mark.parametrize(
    "config",
    [
        {"driver_host": "10.0.0.1"},
        {"driver_bind_address": "0.0.0.0"},
        {"slot_host": "h.example"},
        {"slot_bind_address": "::"},
    ],
)
def test_any_address_beyond_loopback_is_encrypted(config: dict[str, str]) -> None:
    assert is_encrypted("local[4]", {}, **config)
    assert not is_encrypted("local[4]", {}, driver_host="::1", slot_host="127.0.0.5")


@pytest.mark.parametrize("master", ["spark://h:7077", "yarn", "k8s://h", "local-cluster[2,1,512]"])
def test_slots_of_a_cluster_are_encrypted_by_default(master: str) -> None:
    assert is_encrypted(master, CLUSTER)
    assert is_encrypted(master, {"spark.driver.host": "127.0.0.1"}), "executors may be elsewhere"
    network = job_network(NetworkConfig(ssl=False), master, CLUSTER, HASHMAP)
    assert network.protection.identity is None
    assert network.protection.is_clear_allowed
    (note,) = network.notes
    assert "unencrypted" in note


@pytest.mark.parametrize("setting", ENCRYPTED)
@pytest.mark.parametrize("master", ["local[2]", "yarn"])
def test_spark_s_encryption_settings_apply_to_slots_too(setting: str, master: str) -> None:
    assert is_encrypted(master, CLUSTER | {setting: "True"})
    assert is_encrypted("local[2]", {setting: "false"}) is False
    with pytest.raises(Invalid, match=f"since the session has {setting}=true"):
        job_network(NetworkConfig(ssl=False), master, CLUSTER | {setting: "true"}, HASHMAP)


@pytest.mark.parametrize(
    ("backend", "kept"),
    [
        (HASHMAP, ["io.tmp.dirs"]),
        (ChangelogStateBackend(HASHMAP, ChangelogOptions()), ["io.tmp.dirs"]),
        (load_backend("rocksdb"), ["io.tmp.dirs", "live state"]),
        (
            ChangelogStateBackend("rocksdb", ChangelogOptions(local_copies="/d/copies")),
            ["io.tmp.dirs", "live state", "/d/copies"],
        ),
    ],
)
def test_unencrypted_local_files_are_named_where_spark_encrypts_its_own(
    backend: StateBackend, kept: list[str]
) -> None:
    told = job_network(NetworkConfig(), "yarn", {}, backend).notes
    assert told == ()
    told = job_network(
        NetworkConfig(), "yarn", {"spark.io.encryption.enabled": "true"}, backend
    ).notes
    assert len(told) == 1
    assert all(each in told[0] for each in kept)
    assert ("live state" in told[0]) is ("live state" in kept)


def test_the_driver_listens_where_spark_says_unless_it_is_said_otherwise() -> None:
    def driver(conf: dict[str, str], **config: Any) -> Listening:
        return job_network(NetworkConfig(**config), "yarn", conf, HASHMAP).driver

    behind = CLUSTER | {"spark.driver.bindAddress": "192.168.0.7"}
    assert driver(behind) == Listening("10.0.0.1", "192.168.0.7")
    assert driver({"spark.driver.host": "[fd00::1]"}) == Listening("fd00::1")
    assert driver(behind, driver_host="h") == Listening("h"), "of another address, not Spark's"
    whole = driver(behind, driver_host="h", driver_bind_address="0.0.0.0", driver_port="5000-5009")
    assert whole == Listening("h", "0.0.0.0", PortRange(5000, 5009))


def test_a_slot_listens_at_its_executors_own_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the address that the driver sees, which is the way to the driver."""
    monkeypatch.setenv("SPARK_EXECUTOR_POD_IP", "fd00::7")
    assert slot_listening(NetworkConfig(), "10.9.9.9") == Listening("fd00::7")
    monkeypatch.delenv("SPARK_EXECUTOR_POD_IP")
    command = [sys.executable, "-c", _EXECUTOR, "--driver-url", "x", "--hostname", "10.1.1.1"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.strip() == "10.1.1.1"
    assert executor_host(1) is None
    assert slot_listening(NetworkConfig(), "10.9.9.9") == Listening("10.9.9.9")
    said = NetworkConfig(slot_host="h", slot_bind_address="0.0.0.0", slot_port=7)
    assert slot_listening(said, "10.9.9.9") == Listening("h", "0.0.0.0", PortRange(7, 7))


_EXECUTOR = """
import subprocess, sys
worker = '''
from holdfast.runtime.spark.launching.job_network import executor_host
print(executor_host())
'''
forked = f"import os, sys\\nif os.fork(): os.wait()\\nelse: exec({worker!r})"
print(subprocess.run([sys.executable, "-c", forked], capture_output=True, text=True).stdout)
"""
"""As an executor: it begins a daemon, which forks the worker that asks."""


@pytest.mark.parametrize("wrong", ["", "[::1]", "a b", "http://h", "h/x", "u@h", 7])
@pytest.mark.parametrize("name", ["driver_host", "driver_bind_address", "slot_host"])
def test_text_that_is_not_an_address_is_refused(name: str, wrong: object) -> None:
    with pytest.raises(Invalid, match=f"{name} is no address"):
        NetworkConfig(**{name: wrong})  # type: ignore[arg-type]


def test_text_that_is_not_a_switch_or_port_is_refused() -> None:
    with pytest.raises(Invalid, match="ssl is not one of the choices"):
        NetworkConfig(ssl="yes")
    with pytest.raises(Invalid, match="slot_port is no port"):
        NetworkConfig(slot_port="1-70000")


@pytest.mark.parametrize("wrong", ["", "much", "0", 0, -1, 1.5, True, None, 2**60])
def test_a_memory_that_no_slot_can_have_is_refused(wrong: Any) -> None:
    with pytest.raises(Invalid, match="memory is no size that a slot can have"):
        NetworkConfig(memory=wrong)


@pytest.mark.parametrize("wrong", ["/tmp", ("tmp",), (7,), None])
def test_directories_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(Invalid, match="directories are no absolute paths"):
        NetworkConfig(directories=wrong)


def test_a_timeout_has_a_unit_and_may_be_nothing() -> None:
    assert NetworkConfig(buffer_timeout="0 ms").buffer_timeout_s == 0
    assert NetworkConfig(buffer_timeout=timedelta(seconds=1)).buffer_timeout_s == 1
    wrongs: tuple[Any, ...] = ("-1 ms", 5, "soon")
    for wrong in wrongs:
        with pytest.raises(Invalid, match="buffer_timeout is"):
            NetworkConfig(buffer_timeout=wrong)


def test_sizes_are_read_as_text_or_as_numbers() -> None:
    assert NetworkConfig().memory_bytes == NetworkConfig(memory=512 << 20).memory_bytes
