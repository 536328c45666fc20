"""URLs of fsspec's file systems: which server they name, as which user, and what may be shown."""

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
"""URLs in which old tools had both keys; they have neither user nor port."""
_TOKEN = re.compile(r"(\bhttps?://)[^/\s]*@")
"""Some servers take a token in the place of the user."""
_USER = re.compile(r"(?<=://)[^/\s]*(?=@)")
_NO_PORT = re.compile(r"(?<=://)(?P<user>[^/@:\[\]\s]*):(?!\d*(?:[/\s]|$))[^@\s]*@")
_SHORTEST_MASKED = 4
_SECRETS = frozenset(
    {"password", "passphrase", "secret", "secret_key", "client_secret", "account_key", "sas_token"}
    | {"connection_string", "token"}
)
"""Options of fsspec's file systems that hold secrets."""
_TOKENS_ELSEWHERE = frozenset({"anon", "browser", "cache", "cloud", "google_default"})
"""Values that Google's takes for `token` and that are no secrets, but ways to find one."""
_LOGIN = frozenset({"username", "password"})
_OF_HDFS = frozenset({"hdfs", "viewfs"})
_KEEP_NO_LISTINGS = _OF_HDFS | {"sftp"}
"""Kinds that take every option for one of the connection, and cache no listings."""
_SERVER = ("host", "port", "account_name", "endpoint_url")
_PORTS = {"ftp": 21, "sftp": 22}
"""Ports used when the URL has none."""
_warned: set[str] = set()


def without_password(url: str) -> str:
    """A URL, or a text with URLs in it, as it may be shown: containers and most users stay."""
    shown = _TOKEN.sub(r"\1", _KEYS.sub(r"\1", url))
    shown = _USER.sub(lambda user: user[0].partition(":")[0], shown)
    # A slash in a password ends the server's name for every parser, so no port follows.
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
    """The server, user and path that a URL and its options name.

    Light and picklable. An option has priority over the URL.
    """

    def __init__(self, kind: Any, url: str, options: Mapping[str, Any]) -> None:
        """Parse a URL of this class of file systems; no request is made.

        Raises:
            Invalid: it cannot be parsed, or URL and options lack a setting, or have an unknown one.
        """
        self._url = url
        self.shown_url = without_password(url)
        """The URL without secrets."""
        self._options = dict(options)
        self.scheme = url.partition("://")[0]
        self._protocol = kind.protocol if isinstance(kind.protocol, str) else kind.protocol[0]
        self._of_url, self.root = self._read_url(kind)
        """`root` is the path of the place on its server."""
        self._check_complete(kind)

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that the file system is made with."""
        return self._of_url | self._options

    @property
    def server(self) -> str:
        """The namespace of paths: a protocol with a host, an account, an endpoint."""
        said = {name: self.settings.get(name) for name in _SERVER}
        if said["port"] == _PORTS.get(self._protocol):
            del said["port"]
        parts = [f"{name}={value}".lower() for name, value in said.items() if value is not None]
        return " ".join((self._protocol, *parts))

    @property
    def files(self) -> Any:
        """The client; fsspec keeps one for each process, so nothing has to be pickled.

        Making it may connect: use it where errors are translated.

        Raises:
            Invalid: the file system does not take these options.
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
        """The same address with the login of another; None if server or user differ.

        Its own URL has priority.
        """
        user = mine.settings.get("username")
        if self.server != mine.server or self.settings.get("username", user) != user:
            return None
        login = {name: value for name, value in mine._of_url.items() if name in _LOGIN}
        led = copy.copy(self)
        led._of_url = login | self._of_url
        return led

    def shown(self, text: str) -> str:
        """A text of a library, without secrets."""
        for secret in self._secrets():
            if len(secret) >= _SHORTEST_MASKED:  # a single letter would be masked in every word
                text = text.replace(secret, "***")
        return without_password(text)

    def warn_of_secrets(self) -> None:
        """Warn, once in a process for each place, that a password travels with it."""
        has_any = bool(self._secrets()) or self.shown_url != self._url
        if not has_any or self.shown_url in _warned:
            return
        _warned.add(self.shown_url)
        _logger.warning(
            "%s has a password or a key as text: Spark sends it to its executors. A file or an "
            "environment on their machines avoids that",
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
        except (ValueError, TypeError):  # fsspec raises either for a malformed URL
            raise Invalid(
                "a URL cannot be read",
                where=self.shown_url,
                expected=f"{self.scheme}://host:port/path, as fsspec has it",
                fix="Give user and password by storage_options, not in the URL",
            ) from None  # its text may contain a password

    def _check_complete(self, kind: Any) -> None:
        """Check required settings, such as a host, here and not at the first connection."""
        try:
            inspect.signature(kind.__init__).bind(None, **self.settings)
        except TypeError as error:
            raise self._incomplete(error) from None

    def _incomplete(self, error: TypeError) -> Invalid:
        return Invalid(
            f"a {self.scheme} file system cannot be set up",
            where=self.shown_url,
            expected="its required settings, in the URL or by storage_options, and no others",
            found=self.shown(str(error)),
        )
