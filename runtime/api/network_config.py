"""How driver, slots and tasks of a job reach each other, and what rows on their way may take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from holdfast.runtime.api.addresses import PortRange, port_range
from holdfast.storage import Invalid
from holdfast.storage.options.checks import text_fix
from holdfast.storage.options.codecs import DURATION, PATHS, SIZE, SWITCH, TEXT, Codec, either
from holdfast.storage.options.durations import Duration, duration_ms
from holdfast.storage.options.sizes import size_bytes
from holdfast.storage.options.table import Option, Owner, refused

__all__ = ["NETWORK", "NETWORK_OPTIONS", "NetworkConfig"]

_AUTO = "auto"
_MOST_MEMORY = 2**50


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """How driver, slots and tasks reach each other, and what rows may take on their way.

    All is checked when it is made.

    Addresses are names or numbers, of IPv4 or IPv6, without brackets. Ports are one, or a range
    such as "45000-45100" of which the first free one is taken; "0" is any.

    Raises:
        Invalid: a setting cannot be what it is.
    """

    ssl: str | bool = _AUTO
    """Whether calls are encrypted. "auto": where Spark's own encryption is on, and wherever an
    address is not of loopback. False is refused where Spark's encryption is on."""
    driver_host: str | None = None
    """Where slots find the driver. None: as `spark.driver.host` says."""
    driver_bind_address: str | None = None
    """The interface that the driver listens at. None: as `spark.driver.bindAddress` says, or that
    of its host."""
    driver_port: str | int = "0"
    """One for each job that runs."""
    slot_host: str | None = None
    """Where others find slots. None: each at its executor's own host."""
    slot_bind_address: str | None = None
    """The interface that slots listen at. None: that of their host; "0.0.0.0" or "::" is all."""
    slot_port: str | int = "0"
    """One for each slot on a machine, and as many for the next attempt, which may come early."""
    memory: int | str = "512 mb"
    """What rows on their way through one slot may take: those that wait to be processed, and those
    that wait to be sent to other slots. Rows of a micro-batch beyond it wait on local disk. A
    number of bytes, or text."""
    directories: tuple[str, ...] = ()
    """Absolute paths, where rows wait that memory has no room for; by default where temporary files
    are. Only what a live process uses survives there."""
    buffer_timeout: Duration = "5 ms"
    """How long a few rows may wait for more, to be sent to another slot together. They do not wait
    after a pause that is longer; with 0 they never do."""

    def __post_init__(self) -> None:
        if not isinstance(self.ssl, bool) and self.ssl != _AUTO:
            raise Invalid(
                "ssl is not one of the choices",
                expected=f"True, False or {_AUTO!r}",
                found=repr(self.ssl),
            )
        for name in ("driver_host", "driver_bind_address", "slot_host", "slot_bind_address"):
            _check_address(getattr(self, name), name=name)
        _ = (self.driver_ports, self.slot_ports, self.memory_bytes, self.buffer_timeout_s)
        _check_directories(self.directories)

    @property
    def driver_ports(self) -> PortRange:
        return port_range(str(self.driver_port), name="driver_port")

    @property
    def slot_ports(self) -> PortRange:
        return port_range(str(self.slot_port), name="slot_port")

    @property
    def memory_bytes(self) -> int:
        size = size_bytes(self.memory) if isinstance(self.memory, str) else self.memory
        if type(size) is not int or not 0 < size <= _MOST_MEMORY:
            raise Invalid(
                "memory is no size that a slot can have",
                expected="a number of bytes, or text such as `512 mb`",
                found=repr(self.memory),
            )
        return size

    @property
    def buffer_timeout_s(self) -> float:
        return duration_ms(self.buffer_timeout, name="buffer_timeout") / 1000


def _check_directories(directories: object) -> None:
    if isinstance(directories, tuple | list) and all(
        isinstance(each, str) and PurePath(each).is_absolute() for each in directories
    ):
        return
    raise Invalid(
        "directories are no absolute paths",
        expected='a tuple of them, such as ("/mnt/disk1", "/mnt/disk2")',
        found=repr(directories),
        fix=text_fix(directories),
    )


def _check_address(value: object, *, name: str) -> None:
    if value is None:
        return
    if (
        not isinstance(value, str)
        or not value
        or not value.isprintable()
        or set(value) & set("[]/ @")
        or value.count(":") == 1  # a port; numbers of IPv6 have two or more
    ):
        raise Invalid(
            f"{name} is no address",
            expected="the name or number of a host, without brackets and port",
            found=repr(value),
        )


def _ports(text: str) -> str:
    return str(port_range(text, name="the port"))


# In code a port may be a number.
_PORTS = Codec(
    "a port, a range such as `45000-45100`", _ports, lambda code, value: str(code) == value
)


def _is_same_size(code: Any, value: int) -> bool:
    return (size_bytes(code) if isinstance(code, str) else code) == value


NETWORK = Owner(
    "network",
    NetworkConfig,
    "Fields of `NetworkConfig`, the argument `network` of `StreamEnvironment`. The names of "
    "addresses are Spark's, after `spark.driver.`. [SECURITY.md](../SECURITY.md) says what "
    "encryption promises.",
)

_MEMORY = replace(SIZE, is_same=_is_same_size)
_MAX = "Set taskmanager.memory.network.max"

NETWORK_OPTIONS = (
    Option("security.ssl.internal.enabled", NETWORK, "ssl", either(_AUTO, _AUTO, SWITCH)),
    *(
        Option(f"{party}.{key}", NETWORK, f"{party}_{field}", codec)
        for party in ("driver", "slot")
        for key, field, codec in (
            ("host", "host", TEXT),
            ("bindAddress", "bind_address", TEXT),
            ("port", "port", _PORTS),
        )
    ),
    Option("taskmanager.memory.network.max", NETWORK, "memory", _MEMORY),
    Option("io.tmp.dirs", NETWORK, "directories", PATHS),
    Option(
        "execution.buffer-timeout.interval",
        NETWORK,
        "buffer_timeout",
        DURATION,
        ("execution.buffer-timeout",),
    ),
    refused(
        "execution.buffer-timeout.enabled",
        NETWORK,
        "Leave it out: rows wait for more no longer than execution.buffer-timeout.interval",
    ),
    *(
        refused(f"taskmanager.memory.network.{key}", NETWORK, f"{_MAX}: {why}")
        for key, why in (
            ("min", "what is not used is not taken"),
            ("fraction", "a slot's memory has no size of which this could be a part"),
        )
    ),
)
