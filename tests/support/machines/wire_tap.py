"""What goes over some ports of this machine, read as an eavesdropper on its network would."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict
from collections.abc import Collection
from typing import Self

_ALL_FRAMES = 0x0003
_ETHERNET_BYTES = 14
_TCP = 6
_LOOK_S = 0.2
_LARGEST = 1 << 17


class WireTap:
    """Looks at all packets of loopback while it is open. Needs the right to, as root has it.

    Raises:
        PermissionError: this user may not.
    """

    def __init__(self, ports: Collection[int]) -> None:
        self._ports = frozenset(ports)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(_ALL_FRAMES))
        self._socket.bind(("lo", 0))
        self._socket.settimeout(_LOOK_S)
        self._streams: defaultdict[tuple[bytes, bytes], bytearray] = defaultdict(bytearray)
        self._is_open = True
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def has_seen(self, text: bytes) -> bool:
        """Whether this went over the wire so far, legible."""
        self._stop()
        assert self._streams, "nothing at all went over these ports"
        return any(text in stream for stream in self._streams.values())

    def _read(self) -> None:
        while self._is_open:
            try:
                frame = self._socket.recv(_LARGEST)
            except TimeoutError:
                continue
            self._take(frame[_ETHERNET_BYTES:])

    def _take(self, packet: bytes) -> None:
        if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != _TCP:
            return
        segment = packet[(packet[0] & 15) * 4 :]
        ends = int.from_bytes(segment[:2], "big"), int.from_bytes(segment[2:4], "big")
        if self._ports.isdisjoint(ends):
            return
        self._streams[packet[12:20], segment[:4]] += segment[(segment[12] >> 4) * 4 :]

    def _stop(self) -> None:
        self._is_open = False
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._socket.close()
