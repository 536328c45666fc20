"""How driver, slots and tasks of a job reach each other, and whether that is encrypted."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.runtime.api.addresses import PortRange, port_range
from holdfast.storage import Invalid
from holdfast.storage.options.codecs import SWITCH, TEXT, Codec, either
from holdfast.storage.options.table import Option, Owner

__all__ = ["NETWORK", "NETWORK_OPTIONS", "NetworkConfig"]

_AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """How driver, slots and tasks reach each other. All is checked when it is made.

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

    def __post_init__(self) -> None:
        if not isinstance(self.ssl, bool) and self.ssl != _AUTO:
            raise Invalid(
                "ssl is not one of the choices",
                expected=f"True, False or {_AUTO!r}",
                found=repr(self.ssl),
            )
        for name in ("driver_host", "driver_bind_address", "slot_host", "slot_bind_address"):
            _check_address(getattr(self, name), name=name)
        _ = (self.driver_ports, self.slot_ports)

    @property
    def driver_ports(self) -> PortRange:
        return port_range(str(self.driver_port), name="driver_port")

    @property
    def slot_ports(self) -> PortRange:
        return port_range(str(self.slot_port), name="slot_port")


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
NETWORK = Owner(
    "network",
    NetworkConfig,
    "Fields of `NetworkConfig`, the argument `network` of `StreamEnvironment`. The names of "
    "addresses are Spark's, after `spark.driver.`. [SECURITY.md](../SECURITY.md) says what "
    "encryption promises.",
)

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
)
