"""`TableFiles` of a store of byte tables, over the `ByteFiles` of its store of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.tables.contract import TableFiles, TableSpec
from holdfast.backends.tables.files import ByteFiles, KeptTable, SourceFiles, TablesInFiles

__all__ = ["ByteTableFiles", "KeepsTables"]


class KeepsTables(Protocol):
    """The part of the store of tables that its files need."""

    def layout_of(self, spec: TableSpec) -> str:
        """The layout in which a new table of this spec is kept."""
        ...

    def kept(self, name: str) -> KeptTable | None:
        """How the open table of this name is kept, without its place; None if it is not open."""
        ...

    def write_out(self) -> None:
        """Write everything that the tables buffer into the store of bytes."""
        ...


class ByteTableFiles(TableFiles):
    """Remembers how each restored table is kept, until it is opened."""

    def __init__(
        self,
        tables: KeepsTables,
        files: ByteFiles,
        key_groups: KeyGroupRange,
        prefixes: Sequence[bytes],
    ) -> None:
        self._tables = tables
        self._files = files
        self.format, self.is_preferred = files.format, files.is_preferred
        self._key_groups = key_groups
        self._prefixes = prefixes
        self._restored: dict[str, KeptTable] = {}
        """By the names that tables have now."""

    def freeze(self) -> TablesInFiles:
        self._tables.write_out()
        frozen = self._files.freeze()
        return TablesInFiles(
            frozen, {name: self._kept(name, place) for name, place in frozen.places.items()}
        )

    def directory(self) -> Path:
        return self._files.directory()

    def restore(self, sources: Sequence[SourceFiles]) -> SourceFiles | None:
        taken_over = self._files.restore(sources, self._key_groups, self._prefixes)
        for source in sources:
            for name, kept in source.tables.items():
                before = self._restored.get(name, kept)
                number = max(before.next_number, kept.next_number)
                self._restored[name] = msgspec.structs.replace(kept, next_number=number)
        return taken_over

    def claim(self, name: str, spec: TableSpec) -> bool:
        kept = self._tables.kept(name) or self._restored[name]
        if kept.layout != self._tables.layout_of(spec):
            return False
        self._files.rename(name, spec.name)
        self._restored.pop(name, None)
        self._restored[spec.name] = kept
        return True

    def layout(self, name: str) -> str | None:
        """The layout in which the restored table of this name is kept; None if there is none."""
        kept = self._restored.get(name)
        return None if kept is None else kept.layout

    def next_number(self, name: str) -> int:
        """The number of the next element in this table of lists."""
        kept = self._restored.get(name)
        return 0 if kept is None else kept.next_number

    def forget(self, name: str) -> None:
        """The table is gone."""
        self._restored.pop(name, None)

    def _kept(self, name: str, place: str) -> KeptTable:
        kept = self._tables.kept(name) or self._restored[name]
        return msgspec.structs.replace(kept, place=place)
