"""The options of RocksDB: each by its own name, and predefined sets for kinds of disks.

Options are written to an `OPTIONS` file, which RocksDB reads itself. So every option that it has
can be set, with its own names and values, and its own errors are reported.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from rocksdict import Cache, Options, Rdict, WriteOptions

from holdfast.backends.rocksdb.memory import SlotMemory
from holdfast.backends.working_directory import WorkingDirectory

__all__ = [
    "PREDEFINED",
    "RocksOptions",
    "known_options",
    "listed_options",
    "load_options",
    "option_lines",
    "option_text",
    "rocks_options",
    "without_log",
]

_MEBIBYTE = 1024 * 1024

_UNIVERSAL = "kCompactionStyleUniversal"
_DATABASE, _TABLES, _BLOCKS = "DBOptions", "CFOptions", "TableOptions/BlockBasedTable"

_ALWAYS: dict[str, Any] = {
    "keep_log_file_num": 1,
    "max_log_file_size": _MEBIBYTE,
    "stats_dump_period_sec": 0,
    "avoid_flush_during_shutdown": True,
    "compaction_style": _UNIVERSAL,
    "compaction_options_universal": {"max_size_amplification_percent": 50},
    "compression": "kLZ4Compression",
    "write_buffer_size": 8 * _MEBIBYTE,
    "memtable_max_range_deletions": 200,
    "filter_policy": "bloomfilter:10:false",
    "cache_index_and_filter_blocks": True,
    "pin_l0_filter_and_index_blocks_in_cache": True,
    "format_version": 6,
}
"""Values that apply unless an option is set.

Universal compaction rewrites the least for each byte that is written, so the least is uploaded
again. Write buffers are small enough to be flushed while a barrier waits. Indexes and filters count
as memory of the cache. Write buffers are not flushed at the end, since nothing is kept.
"""

PREDEFINED: dict[str, dict[str, Any]] = {
    "default": {},
    "spinning-disk": {
        "max_background_jobs": 4,
        "max_open_files": -1,
        "compaction_style": "kCompactionStyleLevel",
        "level_compaction_dynamic_level_bytes": True,
        "target_file_size_base": 256 * _MEBIBYTE,
        "max_bytes_for_level_base": 1024 * _MEBIBYTE,
        "compaction_readahead_size": 8 * _MEBIBYTE,
        "optimize_filters_for_hits": True,
    },
    "flash-ssd": {
        "max_background_jobs": 4,
        "max_open_files": -1,
        "compaction_style": "kCompactionStyleLevel",
        "level_compaction_dynamic_level_bytes": True,
        "avoid_unnecessary_blocking_io": True,
    },
}
"""Settings that fit a kind of disk, by its name."""


@dataclass(frozen=True, slots=True)
class RocksOptions:
    """The options of a database, and of each of its families."""

    database: Options
    family: Options
    compacts_all: bool
    """A compaction of a range also rewrites files outside of the range."""


def rocks_options(
    predefined: str,
    named: Mapping[str, Any],
    memory: SlotMemory,
    folder: Path,
    *,
    has_statistics: bool = False,
) -> RocksOptions:
    """The options of a new database in this memory; `named` has been checked.

    They are read from a temporary file in `folder`. Databases that are opened with one
    `RocksOptions` share their statistics.
    """
    chosen = _merged(_ALWAYS, PREDEFINED[predefined], named)
    database, families = load_options(chosen, memory.cache, folder)
    for options in (database, families):
        options.set_write_buffer_manager(memory.write_buffers)
        options.set_arena_block_size(memory.piece_bytes)
        options.create_missing_column_families(True)
    if has_statistics:
        database.enable_statistics()
    return RocksOptions(database, families, chosen["compaction_style"] == _UNIVERSAL)


def without_log() -> WriteOptions:
    """Options of all writes: there is no write-ahead log."""
    options = WriteOptions()
    vars(WriteOptions)["disable_wal"].__set__(options, True)  # the stubs take it for a method
    options.memtable_insert_hint_per_batch = True  # batches are sorted
    options.ignore_missing_column_families = True  # a write to a dropped one would fail all later
    return options


def load_options(chosen: Mapping[str, Any], blocks: Cache, folder: Path) -> tuple[Options, Options]:
    """Options of a database and of a family, read by RocksDB itself."""
    sections: dict[str, list[str]] = {_DATABASE: [], _TABLES: [], _BLOCKS: []}
    for name, value in chosen.items():
        sections[known_options()[name][0]].append(f"  {name}={option_text(value)}")
    lines = [*_version()]
    for section, options in sections.items():
        lines += [f"[{section}]" if section == _DATABASE else f'[{section} "default"]', *options]
    path = folder / "options"
    path.mkdir(exist_ok=True)
    (path / "OPTIONS-000001").write_text("\n".join(lines) + "\n")
    (path / "CURRENT").write_text("MANIFEST-000001\n")
    (path / "rocksdict-config.json").write_text('{"raw_mode":true,"prefix_extractors":{}}')
    database, families = Options.load_latest(str(path), cache=blocks)
    shutil.rmtree(path)
    return database, families["default"]


def _merged(*sets: Mapping[str, Any]) -> dict[str, Any]:
    """Options of all sets; a later set wins, also for each entry of a dict of options."""
    merged: dict[str, Any] = {}
    for name, value in chain.from_iterable(each.items() for each in sets):
        there = merged.get(name)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            merged[name] = {**there, **value}
        else:
            merged[name] = value
    return merged


def option_text(value: Any) -> str:
    """A value as RocksDB writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + "".join(f"{name}={option_text(each)};" for name, each in value.items()) + "}"
    return str(value)


@cache
def known_options() -> dict[str, tuple[str, str]]:
    """Every option that this RocksDB has: its section, and its default."""
    unsaid = {"compression_per_level": (_TABLES, "kNoCompression:kLZ4Compression")}
    return {**unsaid, **listed_options(_written(), "default")}


def listed_options(lines: Sequence[str], family: str) -> dict[str, tuple[str, str]]:
    """The options of a database and of one of its families: section and value."""
    found: dict[str, tuple[str, str]] = {}
    section = ""
    for line in lines:
        if line.startswith("["):
            section, _, of = line.strip("[]").partition(" ")
            section = section if of in ("", f'"{family}"') else ""
        elif "=" in line and section in (_DATABASE, _TABLES, _BLOCKS):
            name, _, value = line.partition("=")
            found[name] = (section, value)
    return found


def _version() -> list[str]:
    lines = _written()
    first = lines.index("[Version]")
    return lines[first : lines.index(f"[{_DATABASE}]")]


@cache
def _written() -> list[str]:
    """The lines of the `OPTIONS` file of a new database."""
    with closing(WorkingDirectory(kind="options")) as directory:
        Rdict(str(directory.path), Options(raw_mode=True)).close()
        return option_lines(directory.path)


def option_lines(database: Path) -> list[str]:
    """The lines of the `OPTIONS` file of a database."""
    text = max(database.glob("OPTIONS-*")).read_text()
    return [line.strip() for line in text.splitlines() if not line.startswith("#")]
