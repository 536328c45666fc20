"""The options of RocksDB: any of them by its own name, and sets for kinds of disks.

Options are written as RocksDB keeps them, in an `OPTIONS` file, and read by it: so its names are
the names, its words the words, and none is missing. What it would take without a word (a fraction
for a whole number, a number below zero, a filter that there is not) is refused here.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from rocksdict import Cache, Options, Rdict

from holdfast.backends.rocksdb_memory import SlotMemory
from holdfast.storage import Invalid

__all__ = ["PREDEFINED", "RocksOptions", "check_options", "rocks_options"]

_MEBIBYTE = 1024 * 1024

_DATABASE, _TABLES, _BLOCKS = "DBOptions", "CFOptions", "TableOptions/BlockBasedTable"

_ALWAYS: dict[str, Any] = {
    "keep_log_file_num": 1,
    "max_log_file_size": _MEBIBYTE,
    "stats_dump_period_sec": 0,
    "compaction_style": "kCompactionStyleUniversal",
    "compaction_options_universal": {"max_size_amplification_percent": 50},
    "compression": "kLZ4Compression",
    "write_buffer_size": 16 * _MEBIBYTE,
    "memtable_max_range_deletions": 200,
    "filter_policy": "bloomfilter:10:false",
    "cache_index_and_filter_blocks": True,
    "pin_l0_filter_and_index_blocks_in_cache": True,
    "format_version": 6,
}
"""What holds unless an option says otherwise.

Universal compaction rewrites the least for each byte that is written, so least is uploaded again.
Write buffers are small enough to be flushed while a barrier waits. Indexes and filters count as
memory of the cache.
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

_OURS = frozenset(
    {
        "allow_ingest_behind",
        "arena_block_size",
        "block_based_table_factory",
        "block_cache",
        "comparator",
        "compaction_filter",
        "compaction_filter_factory",
        "create_if_missing",
        "create_missing_column_families",
        "db_log_dir",
        "db_paths",
        "error_if_exists",
        "inplace_update_support",
        "merge_operator",
        "no_block_cache",
        "prefix_extractor",
        "table_factory",
        "wal_compression",
        "wal_dir",
        "wal_filter",
        "wal_recovery_mode",
        "WAL_size_limit_MB",
        "WAL_ttl_seconds",
        "write_buffer_manager",
    }
)
"""What the backend itself decides, or what makes no sense without a write-ahead log."""

_FILTER = re.compile(
    r"nullptr|bloomfilter:\d+(\.\d+)?(:(true|false))?|ribbonfilter:\d+(\.\d+)?(:\d+)?"
)


_FILTER_WORDS = "nullptr, bloomfilter:<bits>:<true or false> or ribbonfilter:<bits>"


@dataclass(frozen=True, slots=True)
class RocksOptions:
    """Those of a database, and those of each of its families."""

    database: Options
    family: Options


def rocks_options(
    predefined: str, named: Mapping[str, Any], memory: SlotMemory, *, has_statistics: bool = False
) -> RocksOptions:
    """The options of a new database in this memory; `named` has passed `check_options`.

    Databases with the same options have statistics together.
    """
    chosen = {**_ALWAYS, **PREDEFINED[predefined], **named}
    database, families = _loaded(chosen, memory.cache)
    for options in (database, families):
        options.set_write_buffer_manager(memory.write_buffers)
        options.set_arena_block_size(memory.piece_bytes)
        options.create_missing_column_families(True)
    if has_statistics:
        database.enable_statistics()
    return RocksOptions(database, families)


def check_options(named: Mapping[str, Any]) -> None:
    """Refuse what RocksDB would not take.

    Raises:
        Invalid: an option is not known, is not for users to set, or has a value of a wrong type.
    """
    for name, value in named.items():
        _check(name, value)
        try:
            _loaded({name: value}, Cache(_MEBIBYTE))
        except Exception as error:
            raise _wrong(
                name, value, f"a value as RocksDB has it, such as {_known()[name][1]}"
            ) from error


def _check(name: str, value: Any) -> None:
    if name in _OURS:
        raise Invalid(
            f"the option {name!r} of RocksDB is the backend's own",
            found=f"{name}={value!r}",
            fix="Leave it out; memory is set by `memory`, places by `directories`",
        )
    known = _known()
    if name not in known:
        close = get_close_matches(name, known)
        raise Invalid(
            f"the option {name!r} of RocksDB is not known",
            expected=f"one of {', '.join(close or sorted(known.keys() - _OURS))}",
        )
    _, default = known[name]
    if default in ("true", "false"):
        expected, fits = "True or False", type(value) is bool
    elif re.fullmatch(r"-?\d+", default):
        least = 0 if int(default) >= 0 else -1
        expected, fits = f"a whole number, {least} or more", type(value) is int and value >= least
    elif re.fullmatch(r"-?\d+\.\d+", default):
        expected, fits = "a number, 0 or more", type(value) in (int, float) and value >= 0
    elif default.startswith("{"):
        expected, fits = "a dict of options", isinstance(value, Mapping)
    else:
        expected, fits = f"a text, such as {default or 'RocksDB has it'}", isinstance(value, str)
    if fits and name == "filter_policy":
        expected, fits = _FILTER_WORDS, bool(_FILTER.fullmatch(value))
    if not fits:
        raise _wrong(name, value, expected)


def _wrong(name: str, value: Any, expected: str) -> Invalid:
    return Invalid(
        f"the option {name!r} of RocksDB has a value of a wrong type",
        expected=expected,
        found=repr(value),
    )


def _loaded(chosen: Mapping[str, Any], blocks: Cache) -> tuple[Options, Options]:
    """Options of a database and of a family, read by RocksDB itself."""
    sections: dict[str, list[str]] = {_DATABASE: [], _TABLES: [], _BLOCKS: []}
    for name, value in chosen.items():
        sections[_known()[name][0]].append(f"  {name}={_text(value)}")
    lines = [*_version()]
    for section, options in sections.items():
        lines += [f"[{section}]" if section == _DATABASE else f'[{section} "default"]', *options]
    with tempfile.TemporaryDirectory(prefix="holdfast-options-") as folder:
        path = Path(folder)
        (path / "OPTIONS-000001").write_text("\n".join(lines) + "\n")
        (path / "CURRENT").write_text("MANIFEST-000001\n")
        (path / "rocksdict-config.json").write_text('{"raw_mode":true,"prefix_extractors":{}}')
        database, families = Options.load_latest(folder, cache=blocks)
        return database, families["default"]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + "".join(f"{name}={_text(each)};" for name, each in value.items()) + "}"
    return str(value)


@cache
def _known() -> dict[str, tuple[str, str]]:
    """Every option that this RocksDB has: its section, and its default."""
    found = {"compression_per_level": (_TABLES, "kNoCompression:kLZ4Compression")}  # not said
    section = ""
    for line in _written():
        if line.startswith("["):
            section = line.strip("[]").partition(' "')[0]
        elif "=" in line and section in (_DATABASE, _TABLES, _BLOCKS):
            name, _, default = line.partition("=")
            found[name] = (section, default)
    return found


def _version() -> list[str]:
    lines = _written()
    first = lines.index("[Version]")
    return lines[first : lines.index(f"[{_DATABASE}]")]


@cache
def _written() -> list[str]:
    """The options of a new database, as RocksDB keeps them."""
    with tempfile.TemporaryDirectory(prefix="holdfast-options-") as folder:
        Rdict(folder, Options(raw_mode=True)).close()
        text = max(Path(folder).glob("OPTIONS-*")).read_text()
    return [line.strip() for line in text.splitlines() if not line.startswith("#")]
