"""What stands in for servers that file systems of fsspec go to; it keeps what it was told."""

from __future__ import annotations

import ftplib
import importlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from fsspec.implementations import ftp as fsspec_ftp
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

__all__ = ["Azure", "FakeFtp", "stand_in_azure", "stand_in_ftp", "stand_in_sftp"]


class FakeFtp:
    """What ftplib's client does, as far as it is called; keeps what it was told."""

    told: tuple[Any, ...] = ()
    refusal = ""

    def __init__(self, **_: object) -> None:
        """It connects later."""

    def connect(self, host: str, port: int) -> None:
        FakeFtp.told = (host, port)

    def login(self, *credentials: str) -> None:
        if FakeFtp.refusal:
            raise ftplib.error_perm(FakeFtp.refusal)
        FakeFtp.told += credentials

    def mlsd(self, path: str, facts: object = ()) -> list[tuple[str, dict[str, str]]]:
        return [("x", {"type": "dir"})] if path == "/" else []

    def close(self) -> None:
        """There is nothing open."""


def stand_in_ftp(monkeypatch: pytest.MonkeyPatch) -> type[FakeFtp]:
    """Whatever server is named; `refusal`, if set, is its answer to a login."""
    monkeypatch.setattr(FakeFtp, "told", ())
    monkeypatch.setattr(FakeFtp, "refusal", "")
    monkeypatch.setattr(fsspec_ftp, "FTP", FakeFtp)
    return FakeFtp


def stand_in_sftp(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """To no server there is a way; the answer has what it was asked with."""
    told: dict[str, Any] = {}

    class Client:
        def set_missing_host_key_policy(self, policy: object) -> None: ...

        def connect(self, hostname: str, *, port: int, username: str, password: str) -> None:
            told.update(hostname=hostname, port=port, username=username, password=password)
            raise OSError(f"no way to {hostname} for {password}")

    paramiko = SimpleNamespace(
        SSHClient=Client,
        AutoAddPolicy=object,
        WarningPolicy=object,
        RejectPolicy=object,
        MissingHostKeyPolicy=object,
    )
    monkeypatch.setitem(sys.modules, "paramiko", paramiko)
    module = importlib.import_module("fsspec.implementations.sftp")
    del sys.modules[module.__name__]  # it knows this stand-in only
    monkeypatch.setitem(_registry, "sftp", module.SFTPFileSystem)
    return told


class Azure(MemoryFileSystem):  # type: ignore[misc]
    """Its URLs are as those of adlfs: the account is no part of the path."""

    protocol = ("abfs", "az")
    cachable = False

    def __init__(self, account_name: str, **options: Any) -> None:
        super().__init__(**options)
        self.account_name = account_name

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        rest = path.partition("://")[2] or path
        authority, slash, below = rest.partition("/")
        return f"{authority.partition('@')[0]}{slash}{below}"

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        account = path.partition("://")[2].partition("/")[0].partition("@")[2]
        return {"account_name": account} if account else {}


def stand_in_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever account is named."""
    for scheme in Azure.protocol:
        monkeypatch.setitem(_registry, scheme, Azure)
