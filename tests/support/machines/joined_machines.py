"""Two machines for a test: network namespaces, joined by two networks of which each has an end.

`python joined_machines.py NETWORKS` sets up the ends of the second machine, inside of it. Needs
Linux and its namespaces for users, which need no rights; all is gone when the processes are.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from support.waiting import wait_until

NETWORKS = 2
_EVERY_PROTOCOL = 3  # ETH_P_ALL
_RECEIVE_BYTES = 1 << 16


def alone(command: Sequence[str]) -> list[str]:
    """The command that runs another one on a machine of its own, as root there."""
    return ["unshare", "--map-root-user", "--net", *command]


def address(network: int, machine: int) -> str:
    """Where a machine is found in a network; both are counted from 1."""
    return f"10.77.{network}.{machine}"


@contextmanager
def second_machine() -> Iterator[list[str]]:
    """Join this machine, which is `alone`, with another; what runs a command there goes before it.

    Raises:
        CalledProcessError: the kernel does not let us.
    """
    with subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) as there:
        try:
            mine, its = (Path(f"/proc/{pid}/ns/net") for pid in ("self", there.pid))
            wait_until(lambda: mine.readlink() != its.readlink())
            with IPRoute() as here:
                for network in range(1, NETWORKS + 1):
                    other = {"ifname": _interface(network, 2), "net_ns_pid": there.pid}
                    here.link("add", ifname=_interface(network, 1), kind="veth", peer=other)
                _set_up(here, 1)
            inside = ["nsenter", "--target", str(there.pid), "--net"]
            subprocess.run([*inside, sys.executable, __file__], check=True)
            yield inside
        finally:
            there.kill()


class Listener:
    """Hears all that goes by the networks between the machines."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self._socket = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY_PROTOCOL)
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._socket.settimeout(0)
        self._is_over = True
        self._thread.join(5)
        self._socket.close()

    def _listen(self) -> None:
        self._socket.settimeout(0.2)
        self._is_over = False
        between = {_interface(network, 1) for network in range(1, NETWORKS + 1)}
        while not self._is_over:
            with suppress(TimeoutError, BlockingIOError):
                frame, where = self._socket.recvfrom(_RECEIVE_BYTES)
                if where[0] in between:
                    self.heard += frame


def _interface(network: int, machine: int) -> str:
    return f"holdfast{network}{machine}"


def _set_up(here: Any, machine: int) -> None:
    here.link("set", index=here.link_lookup(ifname="lo")[0], state="up")
    for network in range(1, NETWORKS + 1):
        (index,) = here.link_lookup(ifname=_interface(network, machine))
        here.addr("add", index=index, address=address(network, machine), prefixlen=24)
        here.link("set", index=index, state="up")


if __name__ == "__main__":
    with IPRoute() as ip:
        _set_up(ip, 2)
