"""The RocksDB backend: state on this machine's disks, as large as they are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import Any, Self

from holdfast.backends.byte_tables.store import ByteTableStore
from holdfast.backends.byte_tables.timers import TimerPages
from holdfast.backends.interface import BackendCapabilities, StateBackend
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.rocksdb.database import translated_error
from holdfast.backends.rocksdb.memory import SlotMemory, check_parts, memory_bytes
from holdfast.backends.rocksdb.option_checks import check_options
from holdfast.backends.rocksdb.options import PREDEFINED, rocks_options
from holdfast.backends.rocksdb.store import RocksStore
from holdfast.backends.tables.contract import TableStore
from holdfast.backends.working_directory import WorkingDirectory
from holdfast.storage import Invalid
from holdfast.storage.options.checks import check_switch

__all__ = ["RocksDBStateBackend"]

_TIMERS = {"rocksdb": TimerPages(), "heap": None}


@dataclass(frozen=True)
class RocksDBStateBackend(StateBackend):
    """Keeps state in RocksDB.

    memory: what caches and write buffers of one slot may take together, for all its operators:
        a number of bytes, or text such as `512m` or `2g`. Writers wait rather than exceed it.
    write_buffer_ratio: which part of it is for write buffers.
    predefined: settings for a kind of disk: `default`, `spinning-disk` or `flash-ssd`.
    options: any option of RocksDB by its name, such as `{"compression": "kZSTD"}`, with RocksDB's
        own values; they override those of `predefined`.
    incremental: snapshots are the database's files, of which only new ones are written; otherwise
        all entries, in the form that any backend can be restored from.
    statistics: RocksDB keeps statistics, so that metrics show hits and misses of its cache. A
        lookup of one key takes up to a tenth longer; one of many keys, or a write, does not.
    timers: with `rocksdb` timers are ordered keys of the database, of which a few are in memory;
        with `heap` an index of all of them is in memory, as with the hashmap backend.
    directories: absolute paths, where databases are kept, on one disk or several; by default where
        temporary files are. Only what a live process uses survives there.
    """

    memory: int | str = "256m"
    write_buffer_ratio: float = 0.5
    predefined: str = "default"
    options: Mapping[str, Any] = field(default_factory=dict)
    incremental: bool = True
    statistics: bool = True
    timers: str = "rocksdb"
    directories: Sequence[str | PathLike[str]] = ()

    def __post_init__(self) -> None:
        check_parts(memory_bytes(self.memory), self.write_buffer_ratio)
        if self.predefined not in list(PREDEFINED):
            raise Invalid(
                f"there are no predefined options {self.predefined!r} of RocksDB",
                expected=" or ".join(map(repr, PREDEFINED)),
            )
        for name in ("incremental", "statistics"):
            check_switch(getattr(self, name), name=name)
        if self.timers not in list(_TIMERS):
            raise Invalid(
                f"the rocksdb backend cannot keep timers in {self.timers!r}",
                expected=" or ".join(map(repr, _TIMERS)),
            )
        _check_directories(self.directories)
        check_options(self.predefined, self.options)

    @property
    def capabilities(self) -> BackendCapabilities:
        return BackendCapabilities(keeps_files=True, own_snapshots=self.incremental)

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        directory = WorkingDirectory(self.directories)
        try:
            store = RocksStore(
                directory,
                rocks_options(
                    self.predefined,
                    self.options,
                    self._slot_memory,
                    directory.path,
                    has_statistics=self.statistics,
                ),
                self._slot_memory,
                is_incremental=self.incremental,
            )
        except BaseException as error:
            directory.close()
            if isinstance(error, OSError):
                raise translated_error(error, f"directory {directory.path}") from error
            raise
        return ByteTableStore(store, key_groups, max_parallelism, timers=_TIMERS[self.timers])

    def metrics(self) -> Mapping[str, float]:
        return self._slot_memory.metrics()

    def for_reading(self) -> Self:
        return replace(self, memory="64m", statistics=False)

    @cached_property
    def _slot_memory(self) -> SlotMemory:
        """The memory of this process; not pickled, so each process that unpickles makes its own."""
        return SlotMemory(memory_bytes(self.memory), self.write_buffer_ratio)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def _check_directories(directories: Any) -> None:
    if isinstance(directories, str):
        raise Invalid(
            "directories is a text",
            expected="a list of paths",
            found=repr(directories),
            fix=f"Pass [{directories!r}]",
        )
    if not isinstance(directories, Sequence) or not all(map(_is_absolute, directories)):
        raise Invalid(
            "directories are no places that every slot finds",
            expected="a list of absolute paths; none is where temporary files are",
            found=repr(directories),
            fix="A slot may run on another machine, and in another directory, than the driver",
        )


def _is_absolute(path: Any) -> bool:
    return isinstance(path, str | PathLike) and os.path.isabs(path) and "\0" not in str(path)
