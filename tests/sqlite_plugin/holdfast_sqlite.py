"""A state backend over SQLite: the worked example of docs/write-a-backend.md.

State is in one database file, in the temporary directory or where `directory` says. SQLite's
write-ahead log gives each reader a view of one moment, which is all that a snapshot needs.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.backends import (
    BackendCapabilities,
    ByteEntry,
    ByteStore,
    ByteTable,
    ByteTableStore,
    FrozenBytes,
    KeyGroupRange,
    StateBackend,
    TableStore,
)
from holdfast.storage import Unavailable


@dataclass(frozen=True)
class SqliteStateBackend(StateBackend):
    """Keeps state in SQLite files below `directory`; None: where temporary files are."""

    directory: str | None = None

    @property
    def capabilities(self) -> BackendCapabilities:
        return BackendCapabilities(keeps_files=True)

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        try:
            store = SqliteStore(self.directory)
        except (OSError, sqlite3.Error) as error:
            raise Unavailable(
                "a database for state cannot be made",
                where=f"operator {uid!r}",
                expected="a directory that can be written to",
                found=f"{self.directory or tempfile.gettempdir()}: {error}",
            ) from error
        return ByteTableStore(store, key_groups, max_parallelism)


class SqliteStore(ByteStore):
    """Tables in a database that is this object's own."""

    def __init__(self, directory: str | None) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="state-", dir=directory)
        self._path = Path(self._directory.name) / "state.db"
        self._connection = self._connect()
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = OFF")  # a crash may lose it all
        self._connection.execute("BEGIN")

    def table(self, name: str) -> ByteTable:
        quoted = _quoted(name)
        self._connection.execute(
            f"CREATE TABLE IF NOT EXISTS {quoted} (k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID"
        )
        return SqliteTable(self._connection, quoted)

    def drop(self, name: str) -> None:
        self._connection.execute(f"DROP TABLE IF EXISTS {_quoted(name)}")

    def freeze(self) -> FrozenBytes:
        self._connection.execute("COMMIT")
        frozen = FrozenSqlite(self._connect())
        self._connection.execute("BEGIN")
        return frozen

    def close(self) -> None:
        self._connection.close()
        self._directory.cleanup()

    def _connect(self) -> sqlite3.Connection:
        # Python's own check of threads is off: a snapshot is read by another one than began it.
        return sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)


class SqliteTable(ByteTable):
    """One table of two columns."""

    def __init__(self, connection: sqlite3.Connection, quoted: str) -> None:
        self._connection = connection
        self._quoted = quoted

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        query = f"SELECT v FROM {self._quoted} WHERE k = ?"
        found = (self._connection.execute(query, (key,)).fetchone() for key in keys)
        return [None if row is None else row[0] for row in found]

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        put = f"INSERT OR REPLACE INTO {self._quoted} VALUES (?, ?)"
        self._connection.executemany(put, zip(keys, values, strict=True))

    def remove_many(self, keys: Sequence[bytes]) -> None:
        remove = f"DELETE FROM {self._quoted} WHERE k = ?"
        self._connection.executemany(remove, [(key,) for key in keys])

    def remove_range(self, first: bytes, end: bytes) -> None:
        remove = f"DELETE FROM {self._quoted} WHERE k >= ? AND k < ?"
        self._connection.execute(remove, (first, end))

    def page(self, first: bytes, end: bytes | None, limit: int) -> Sequence[ByteEntry]:
        return _page(self._connection, self._quoted, first, end, limit)


class FrozenSqlite(FrozenBytes):
    """A connection that sees the moment of its first read."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()

    def page(self, table: str, first: bytes, end: bytes | None, limit: int) -> Sequence[ByteEntry]:
        return _page(self._connection, _quoted(table), first, end, limit)

    def release(self) -> None:
        self._connection.close()


def _page(
    connection: sqlite3.Connection, quoted: str, first: bytes, end: bytes | None, limit: int
) -> list[ByteEntry]:
    if end is None:
        query = f"SELECT k, v FROM {quoted} WHERE k >= ? ORDER BY k LIMIT ?"
        return connection.execute(query, (first, limit)).fetchall()
    query = f"SELECT k, v FROM {quoted} WHERE k >= ? AND k < ? ORDER BY k LIMIT ?"
    return connection.execute(query, (first, end, limit)).fetchall()


def _quoted(name: str) -> str:
    """The name of a table, also where it has odd characters. SQLite folds the case of A to Z."""
    return '"' + name.encode().hex() + '"'
