"""What a stranger on the network can do to servers of a job, and read of what travels: nothing."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from pyarrow import flight

from holdfast.runtime.api.addresses import Listening, PortRange
from holdfast.runtime.network import (
    Credentials,
    DriverClient,
    DriverServer,
    Protection,
    SlotClient,
    make_certificate,
)
from holdfast.runtime.network.authentication import headers_of
from holdfast.runtime.network.server import ACTION
from holdfast.runtime.protocol.elements import EndOfInput
from holdfast.runtime.protocol.messages import Finish, Finished, PushKey, ToDriver
from holdfast.runtime.task.channel import Bell
from holdfast.storage import Invalid, Unavailable
from support.jobs.networked_slots import LOOPBACK, SCHEMA, TRUSTED, Errors, Slot, rows, sender_to

IDENTITY = make_certificate()
TLS = Protection(IDENTITY)
SECRET = Credentials(token=TRUSTED.token, attempt=3, protection=TLS)
MARKED = 0x5EC2E75EC2E7  # a value that is looked for among what travels


@contextmanager
def watched(port: int, seen: bytearray) -> Iterator[Listening]:
    """A way from 127.0.0.2 to a port of 127.0.0.1, which keeps what travels."""
    door, ends = socket.create_server(("127.0.0.2", port)), list[socket.socket]()

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                seen.extend(data)
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    with ThreadPoolExecutor(32) as pool:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    inside, _ = door.accept()
                    outside = socket.create_connection((LOOPBACK, port))
                    ends.extend((inside, outside))
                    pool.submit(pump, inside, outside)
                    pool.submit(pump, outside, inside)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Listening("127.0.0.2", LOOPBACK)
        finally:
            door.shutdown(socket.SHUT_RDWR)
            door.close()
            thread.join()
    for end in ends:
        end.close()


def travelling(credentials: Credentials) -> bytes:
    """All that two clients and a slot say to each other for a push, an exchange and a command."""
    slot = Slot(credentials=credentials, listening=Listening("127.0.0.2", LOOPBACK))
    address, errors, seen = slot.server.address, Errors(), bytearray()
    with watched(int(address.rpartition(":")[2]), seen), slot.server:
        with SlotClient(address, credentials) as client:
            assert client.call(Finish())
            client.push_all(PushKey("s", "e", 1, 0, 0), SCHEMA, [rows(MARKED)])
        sender = sender_to(address, Bell(), errors, credentials=credentials)
        sender.send(rows(MARKED))
        sender.send(EndOfInput())
        sender.finish(10)
        sender.close()
        assert len(slot.take(slot.channels["x", 1], 2)) == 2
    return bytes(seen)


def test_rows_and_the_secret_cannot_be_read_off_the_wire() -> None:
    marked, token = MARKED.to_bytes(8, "little"), TRUSTED.token.encode()
    clear, secret = travelling(TRUSTED), travelling(SECRET)
    assert marked in clear, "the look itself finds what is there"
    assert marked not in secret
    assert b"holdfast-proof" in clear
    assert b"holdfast-proof" not in secret
    for length in range(6, len(token) + 1):
        assert token[:length] not in clear, "not even where nothing is encrypted"
    assert token not in secret


@pytest.fixture
def heard() -> list[ToDriver]:
    return []


@pytest.fixture
def driver(heard: list[ToDriver]) -> Iterator[DriverServer]:
    def handle(message: ToDriver) -> bool:
        heard.append(message)
        return True

    with DriverServer(Listening(LOOPBACK), SECRET.token, TLS) as server:
        server.serve(SECRET.attempt, handle)
        yield server


def test_a_stranger_gets_no_further_than_the_handshake(
    driver: DriverServer, heard: list[ToDriver]
) -> None:
    """Without the certificate, with one of another job, and in the clear: also with the token."""
    address = driver.address
    place = address.partition("://")[2]
    no_certificate = flight.FlightClient(
        address, tls_root_certs=IDENTITY.certificate, override_hostname="holdfast.invalid"
    )
    other_job = Protection(make_certificate()).client_arguments()
    strangers = [
        no_certificate,
        flight.FlightClient(address, **other_job),
        flight.FlightClient(
            address, **other_job | {"tls_root_certs": IDENTITY.certificate}
        ),  # which believes the server
        flight.FlightClient(f"grpc://{place}"),
    ]
    options = flight.FlightCallOptions(timeout=5, headers=headers_of(SECRET, address))
    action = flight.Action(ACTION, msgspec.msgpack.encode(Finished(1)))
    for stranger in strangers:
        with pytest.raises((flight.FlightError, OSError)):
            list(stranger.do_action(action, options))
        stranger.close()
    assert not heard
    with DriverClient(address, SECRET) as friend:
        assert friend.call(Finished(1))


def test_only_new_versions_of_tls_are_spoken(driver: DriverServer, tmp_path: Path) -> None:
    """By a caller that has the certificate, and would speak the old ones too."""
    host, _, port = driver.address.partition("://")[2].rpartition(":")
    (tmp_path / "both.pem").write_bytes(IDENTITY.certificate + IDENTITY.key)

    def spoken(version: ssl.TLSVersion) -> str | None:
        caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        caller.check_hostname, caller.verify_mode = False, ssl.CERT_NONE
        caller.load_cert_chain(tmp_path / "both.pem")
        caller.set_alpn_protocols(["h2"])
        caller.set_ciphers("DEFAULT@SECLEVEL=0")
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            caller.minimum_version = caller.maximum_version = version
        plain = socket.create_connection((host, int(port)))
        with plain, caller.wrap_socket(plain) as wrapped:
            return wrapped.version()

    assert spoken(ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    with pytest.raises((ssl.SSLError, OSError)):
        spoken(ssl.TLSVersion.TLSv1_1)


def test_a_client_believes_no_server_of_another_job() -> None:
    """An attacker that listens where a server was, with a certificate of the same name."""
    impostor = Credentials(token=SECRET.token, attempt=3, protection=Protection(make_certificate()))
    with DriverServer(Listening(LOOPBACK), impostor.token, impostor.protection) as server:
        server.serve(3, lambda _: True)
        is_refused = pytest.raises(Unavailable, match="cannot be reached")
        with DriverClient(server.address, SECRET, retry_for_s=0) as client, is_refused:
            client.call(Finished(1))


def test_no_call_is_made_in_the_clear_where_the_job_is_encrypted() -> None:
    with pytest.raises(Invalid, match=r"expected grpc\+tls://…, found grpc://…"):
        DriverClient(f"grpc://{LOOPBACK}:1", SECRET)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "h.example", "fd00::2"])
def test_nothing_is_served_or_called_in_the_clear_beyond_loopback(host: str) -> None:
    beyond = [Listening(host), Listening(LOOPBACK, host), Listening(host, LOOPBACK)]
    for listening in beyond:
        with pytest.raises(Invalid, match="would travel unencrypted"):
            DriverServer(listening, TRUSTED.token)
    address = f"grpc://[{host}]:1" if ":" in host else f"grpc://{host}:1"
    with pytest.raises(Invalid, match="would travel unencrypted"):
        DriverClient(address, TRUSTED)
    allowed = Credentials(token="t", attempt=1, protection=Protection(is_clear_allowed=True))
    DriverClient(address, allowed).close()


def test_credentials_sent_to_one_server_are_refused_by_another() -> None:
    """A server dies, an attacker takes its port, and reads the headers of callers."""
    heard: list[ToDriver] = []

    def hear(message: ToDriver) -> bool:
        heard.append(message)
        return True

    with DriverServer(Listening(LOOPBACK), TRUSTED.token) as gone:
        replayed = headers_of(TRUSTED, gone.address)
    with DriverServer(Listening(LOOPBACK), TRUSTED.token) as server:
        server.serve(TRUSTED.attempt, hear)
        stranger = flight.FlightClient(server.address)
        action = flight.Action(ACTION, msgspec.msgpack.encode(Finished(1)))
        later = dict(headers_of(TRUSTED, server.address)) | {b"holdfast-attempt": b"4"}
        for headers in (replayed, [*later.items()], []):
            with pytest.raises(flight.FlightUnauthenticatedError, match="not that of this job"):
                list(stranger.do_action(action, flight.FlightCallOptions(headers=headers)))
        assert not heard
        server.serve(TRUSTED.attempt + 1, hear)
        earlier = flight.FlightCallOptions(headers=headers_of(TRUSTED, server.address))
        with pytest.raises(flight.FlightServerError, match="another attempt"):
            list(stranger.do_action(action, earlier))
        stranger.close()
    assert not heard


@pytest.mark.parametrize("credentials", [TRUSTED, SECRET], ids=["clear", "tls"])
def test_ipv6_and_a_bound_address_that_is_not_the_advertised_one(credentials: Credentials) -> None:
    slot = Slot(credentials=credentials, listening=Listening("::1"))
    with slot.server, SlotClient(slot.server.address, credentials) as client:
        assert "://[::1]:" in slot.server.address
        assert client.call(Finish())
        client.push_all(PushKey("s", "e", 1, 0, 0), SCHEMA, [rows(1)])
    wide = Listening("localhost", "::" if credentials is SECRET else LOOPBACK)
    with DriverServer(wide, credentials.token, credentials.protection) as server:
        server.serve(credentials.attempt, lambda _: True)
        assert "://localhost:" in server.address
        with DriverClient(server.address, credentials) as friend:
            assert friend.call(Finished(1))


def test_the_first_free_port_of_a_range_is_taken_and_never_one_that_is_served() -> None:
    alone = "127.7.7.7"  # where no other process takes ports
    with socket.create_server((alone, 0)) as first:
        taken = first.getsockname()[1]
        ports = PortRange(taken, taken + 1)
        with DriverServer(Listening(alone, ports=ports), "a") as server:
            assert server.address.endswith(f":{taken + 1}")
            is_full = pytest.raises(Unavailable, match=f"port {taken}-{taken + 1}")
            with is_full:
                DriverServer(Listening(alone, ports=ports), "b")


def test_nothing_that_is_shown_has_a_secret() -> None:
    shown = f"{SECRET!r} {SECRET} {TLS!r} {IDENTITY} {SECRET.label}"
    assert IDENTITY.key.decode().splitlines()[1] not in shown
    for begin in range(len(SECRET.token) - 5):
        assert SECRET.token[begin : begin + 6] not in shown


def test_a_driver_that_cannot_make_certificates_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(Invalid, match="pip install cryptography"):
        make_certificate()
