"""Where driver and slots of a job listen, and whether what they say is encrypted.

A session of Spark knows both already: what is not said to Holdfast follows it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.backends import StateBackend
from holdfast.changelog import ChangelogStateBackend
from holdfast.runtime.api.addresses import Listening, bare_host, is_loopback
from holdfast.runtime.api.network_config import NetworkConfig
from holdfast.runtime.network import Protection, make_certificate
from holdfast.storage import Invalid

__all__ = ["JobNetwork", "executor_host", "job_network", "slot_listening"]

_LOOPBACK = "127.0.0.1"
_DISK_ENCRYPTION = "spark.io.encryption.enabled"
_ENCRYPTION = (
    "spark.authenticate",
    "spark.authenticate.enableSaslEncryption",
    _DISK_ENCRYPTION,
    "spark.network.crypto.enabled",
    "spark.network.sasl.serverAlwaysEncrypt",
    "spark.ssl.enabled",
    "spark.ssl.rpc.enabled",
)
"""Settings by which Spark is asked to protect what its processes send and store."""
_IN_THE_CLEAR = (
    "security.ssl.internal.enabled is false: rows travel unencrypted between machines, and who can "
    "change what travels can command the job's slots"
)
_POD_IP = "SPARK_EXECUTOR_POD_IP"
_HOSTNAME = "--hostname"
_MOST_ANCESTORS = 8


@dataclass(frozen=True, slots=True)
class JobNetwork:
    """What is settled for one run of a job."""

    driver: Listening
    slots: NetworkConfig
    protection: Protection
    notes: tuple[str, ...] = ()
    """What people should know of it."""


def job_network(
    config: NetworkConfig, master: str, conf: Mapping[str, str], backend: StateBackend
) -> JobNetwork:
    """What holds for a job of a session with this master and these settings.

    Raises:
        Invalid: encryption is switched off that Spark is told to have.
    """
    is_here = master == "local" or master.startswith("local[")
    slots = config
    if is_here and config.slot_host is None:
        slots = replace(config, slot_host=_LOOPBACK)
    driver = _driver(config, conf, is_here=is_here)
    hosts = {
        driver.host,
        driver.interface,
        slots.slot_host,
        slots.slot_bind_address or slots.slot_host,
    }
    is_open = not all(host is not None and is_loopback(host) for host in hosts)
    asked = [name for name in _ENCRYPTION if _is_on(conf, name)]
    notes = _disk_notes(conf, backend)
    if config.ssl is False:
        if asked:
            raise Invalid(
                "Spark's encryption is on, and that of Holdfast is switched off",
                where="security.ssl.internal.enabled",
                expected=f"auto or true, since the session has {asked[0]}=true",
                found="false",
                fix="Leave it out; rows of the job would travel in the clear",
            )
        protection = Protection(is_clear_allowed=True)
        if is_open:
            notes = (*notes, _IN_THE_CLEAR)
    elif config.ssl is True or is_open or asked:
        protection = Protection(make_certificate())
    else:
        protection = Protection()
    return JobNetwork(driver, slots, protection, notes)


def _is_on(conf: Mapping[str, str], name: str) -> bool:
    return conf.get(name, "").strip().lower() == "true"


def _disk_notes(conf: Mapping[str, str], backend: StateBackend) -> tuple[str, ...]:
    """What lies on disks in the clear where Spark is told to encrypt its own files there."""
    if not _is_on(conf, _DISK_ENCRYPTION):
        return ()
    kept = ["rows that memory has no room for (io.tmp.dirs)"]
    if backend.capabilities.keeps_files:
        kept.append("live state (state.backend.type)")
    if isinstance(backend, ChangelogStateBackend) and backend.options.local_copies is not None:
        kept.append(f"copies of checkpoints ({backend.options.local_copies})")
    note = (
        f"{_DISK_ENCRYPTION} is true, and Holdfast does not encrypt what it keeps on disks of "
        f"executors, {' and '.join(kept)}: have these directories on encrypted disks"
    )
    return (note,)


def _driver(config: NetworkConfig, conf: Mapping[str, str], *, is_here: bool) -> Listening:
    if config.driver_host is not None or is_here:
        interface = config.driver_bind_address
    else:
        interface = config.driver_bind_address or conf.get("spark.driver.bindAddress")
    sparks = _LOOPBACK if is_here else conf.get("spark.driver.host", _LOOPBACK)
    return Listening(
        bare_host(config.driver_host or sparks),
        None if interface is None else bare_host(interface),
        config.driver_ports,
    )


def slot_listening(config: NetworkConfig, seen_as: str) -> Listening:
    """Where a slot of this process listens; the driver sees its executor at `seen_as`.

    That is the way to the driver, and need not be the executor's host: so it comes last.
    """
    host = config.slot_host or executor_host() or seen_as
    return Listening(bare_host(host), config.slot_bind_address, config.slot_ports)


def executor_host(process: int | None = None) -> str | None:
    """The host by which other executors find that of this worker; None if it cannot be told.

    Spark tells Python workers nothing of it. It is in the environment of a pod, and elsewhere on
    the command line of the executor, which began the process that began this one.
    """
    if pod := os.environ.get(_POD_IP):
        return pod
    process = os.getpid() if process is None else process
    for _ in range(_MOST_ANCESTORS):
        try:
            status = Path(f"/proc/{process}/stat").read_text()
            process = int(status.rpartition(")")[2].split()[1])
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError, IndexError):
            return None  # there is no /proc, or no such process any more
        told = [word.decode(errors="replace") for word in words]
        if _HOSTNAME in told[:-1]:
            return told[told.index(_HOSTNAME) + 1]
    return None
