"""Addresses: where a server listens, and where others find it.

The two differ where addresses are translated: a container listens at its own interface, and is
found at the address of its host.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.storage import Invalid

__all__ = [
    "ANY_PORT",
    "Listening",
    "PortRange",
    "bare_host",
    "in_url",
    "is_loopback",
    "port_range",
]

_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class PortRange:
    """Ports of which the first free one is taken; from 0 to 0 the system chooses."""

    first: int
    last: int

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


ANY_PORT = PortRange(0, 0)


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server listens, and under what host others find it.

    `bind_address` is the interface, by name or number; None is that of `host`.
    """

    host: str
    bind_address: str | None = None
    ports: PortRange = ANY_PORT

    @property
    def interface(self) -> str:
        return self.host if self.bind_address is None else self.bind_address


def port_range(text: str, *, name: str) -> PortRange:
    """Parse a text such as `45000` or `45000-45100`.

    Raises:
        Invalid: it is none.
    """
    found = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text.strip())
    if found:
        first, last = int(found[1]), int(found[2] or found[1])
        if first <= last <= _LAST_PORT and (first > 0 or last == 0):
            return PortRange(first, last)
    raise Invalid(
        f"{name} is no port",
        expected=f'a port or a range up to {_LAST_PORT}, such as "45000-45100"; "0" is any',
        found=repr(text),
    )


def bare_host(host: str) -> str:
    """A host without the brackets that numbers of IPv6 have in URLs."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def in_url(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host: a loopback number, or `localhost`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
