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

__all__ = ["ByteFiles", "FrozenFiles", "KeptTable", "SourceFiles", "StoreFile", "TablesInFiles"]


@dataclass(frozen=True, slots=True)
class StoreFile:
    """One file of a snapshot; `name` is within the snapshot."""

    name: str
    path: Path
    size_bytes: int
    is_lasting: bool
    """A file of this name in a later snapshot of this store is the same file, unchanged."""


class KeptTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a table is kept in files."""

    place: str
    """Where the table is in the files, in the store's own words."""
    layout: str
    """How keys are laid out; files of one layout cannot be opened as another."""
    next_number: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    """The number of the next element that is appended to a list."""


class FrozenFiles(ABC):
    """Files that together hold all tables as they were at one moment.

    One background thread reads them while the owner goes on; they do not change. Several may be
    held at once, each read by a thread of its own.
    """

    files: Sequence[StoreFile]
    places: Mapping[str, str]
    """The place of each table, by its name."""

    @abstractmethod
    def release(self) -> None:
        """Release the files; called exactly once, before the store's `close` returns."""


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files of one snapshot, in a directory from `directory`, and what they hold.

    `tables` has the new name of each table, and how it is kept. Tables of one name in several
    sources become one table: they have the same layout, and no key group in common.
    """

    directory: Path
    key_groups: KeyGroupRange
    tables: Mapping[str, KeptTable]


class ByteFiles(ABC):
    """The files of a store of bytes. Called by the thread that owns the backend."""

    format: str
    """The format of the files, `<backend>/<version>`: a restore needs that backend."""
    is_preferred: bool
    """Whether snapshots are files unless another form is asked for."""

    @abstractmethod
    def freeze(self) -> FrozenFiles:
        """All tables as they are now. Processing waits for this call, so it must be short."""

    @abstractmethod
    def directory(self) -> Path:
        """A new, empty directory to download files to; `restore` takes it over."""

    @abstractmethod
    def restore(
        self, sources: Sequence[SourceFiles], wanted: KeyGroupRange, prefixes: Sequence[bytes]
    ) -> SourceFiles | None:
        """Make the tables of the sources, with their rows of the wanted key groups.

        Called at most once, on a store without tables. `prefixes` has the prefix of the keys of
        each key group, in ascending order. Answers the source whose lasting files this store now
        uses under the same names; None if there is none.

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
