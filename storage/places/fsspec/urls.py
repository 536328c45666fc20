"""URLs of fsspec's file systems: which server they name, as whom, and what of them may be shown."""

from __future__ import annotations

import copy
import inspect
import logging
import re
from collections.abc import Mapping
from typing import Any

import fsspec

from holdfast.storage.errors import Invalid
from holdfast.storage.places.undying_clients import never_freed

__all__ = ["FsspecAddress", "file_system_class", "without_password"]

_logger = logging.getLogger(__name__)

_KEYS = re.compile(r"(\bs3a?://)(?:[^/\s]*|[^/@:\s]*:[^@\s]*)@")
"""Where old tools had both keys, and there is neither a user nor a port."""
_TOKEN = re.compile(r"(\bhttps?://)[^/\s]*@")
"""Many a server takes one in the place of the user."""
_USER = re.compile(r"(?<=://)[^/\s]*(?=@)")
_NO_PORT = re.compile(r"(?<=://)(?P<user>[^/@:\[\]\s]*):(?!\d*(?:[/\s]|$))[^@\s]*@")
_SHORTEST_MASKED = 4
_SECRETS = frozenset(
    {"password", "passphrase", "secret", "secret_key", "client_secret", "account_key", "sas_token"}
    | {"connection_string", "token"}
)
"""Options by which file systems of fsspec take what nobody else may know."""
_TOKENS_ELSEWHERE = frozenset({"anon", "browser", "cache", "cloud", "google_default"})
"""What Google's takes for a token, and is a way to find one."""
_LOGIN = frozenset({"username", "password"})
_OF_HDFS = frozenset({"hdfs", "viewfs"})
_KEEP_NO_LISTINGS = _OF_HDFS | {"sftp"}
"""Who takes all options for those of a connection, and has no listings to keep."""
_SERVER = ("host", "port", "account_name", "endpoint_url")
_PORTS = {"ftp": 21, "sftp": 22}
"""Those of who names none."""
_warned: set[str] = set()


def without_password(url: str) -> str:
    """The URL, or a text with URLs in it, as it may be shown: containers stay, and most users."""
    shown = _TOKEN.sub(r"\1", _KEYS.sub(r"\1", url))
    shown = _USER.sub(lambda user: user[0].partition(":")[0], shown)
    # A slash in a password ends what is the server's name for all others: so no port is there.
    return _NO_PORT.sub(lambda found: f"{found['user']}@", shown)


def file_system_class(scheme: str, shown_url: str, *, kind: str) -> Any:
    """The class of fsspec for URLs of a scheme. `kind` is what the caller looks for.

    Raises:
        Invalid: there is none, or its package is not installed.
    """
    try:
        if not scheme:
            raise ValueError  # fsspec takes it for a path of this machine
        return fsspec.get_filesystem_class(scheme)
    except ValueError:
        raise Invalid(
            f"no {kind} is known for URLs of scheme {scheme!r}",
            where=shown_url,
            expected="file, memory, hdfs, s3, or a scheme of fsspec or of a plug-in",
        ) from None
    except ImportError as error:
        raise Invalid(
            f"a package that {scheme} URLs need is not installed",
            where=shown_url,
            fix=str(error),
        ) from error


class FsspecAddress:
    """What a URL and the options beside it say: which server, as whom, and where there.

    Light, and may be pickled. An option counts before the URL.
    """

    def __init__(self, kind: Any, url: str, options: Mapping[str, Any]) -> None:
        """Read a URL of this class of file systems; nobody is asked.

        Raises:
            Invalid: it cannot be read, or says too little, or the options too much.
        """
        self._url = url
        self.shown_url = without_password(url)
        """It may be shown."""
        self._options = dict(options)
        self.scheme = url.partition("://")[0]
        self._protocol = kind.protocol if isinstance(kind.protocol, str) else kind.protocol[0]
        self._of_url, self.root = self._read_url(kind)
        """`root` is the path of the place on its server."""
        self._check_complete(kind)

    @property
    def settings(self) -> dict[str, Any]:
        """What the file system is made with."""
        return self._of_url | self._options

    @property
    def server(self) -> str:
        """Whose roots have paths of their own: a protocol with a host, an account, an endpoint."""
        said = {name: self.settings.get(name) for name in _SERVER}
        if said["port"] == _PORTS.get(self._protocol):
            del said["port"]
        parts = [f"{name}={value}".lower() for name, value in said.items() if value is not None]
        return " ".join((self._protocol, *parts))

    @property
    def files(self) -> Any:
        """The client; fsspec keeps one for each process, so nothing has to be pickled.

        It may connect where it is made: take it where errors are translated.

        Raises:
            Invalid: it does not take these options.
        """
        remembers = {} if self._protocol in _KEEP_NO_LISTINGS else {"use_listings_cache": False}
        try:
            files = fsspec.filesystem(self.scheme, **remembers, **self.settings)
        except TypeError as error:
            raise self._incomplete(error) from None
        if self._protocol in _OF_HDFS:
            never_freed(files)
        return files

    def led_by(self, mine: FsspecAddress) -> FsspecAddress | None:
        """The same, with the login of another; None if that is of another server or another user.

        What its own URL says counts before that.
        """
        user = mine.settings.get("username")
        if self.server != mine.server or self.settings.get("username", user) != user:
            return None
        login = {name: value for name, value in mine._of_url.items() if name in _LOGIN}
        led = copy.copy(self)
        led._of_url = login | self._of_url
        return led

    def shown(self, text: str) -> str:
        """What a library says, without secrets."""
        for secret in self._secrets():
            if len(secret) >= _SHORTEST_MASKED:  # a single letter would be masked in all words
                text = text.replace(secret, "***")
        return without_password(text)

    def warn_of_secrets(self) -> None:
        """Say, once in a process for each place, that a password travels with it."""
        has_any = bool(self._secrets()) or self.shown_url != self._url
        if not has_any or self.shown_url in _warned:
            return
        _warned.add(self.shown_url)
        _logger.warning(
            "%s has a password or a key as text: it is in what Spark sends to its executors. A "
            "file or an environment that is on their machines needs none of that",
            self.shown_url,
        )

    def _secrets(self) -> list[str]:
        said = {name: str(self.settings[name]) for name in _SECRETS & self.settings.keys()}
        token = said.get("token", "")
        if token in _TOKENS_ELSEWHERE or token.endswith(".json"):  # a file with one
            said.pop("token", None)
        return [*said.values()]

    def _read_url(self, kind: Any) -> tuple[dict[str, Any], str]:
        try:
            said = dict(kind._get_kwargs_from_urls(self._url))
            return said, str(kind._strip_protocol(self._url)).rstrip("/")
        except (ValueError, TypeError):  # some are no URLs by themselves, and say so in that way
            raise Invalid(
                "a URL cannot be read",
                where=self.shown_url,
                expected=f"{self.scheme}://host:port/path, as fsspec has it",
                fix="Give user and password by storage_options, not in the URL",
            ) from None  # its text may have a password in it

    def _check_complete(self, kind: Any) -> None:
        """Some need a host, others a bucket of their own: told here, and not by who connects."""
        try:
            inspect.signature(kind.__init__).bind(None, **self.settings)
        except TypeError as error:
            raise self._incomplete(error) from None

    def _incomplete(self, error: TypeError) -> Invalid:
        return Invalid(
            f"a {self.scheme} file system cannot be set up",
            where=self.shown_url,
            expected="what it needs, in the URL or by storage_options, and nothing else",
            found=self.shown(str(error)),
        )
