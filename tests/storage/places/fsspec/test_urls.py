"""URLs of fsspec's file systems: what they say of a server, and what of them may be shown."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from traceback import format_exception
from typing import Any

import pytest
from fsspec import AbstractFileSystem

from holdfast.storage import CheckpointStorage, HoldfastError, Invalid, Unavailable, load_storage
from holdfast.storage.places.fsspec.urls import FsspecAddress, without_password
from support.servers.fsspec_stand_ins import FakeFtp, stand_in_azure, stand_in_ftp, stand_in_sftp

PASSWORD = "p@ssw0rd"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sftp://user:p@ssw0rd@host/x", "sftp://user@host/x"),
        ("sftp://user:p@ss@w0rd@host:22/x@y", "sftp://user@host:22/x@y"),
        ("ftp://user:pass/word@host/x", "ftp://user@host/x"),
        ("ftp://user:p#a?s@host/x", "ftp://user@host/x"),
        ("ftp://user:@host/x", "ftp://user@host/x"),
        ("ftp://user@host/x", "ftp://user@host/x"),
        ("ftp://user:p@[::1]:21/x", "ftp://user@[::1]:21/x"),
        ("ftp://[::1]:21/x@y:z@q", "ftp://[::1]:21/x@y:z@q"),
        ("http://host:80/a@b", "http://host:80/a@b"),
        ("abfs://container@account/x", "abfs://container@account/x"),
        ("gs://bucket/x@y", "gs://bucket/x@y"),
        ("s3://key:secret@bucket/x@y", "s3://bucket/x@y"),
        ("s3a://key@bucket/x", "s3a://bucket/x"),
        ("s3://AK:9/cret@bucket/x@y", "s3://bucket/x@y"),
        ("s3://bucket/x:y@z", "s3://bucket/x:y@z"),
        ("https://ghp_token@host/x@y", "https://host/x@y"),
        ("simplecache::sftp://user:p@host/x", "simplecache::sftp://user@host/x"),
        ("a/path:with@signs", "a/path:with@signs"),
        ("no ftp://user:p@host here: me:you@x", "no ftp://user@host here: me:you@x"),
    ],
)
def test_a_password_is_left_out_and_nothing_else(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.fixture
def ftp(monkeypatch: pytest.MonkeyPatch) -> type[FakeFtp]:
    return stand_in_ftp(monkeypatch)


def unsafe(url: str, **options: Any) -> CheckpointStorage:
    return load_storage(url, allow_unsafe_commit=True, **options)


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("ftp://u:p@ssw0rd@127.0.0.1/x", {}, ("127.0.0.1", 21, "u", PASSWORD, "")),
        ("ftp://127.0.0.1:2121/x", {}, ("127.0.0.1", 2121, "", "", "")),
        (
            "ftp://u@127.0.0.1/x",
            {"password": PASSWORD, "port": 99},
            ("127.0.0.1", 99, "u", PASSWORD, ""),
        ),
        ("ftp:///x", {"host": "there"}, ("there", 21, "", "", "")),
    ],
)
def test_the_host_of_a_url_is_gone_to(
    url: str, options: dict[str, Any], told: tuple[Any, ...], ftp: type[FakeFtp]
) -> None:
    """Options count before it, and it travels with the storage."""
    storage = unsafe(url, storage_options=options)
    pickle.loads(pickle.dumps(storage)).prepare()
    assert ftp.told == told
    assert [*storage.list("")] == []


def test_without_a_host_it_is_refused_at_once() -> None:
    with pytest.raises(Invalid, match=r"cannot be set up \[ftp:///x\].*'host'"):
        unsafe("ftp:///x")


def test_a_url_that_cannot_be_read_is_not_shown_either() -> None:
    password = "secr/etive"
    with pytest.raises(Invalid, match="a URL cannot be read") as caught:
        unsafe(f"ftp://user:{password}@host/x")
    assert "etive" not in "".join(format_exception(caught.value))


def test_an_unreadable_url_raises_a_holdfast_error() -> None:
    with pytest.raises(Invalid, match=r"a URL cannot be read \[generic://x\]"):
        unsafe("generic://x")


@pytest.mark.parametrize(("scheme", "port"), [("ftp", 21), ("sftp", 22)])
def test_a_port_that_goes_without_saying_leads_to_the_same_place(
    scheme: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_sftp(monkeypatch)
    identity = unsafe(f"{scheme}://host/x").identity
    assert unsafe(f"{scheme}://host:{port}/x").identity == identity
    assert unsafe(f"{scheme}://host:2100/x").identity != identity


VERBS: list[Callable[[CheckpointStorage], object]] = [
    lambda storage: storage.prepare(),
    lambda storage: storage.read("a"),
    lambda storage: storage.write("a", b"x"),
    lambda storage: storage.create("a", b"x"),
    lambda storage: [*storage.list("")],
    lambda storage: storage.delete(["a"]),
    lambda storage: [*storage.unfinished("")],
]


@pytest.mark.parametrize("verb", VERBS)
def test_a_login_that_is_refused_is_an_error_of_the_house(
    verb: Callable[[CheckpointStorage], object], ftp: type[FakeFtp]
) -> None:
    """The client connects wherever it is first asked for. What it says may have the password."""
    ftp.refusal = f"530 no user u with {PASSWORD} at ftp://u:{PASSWORD}@host"
    with pytest.raises(Unavailable, match="530 no user u with") as caught:
        verb(unsafe(f"ftp://u:{PASSWORD}@host/x"))
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("ftp://warned:p@ssw0rd@host/x", {}),
        ("ftp://warned@host/by-option", {"password": PASSWORD}),
        ("http://warned:p@ssw0rd@host/x", {}),
    ],
)
def test_that_a_password_travels_is_said_once(
    url: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        unsafe(url, storage_options=options)
    assert caplog.text.count("as text") == 1
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize("url", ["ftp://user@host/unwarned", "memory://a/unwarned"])
def test_where_none_travels_nothing_is_said(url: str, caplog: pytest.LogCaptureFixture) -> None:
    load_storage("filesystem", url=url, allow_unsafe_commit=True)
    assert caplog.text == ""


def test_a_token_is_masked_but_for_the_ways_to_find_one(caplog: pytest.LogCaptureFixture) -> None:
    for token in ("ghp_secret", "google_default", "/run/key.json"):
        address = FsspecAddress(AbstractFileSystem, f"abstract://x/{len(token)}", {"token": token})
        address.warn_of_secrets()
        assert (token in address.shown(f"no {token} here")) is (token != "ghp_secret")
    assert caplog.text.count("as text") == 1


def test_an_sftp_server_is_told_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client takes every option for one of the connection."""
    told = stand_in_sftp(monkeypatch)
    storage = unsafe("sftp://user:p@ssw0rd@host:2222/x")
    with pytest.raises(Unavailable, match="no way to host") as caught:
        storage.prepare()
    assert PASSWORD not in str(caught.value)
    assert (told["hostname"], told["port"]) == ("host", 2222)
    assert (told["username"], told["password"]) == ("user", PASSWORD)


def test_a_container_is_part_of_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a checkpoint's folder that was printed can be restored."""
    stand_in_azure(monkeypatch)
    url = "abfs://container@account/v1"
    storage: Any = unsafe(url)
    assert storage.url == url
    assert storage._objects._files.account_name == "account"
    assert unsafe(storage.job("job").url).identity.endswith("container/v1/job")
    led = storage.at("az://container@account/v2")
    assert led is not None
    assert led.identity != storage.identity
    assert storage.at("az://container@account/v1").identity == storage.identity
    assert storage.at("abfs://container@other/v1") is None
    by_option = unsafe("abfs://container/v1", storage_options={"account_name": "account"})
    assert by_option.identity == storage.identity
    with pytest.raises(HoldfastError, match="'account_name'"):
        unsafe("abfs://container/v1")
