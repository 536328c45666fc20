"""A second way for tables to leave a store and to come back: as files of the store's own format.

A store that keeps its tables in files can use those files as a snapshot. A file that a later
snapshot contains too is not written again, and a restore only puts the files in place. This is an
optional power, in two contracts: `ByteFiles` of a store of bytes, and `contract.TableFiles` of a
store of tables. `ByteTableStore` implements the second over the first.

Files hold whole tables, of some key groups. A restored table that the job has not declared yet has
a name that no state can have, until `TableFiles.claim` renames it.

So a table that was written as it is declared now is claimed, and not loaded: it is given the
state's name. A snapshot has the *place* of a table in its files, beside that the layout of its keys
(timers may be by time or by key), and the number from which elements of lists go on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from holdfast.backends.keys.groups import KeyGroupRange

__all__ = [
    "ByteFiles",
    "FrozenFiles",
    "KeptTable",
    "SourceFiles",
    "StoreFile",
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
