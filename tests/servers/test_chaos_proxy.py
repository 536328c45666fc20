"""A proxy leaves no connection open, however what it does on one ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from support.servers.chaos_proxy import LOOPBACK, Pair, Proxy


class Greets(Proxy):
    """Connects, waits for a greeting, and connects once more."""

    async def serve(self, client: Pair) -> None:
        await self.connect()
        await client[0].readexactly(5)
        await self.connect()
        await asyncio.sleep(60)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as listening:
        listening.settimeout(5)
        yield listening


@pytest.mark.parametrize(("greeting", "connections"), [(b"hel", 1), (b"hello", 2)])
def test_connections_end_when_the_proxy_cuts_them(
    server: socket.socket, greeting: bytes, connections: int
) -> None:
    with (
        Greets(server.getsockname()[1]) as proxy,
        socket.create_connection((LOOPBACK, proxy.port), timeout=5) as client,
    ):
        client.sendall(greeting)
        opened = [server.accept()[0] for _ in range(connections)]
        proxy.cut_all()
        check_closed(opened)


def test_connections_end_when_the_client_does(server: socket.socket) -> None:
    with Greets(server.getsockname()[1]) as proxy:
        with socket.create_connection((LOOPBACK, proxy.port), timeout=5):
            opened, _ = server.accept()
        check_closed([opened])


def check_closed(connections: list[socket.socket]) -> None:
    for each in connections:
        with each:
            each.settimeout(5)
            assert each.recv(1) == b""
