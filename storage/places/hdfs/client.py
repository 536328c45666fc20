"""One client of an HDFS for each process, whose calls end in bounded time.

The library waits for a name node without limit, so each call is made on a thread that can be
abandoned (`bounded_calls.py`). The client connects at first use. A client that did not answer is
abandoned with its connections, and the next call makes a new one; so is the parent's client after a
fork.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.storage.bounded_calls import GivenUp, within
from holdfast.storage.clock import Clock, SystemClock
from holdfast.storage.places.hdfs.errors import NoAnswer
from holdfast.storage.places.hdfs.hadoop_config import HdfsSettings
from holdfast.storage.places.undying_clients import never_freed

if TYPE_CHECKING:
    from hdfs_native import Client, FileReader, WriteOptions

__all__ = ["HdfsClient", "OpenFiles", "client_of", "write_options"]

_Answer = TypeVar("_Answer")

_CONNECTIONS_KEPT_S = 3.5
"""The library keeps connections to data nodes for three seconds, for all clients of a process. A
forked child must not use those of its parent, so its first call waits."""
_NO_CONFIG_DIR = os.devnull
_QUICK_FAILURE = {
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "10",
    "dfs.client.failover.sleep.max.millis": "50",
    "dfs.client.socket-timeout": "30000",
}
"""Each call tries every name node and ends soon: `Retries` repeats it."""
_NAME_NODES = "dfs.ha.namenodes."

_OPEN_FILES = 16
_OPEN_S = 5.0
_USER_VARIABLES = ("HADOOP_USER_NAME", "HADOOP_PROXY_USER", "KRB5CCNAME")
_clients: dict[tuple[object, ...], HdfsClient] = {}
_lock = threading.Lock()
_clock = SystemClock()
_quiet_until_s = 0.0


def _after_fork() -> None:
    global _lock, _quiet_until_s  # noqa: PLW0603 (a thread of the parent may hold it)
    _lock = threading.Lock()
    if _clients:
        _quiet_until_s = _clock.monotonic_s() + _CONNECTIONS_KEPT_S


os.register_at_fork(after_in_child=_after_fork)


def client_of(settings: HdfsSettings) -> HdfsClient:
    """The client of this process for these settings, and for the user that it is now."""
    key = (os.getpid(), settings, *map(os.environ.get, _USER_VARIABLES))
    with _lock:
        found = _clients.get(key)
        if found is None:
            found = _clients[key] = HdfsClient(settings)
        return found


class HdfsClient:
    """Calls an HDFS through the library; all methods may be used from many threads."""

    def __init__(self, settings: HdfsSettings) -> None:
        self._settings = settings
        self.proven: set[str] = set()
        """Directories in which this process and user have tried all calls that commits need."""
        self.files = OpenFiles(_clock)
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._left = 0

    @property
    def timeout_s(self) -> float:
        """The limit of one call."""
        return self._settings.timeout_s

    def call(self, work: Callable[[Client], _Answer], *, more_s: float = 0.0) -> _Answer:
        """The answer of `work`, called with the library's client.

        Raises:
            NoAnswer: it took longer than the timeout plus `more_s`.
            Exception: any error of the library.
        """
        client = self._connected()
        limit_s = self._settings.timeout_s + more_s
        try:
            return within(limit_s, lambda: work(client))
        except GivenUp:
            self._leave(client)
            raise NoAnswer(f"no answer in {limit_s:g} s") from None

    def _connected(self) -> Client:
        with self._lock:
            if self._client is None:
                if _quiet_until_s:
                    _clock.sleep_s(max(0.0, _quiet_until_s - _clock.monotonic_s()))
                self._client = _made(self._settings, self._left)
            return self._client

    def _leave(self, client: Client) -> None:
        """Abandon a client whose connections hang; they, and its open files, would block calls."""
        with self._lock:
            if self._client is client:
                self._client = None
                self.files = OpenFiles(_clock)
                self._left += 1


class OpenFiles:
    """Recently opened files by path, so that the ranges of a long one open it once. Thread-safe.

    Opening a file asks the name node for its blocks, which takes an eighth as long as reading a
    block of a segment. Entries are a few seconds old at most, and objects do not change.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._files: OrderedDict[str, tuple[float, FileReader]] = OrderedDict()

    def get(self, path: str) -> FileReader | None:
        """The file, if it was opened recently."""
        with self._lock:
            opened_s, file = self._files.get(path, (0.0, None))
            if file is not None and self._clock.monotonic_s() - opened_s > _OPEN_S:
                del self._files[path]
                return None
            return file

    def keep(self, path: str, file: FileReader) -> None:
        """Add a file that was just opened."""
        with self._lock:
            self._files[path] = self._clock.monotonic_s(), file
            self._files.move_to_end(path)
            while len(self._files) > _OPEN_FILES:
                self._files.popitem(last=False)

    def drop(self, path: str) -> None:
        """Remove a file that is gone, was replaced, or cannot be read."""
        with self._lock:
            self._files.pop(path, None)


def write_options(settings: HdfsSettings) -> WriteOptions:
    """The options for a new file; its folders are made with it."""
    from hdfs_native import WriteOptions  # noqa: PLC0415 (an extra, present once there is a client)

    return WriteOptions(
        block_size=settings.block_size_bytes,
        replication=settings.replication,
        overwrite=False,
        create_parent=True,
    )


def _made(settings: HdfsSettings, turn: int) -> Client:
    """A client that starts with another name node at each turn.

    The library moves on to the next name node when one refuses, but not when one is silent, as a
    machine without power is.
    """
    from hdfs_native import Client  # noqa: PLC0415 (an extra)

    client = Client(
        settings.name_node,
        config=_QUICK_FAILURE | {key: _turned(key, value, turn) for key, value in settings.config},
        config_dir=_NO_CONFIG_DIR,  # the settings were read on the driver
        kerberos_principal=settings.kerberos_principal,
        kerberos_keytab=settings.kerberos_keytab,
        kerberos_cache=settings.kerberos_cache,
    )
    # Their number is bounded: one for equal settings, and one more each time that an HDFS did not
    # answer.
    never_freed(client.inner)
    return client


def _turned(key: str, value: str, turn: int) -> str:
    if not key.startswith(_NAME_NODES):
        return value
    nodes = [node.strip() for node in value.split(",")]
    first = turn % len(nodes)
    return ",".join(nodes[first:] + nodes[:first])
