"""The options of RocksDB: any of them by its own name, and sets for kinds of disks.

Options are written as RocksDB keeps them, in an `OPTIONS` file, and read by it: so its names are
the names, its words the words, and none is missing. What it would take without a word (a fraction
for a whole number, a number below zero, a filter that there is not) is refused here.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from rocksdict import Cache, Options, Rdict

from holdfast.backends.rocksdb_memory import SlotMemory
from holdfast.storage import Invalid, Unavailable

__all__ = ["PREDEFINED", "RocksOptions", "check_options", "rocks_options"]

_MEBIBYTE = 1024 * 1024

_DATABASE, _TABLES, _BLOCKS = "DBOptions", "CFOptions", "TableOptions/BlockBasedTable"

_ALWAYS: dict[str, Any] = {
    "keep_log_file_num": 1,
    "max_log_file_size": _MEBIBYTE,
    "stats_dump_period_sec": 0,
    "avoid_flush_during_shutdown": True,
    "compaction_style": "kCompactionStyleUniversal",
    "compaction_options_universal": {"max_size_amplification_percent": 50},
    "compression": "kLZ4Compression",
    "write_buffer_size": 8 * _MEBIBYTE,
    "memtable_max_range_deletions": 200,
    "filter_policy": "bloomfilter:10:false",
    "cache_index_and_filter_blocks": True,
    "pin_l0_filter_and_index_blocks_in_cache": True,
    "format_version": 6,
}
"""What holds unless an option says otherwise.

Universal compaction rewrites the least for each byte that is written, so least is uploaded again.
Write buffers are small enough to be flushed while a barrier waits. Indexes and filters count as
memory of the cache. What is in write buffers at the end is of no use.
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
        "best_efforts_recovery",
        "block_based_table_factory",
        "block_cache",
        "comparator",
        "compaction_filter",
        "compaction_filter_factory",
        "compaction_options_fifo",
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

_TRIED = "tried"
_SHORTENED = ("filter_policy",)
"""What RocksDB tells in fewer words than it is told."""

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
    predefined: str,
    named: Mapping[str, Any],
    memory: SlotMemory,
    folder: Path,
    *,
    has_statistics: bool = False,
) -> RocksOptions:
    """The options of a new database in this memory; `named` has passed `check_options`.

    They go through a file in `folder`, which need not stay.

    Databases with the same options have statistics together.
    """
    chosen = _merged(_ALWAYS, PREDEFINED[predefined], named)
    database, families = _loaded(chosen, memory.cache, folder)
    for options in (database, families):
        options.set_write_buffer_manager(memory.write_buffers)
        options.set_arena_block_size(memory.piece_bytes)
        options.create_missing_column_families(True)
    if has_statistics:
        database.enable_statistics()
    return RocksOptions(database, families)


def check_options(predefined: str, named: Mapping[str, Any]) -> None:
    """Refuse what RocksDB would not take, or would silently take for something else.

    Raises:
        Invalid: an option is not known, is not for users to set, has a value of a wrong type, or
            does not go with the others.
        Unavailable: there is no room for temporary files, in which they are tried.
    """
    if not named:
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-options-") as folder:
        for name, value in named.items():
            _check(name, value)
            expected = f"a value as RocksDB has it, such as {_known()[name][1]}"
            with _refused(
                f"the option {name!r} of RocksDB has a value of a wrong type", expected, value
            ):
                _loaded({name: value}, Cache(_MEBIBYTE), Path(folder))
        with _refused("RocksDB does not take these options", "some that go together", dict(named)):
            made = _tried(predefined, named, Path(folder))
    for name, value in named.items():
        _check_made(name, value, made.get(name))


@contextmanager
def _refused(what: str, expected: str, found: object) -> Iterator[None]:
    """What RocksDB refuses, told as that; unless there was only no room to try it."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) or "No space left" in str(error):
            raise Unavailable(
                "options of RocksDB cannot be tried",
                where=tempfile.gettempdir(),
                expected="room for a few temporary files",
                found=str(error),
                fix="Make room, or let TMPDIR name another directory",
            ) from error
        raise Invalid(what, expected=expected, found=f"{found!r} ({error})") from error


def _tried(predefined: str, named: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """What RocksDB makes of the options, once it has written with them, and read again."""
    options = rocks_options(predefined, named, SlotMemory(16 * _MEBIBYTE, 0.5), folder)
    options.database.create_if_missing(True)
    path = str(folder / _TRIED)
    database = Rdict(path, options.database)
    family = database.create_column_family(_TRIED, options.family)
    family[b"key"] = b"value"
    family.flush()
    family.close()
    database.close()
    database = Rdict(path, options.database, {_TRIED: options.family})
    family = database.get_column_family(_TRIED)
    found = family[b"key"]
    family.close()
    database.close()
    if found != b"value":
        raise ValueError("what was written is not read again")
    listed = _listed(_lines(Path(path)), _TRIED)
    return {name: value for name, (_, value) in listed.items()}


def _check_made(name: str, value: Any, made: str | None) -> None:
    """Refuse a value that RocksDB has replaced by another one without a word."""
    if made is None:  # it does not tell of this one
        return
    if isinstance(value, Mapping):
        kept = set(made.strip("{}").split(";"))
        is_kept = all(f"{each}={_text(its)}" in kept for each, its in value.items())
    elif isinstance(value, float) or "." in made:
        is_kept = made.replace(".", "", 1).isdigit() and float(made) == float(value)
    else:
        is_kept = made == _text(value) or (name in _SHORTENED and _text(value).startswith(made))
    if not is_kept:
        raise Invalid(
            f"RocksDB makes something else of its option {name!r}",
            expected=f"{_text(value)}, as it is set",
            found=made,
            fix="Choose another value, or other options beside it",
        )


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
    if value == "kCompactionStyleFIFO":
        expected, fits = "a style of compaction that does not drop state to make room", False
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


def _loaded(chosen: Mapping[str, Any], blocks: Cache, folder: Path) -> tuple[Options, Options]:
    """Options of a database and of a family, read by RocksDB itself."""
    sections: dict[str, list[str]] = {_DATABASE: [], _TABLES: [], _BLOCKS: []}
    for name, value in chosen.items():
        sections[_known()[name][0]].append(f"  {name}={_text(value)}")
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
    """What is said last counts; of a dict of options each one by itself."""
    merged: dict[str, Any] = {}
    for name, value in chain.from_iterable(each.items() for each in sets):
        there = merged.get(name)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            merged[name] = {**there, **value}
        else:
            merged[name] = value
    return merged


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + "".join(f"{name}={_text(each)};" for name, each in value.items()) + "}"
    return str(value)


@cache
def _known() -> dict[str, tuple[str, str]]:
    """Every option that this RocksDB has: its section, and its default."""
    unsaid = {"compression_per_level": (_TABLES, "kNoCompression:kLZ4Compression")}
    return {**unsaid, **_listed(_written(), "default")}


def _listed(lines: Sequence[str], family: str) -> dict[str, tuple[str, str]]:
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
    """The options of a new database, as RocksDB keeps them."""
    with tempfile.TemporaryDirectory(prefix="holdfast-options-") as folder:
        Rdict(folder, Options(raw_mode=True)).close()
        return _lines(Path(folder))


def _lines(database: Path) -> list[str]:
    text = max(database.glob("OPTIONS-*")).read_text()
    return [line.strip() for line in text.splitlines() if not line.startswith("#")]
