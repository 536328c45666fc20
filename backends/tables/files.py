"""A second way for tables to leave a store and to come back: as files of the store's own format.

A store that keeps its tables in files may hand those out as a snapshot. Files that later snapshots
have too need not be written again, and who restores need only put them in place. This is an
optional power, in two contracts: `ByteFiles` of a store of bytes, and `TableFiles` of a store of
tables, which the house makes of the first.

Files hold whole tables, of some key groups. A restored table that nobody has asked for yet has a
name that no state has, until it is claimed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.backends.keys.groups import KeyGroupRange

if TYPE_CHECKING:
    from holdfast.backends.tables.contract import TableSpec

__all__ = [
    "ByteFiles",
    "FrozenFiles",
    "KeptTable",
    "SourceFiles",
    "StoreFile",
    "TableFiles",
    "TablesInFiles",
]


@dataclass(frozen=True, slots=True)
class StoreFile:
    """One file of a snapshot; `name` is within the snapshot."""

    name: str
    path: Path
    size_bytes: int
    is_lasting: bool
    """Whatever later snapshot of this store has a file of this name has the same file."""


class KeptTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a table is kept in files."""

    place: str
    """Where it is in them: a word of the store's own."""
    layout: str
    """How keys are laid out; files in one layout cannot be opened as another."""
    next_number: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    """The number to go on from for elements of lists."""


class FrozenFiles(ABC):
    """Files that are together what all tables were at one moment.

    One background thread reads them, while the owner goes on; they do not change. There may be
    several at once, each with a thread.
    """

    files: Sequence[StoreFile]
    places: Mapping[str, str]
    """The place of each table, by its name."""

    @abstractmethod
    def release(self) -> None:
        """Let go of the files; called exactly once, and before the store's `close` has ended."""


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files of one snapshot, in a directory from `directory`, and what they hold.

    `tables` has the names that they get, and how each is kept. Tables of one name in several
    sources become one: they are kept in the same layout, and have no key group in common.
    """

    directory: Path
    key_groups: KeyGroupRange
    tables: Mapping[str, KeptTable]


class ByteFiles(ABC):
    """The files of a store of bytes. Called by the thread that owns the backend."""

    format: str
    """Names the format of the files, for whoever restores: `<backend>/<version>`."""
    is_preferred: bool
    """Whether snapshots are files, unless somebody asks for entries."""

    @abstractmethod
    def freeze(self) -> FrozenFiles:
        """All tables as they are now; processing waits for this call, so it has to be short."""

    @abstractmethod
    def directory(self) -> Path:
        """A new, empty directory to bring files to; `restore` takes it over."""

    @abstractmethod
    def restore(
        self, sources: Sequence[SourceFiles], wanted: KeyGroupRange, prefixes: Sequence[bytes]
    ) -> SourceFiles | None:
        """Make the tables of the sources, with what they have of the wanted key groups.

        Called at most once, on a store without tables. `prefixes` has what the keys of each key
        group begin with, in ascending order. Answers the source whose lasting files are files of
        this store now, under the same names; None if there is none.

        Raises:
            Corrupt: files are missing or damaged, or are no such tables.
            Unavailable: the machine lacks what it takes.
        """

    @abstractmethod
    def rename(self, name: str, new_name: str) -> None:
        """Give a table another name, which no other one has."""


@dataclass(frozen=True, slots=True)
class TablesInFiles:
    """All tables of a store at one moment: the files, and how each table is kept in them."""

    frozen: FrozenFiles
    tables: Mapping[str, KeptTable]


class TableFiles(ABC):
    """The files of a store of tables. Called by the thread that owns the backend."""

    @property
    @abstractmethod
    def format(self) -> str:
        """As `ByteFiles.format`."""

    @property
    @abstractmethod
    def is_preferred(self) -> bool:
        """As `ByteFiles.is_preferred`."""

    @abstractmethod
    def freeze(self) -> TablesInFiles:
        """All tables as they are now; the only part of a snapshot that processing waits for."""

    @abstractmethod
    def directory(self) -> Path:
        """As `ByteFiles.directory`."""

    @abstractmethod
    def restore(self, sources: Sequence[SourceFiles]) -> SourceFiles | None:
        """Make the tables of the sources, with what they have of this store's key groups.

        Answers and raises as `ByteFiles.restore` does. `TableStore.table` opens one by its name,
        in the layout that it is kept in.
        """

    @abstractmethod
    def claim(self, name: str, spec: TableSpec) -> bool:
        """Make the restored table `name` the one of this spec, with which it was written.

        False where that cannot be, because such a table is kept in another layout now; it must be
        read and written anew then.
        """
