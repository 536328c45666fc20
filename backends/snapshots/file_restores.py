"""Restoring files of a store: download them, let the store open them, and claim their tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from holdfast.backends.blocks.block import Block
from holdfast.backends.snapshots.file_uploads import handle_name
from holdfast.backends.snapshots.neutral import TableInfo
from holdfast.backends.snapshots.raw_tables import is_known_kind, raw_spec
from holdfast.backends.snapshots.restores import FilesToRestore, PendingTable
from holdfast.backends.snapshots.transfers import fetch_file, side_by_side
from holdfast.backends.tables.contract import TableFiles, TableSpec, TableStore
from holdfast.backends.tables.files import KeptTable, SourceFiles
from holdfast.backends.values.type_descriptions import Schema
from holdfast.storage import Corrupt, Handle, Invalid, StateFolder
from holdfast.storage.names import is_legal

__all__ = ["FilesRestored", "PendingInStore", "restore_files", "take_in"]


@dataclass(slots=True)
class PendingInStore(PendingTable):
    """A table that the store already has, under a name that no state can have."""

    info: TableInfo
    spec: TableSpec
    """Its spec with raw values."""
    store: TableStore

    def blocks(self) -> Iterator[Block]:
        self.store.table(self.spec)
        yield from self.store.walk(self.spec)

    def claim(self, spec: TableSpec) -> bool:
        files = self.store.files
        return files is not None and files.claim(self.spec.name, spec)

    def loaded(self) -> None:
        self.store.drop_table(self.spec)


@dataclass(slots=True)
class FilesRestored:
    """What was restored from files."""

    tables: dict[str, list[PendingInStore]] = field(default_factory=dict)
    """By the name of the state."""
    handles: Mapping[str, Handle] = field(default_factory=dict)
    """Handles of the files that the store continues to use, by file."""


def restore_files(
    snapshots: Sequence[FilesToRestore], store: TableStore, storage: StateFolder
) -> FilesRestored:
    """Make the tables of these snapshots in a store that has no tables yet.

    Raises:
        Invalid: they are files of another kind of store.
        Unavailable: there is no room on this machine.
    """
    restored = FilesRestored()
    if not snapshots:
        return restored
    files = _able(store, snapshots)
    names = _Names()
    sources: list[SourceFiles] = []
    tasks = []
    for each in snapshots:
        directory = files.directory()
        for file, handle in _files_of(each).items():
            tasks.append(partial(fetch_file, storage, handle, directory / file))
        sources.append(SourceFiles(directory, each.key_groups, _tables(each, names)))
    side_by_side(tasks)
    taken_over = files.restore(sources)
    if taken_over is not None:
        restored.handles = _files_of(snapshots[sources.index(taken_over)])
    for info, _, name in names.given:
        spec = raw_spec(name, info, _keys(snapshots))
        store.table(spec)  # at once, since it raises if the layout of keys is unknown
        pending = PendingInStore(info, spec, store)
        restored.tables.setdefault(info.name, []).append(pending)
    return restored


def take_in(
    pending: PendingTable, store: TableStore, keys: Schema | None, number: int
) -> PendingInStore | None:
    """Copy a pending table into the store, with raw values.

    `number` distinguishes tables of one name. None if the store does not keep files, or if the
    table is of an unknown kind. A failure leaves nothing behind.

    Raises:
        Unavailable: there is no room on this machine.
    """
    info = msgspec.structs.replace(pending.info, segments=())
    if store.files is None or keys is None or not is_known_kind(info):
        return None
    spec = raw_spec(f"_taken-in/{number}/{info.name}", info, keys)
    try:
        table = store.table(spec)
        for block in pending.blocks():
            table.load(block)
    except BaseException:
        store.drop_table(spec)
        raise
    return PendingInStore(info, spec, store)


class _Names:
    """Names of restored tables: the same name for tables of the same types and layout."""

    def __init__(self) -> None:
        self.given: list[tuple[TableInfo, str, str]] = []
        """Description, layout and name of each."""

    def of(self, info: TableInfo, layout: str, taken: Collection[str]) -> str:
        """The name for a table of a snapshot, other tables of which have the names `taken`."""
        for *alike, name in self.given:
            if alike == [info, layout] and name not in taken:
                return name
        name = f"_restored/{len(self.given)}/{info.name}"
        self.given.append((info, layout, name))
        return name


def _able(store: TableStore, snapshots: Sequence[FilesToRestore]) -> TableFiles:
    """`TableFiles` of the store, which can open these files."""
    files = store.files
    known = None if files is None else files.format
    for each in snapshots:
        if files is None or each.attributes.format != known:
            raise Invalid(
                "a snapshot is files that this version of their state backend cannot open",
                where=f"operator {each.attributes.uid!r}",
                expected=f"files of {known}" if known else "a backend that keeps files",
                found=f"files of {each.attributes.format}",
                fix="Restore it with the version of the backend that has written it; a canonical "
                "savepoint of it then can be restored with any",
            )
    assert files is not None
    return files


def _tables(each: FilesToRestore, names: _Names) -> dict[str, KeptTable]:
    """How each table is kept, by its new name."""
    listed = each.attributes.files
    tables: dict[str, KeptTable] = {}
    for one in listed:
        tables[names.of(one.info, one.kept.layout, tables)] = one.kept
    if len({one.kept.place for one in listed}) < len(listed):
        raise Corrupt(
            "a snapshot has two tables in one place",
            where=f"operator {each.attributes.uid!r}",
            expected="each in a place of its own",
            found=", ".join(f"{one.info.name!r} in {one.kept.place!r}" for one in listed),
            fix="Restore another checkpoint",
        )
    return tables


def _keys(snapshots: Sequence[FilesToRestore]) -> Schema | None:
    schemas = (each.attributes.keys for each in snapshots)
    return next((schema for schema in schemas if schema is not None), None)


def _files_of(each: FilesToRestore) -> dict[str, Handle]:
    """The handles of the files, by file."""
    start = handle_name("")
    found = {
        name.removeprefix(start): handle
        for name, handle in each.snapshot.handles.items()
        if name.startswith(start)
    }
    for file in found:
        if "/" in file or not is_legal(file):
            raise Corrupt(
                "a snapshot has a file that is no file's name",
                where=f"operator {each.attributes.uid!r}",
                expected="letters and digits, without folders",
                found=repr(file[:80]),
                fix="Restore another checkpoint",
            )
    return found
