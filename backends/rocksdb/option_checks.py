"""Refusing bad options of RocksDB when the backend is made, and not while a job runs.

RocksDB itself silently accepts a fraction for a whole number, a number below zero, a filter that
does not exist, and options of features that this backend does not use.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rocksdict import Cache, Rdict

from holdfast.backends.rocksdb.memory import SlotMemory
from holdfast.backends.rocksdb.options import (
    known_options,
    listed_options,
    load_options,
    option_lines,
    option_text,
    rocks_options,
    without_log,
)
from holdfast.backends.working_directory import WorkingDirectory
from holdfast.storage import Invalid, Unavailable

__all__ = ["check_options"]

_MEBIBYTE = 1024 * 1024

_OURS = frozenset(
    {
        "allow_ingest_behind",
        "arena_block_size",
        "avoid_flush_during_shutdown",
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
        "db_write_buffer_size",
        "error_if_exists",
        "inplace_update_support",
        "memtable_huge_page_size",
        "merge_operator",
        "no_block_cache",
        "persist_stats_to_disk",
        "prefix_extractor",
        "table_factory",
        "write_buffer_manager",
    }
)
"""Options that the backend sets itself."""

_USELESS: dict[str, frozenset[str]] = {
    "the write-ahead log, which is off: state lasts by checkpoints": frozenset(
        {
            "avoid_flush_during_recovery",
            "background_close_inactive_wals",
            "manual_wal_flush",
            "max_total_wal_size",
            "recycle_log_file_num",
            "track_and_verify_wals_in_manifest",
            "wal_bytes_per_sync",
            "wal_compression",
            "wal_dir",
            "wal_filter",
            "wal_recovery_mode",
            "wal_write_temperature",
            "WAL_size_limit_MB",
            "WAL_ttl_seconds",
        }
    ),
    "transactions, which are not used": frozenset(
        {
            "allow_2pc",
            "max_write_buffer_number_to_maintain",
            "max_write_buffer_size_to_maintain",
            "two_write_queues",
        }
    ),
    "merges, single deletes, changes in place and timestamps, none of which is used": frozenset(
        {
            "enforce_single_del_contracts",
            "inplace_update_num_locks",
            "max_successive_merges",
            "persist_user_defined_timestamps",
            "strict_max_successive_merges",
        }
    ),
    "followers, a second cache, a cache of blobs and other systems, which are not used": (
        frozenset(
            {
                "follower_catchup_retry_count",
                "follower_catchup_retry_wait_ms",
                "follower_refresh_catchup_period_ms",
                "lowest_used_cache_tier",
                "prepopulate_blob_cache",
                "random_access_max_buffer_size",
            }
        )
    ),
    "statistics that cannot be read here": frozenset(
        {"enable_thread_tracking", "stats_history_buffer_size", "stats_persist_period_sec"}
    ),
}
"""Options, by the feature that they are for, which RocksDB accepts and ignores, or which make every
write fail."""

_REFUSED = _OURS.union(*_USELESS.values())

_LEAST = {"max_background_jobs": 1}
"""RocksDB accepts a smaller number, reports it, and uses another one."""

_TRIED = "tried"
_SHORTENED = ("filter_policy",)
"""Options whose value RocksDB reports in a shorter form than it was set."""

_FILTER = re.compile(
    r"nullptr|bloomfilter:\d+(\.\d+)?(:(true|false))?|ribbonfilter:\d+(\.\d+)?(:\d+)?"
)


_FILTER_WORDS = "nullptr, bloomfilter:<bits>:<true or false> or ribbonfilter:<bits>"


def check_options(predefined: str, named: Any) -> None:
    """Refuse options that RocksDB would reject, or silently replace by something else.

    Raises:
        Invalid: an option is not known, is not for users to set, has a value of a wrong type, or
            does not go with the others.
        Unavailable: there is no room for temporary files, in which they are tried.
    """
    if not isinstance(named, Mapping) or not all(isinstance(name, str) for name in named):
        raise Invalid(
            "the options of RocksDB are no options by their names",
            expected='a dict, such as {"compression": "kZSTD"}',
            found=repr(named),
        )
    if not named:
        return
    with closing(WorkingDirectory(kind="options")) as directory:
        for name, value in named.items():
            _check(name, value)
            expected = f"a value as RocksDB has it, such as {known_options()[name][1]}"
            with _refused(
                f"the option {name!r} of RocksDB has a value of a wrong type", expected, value
            ):
                load_options({name: value}, Cache(_MEBIBYTE), directory.path)
        with _refused("RocksDB does not take these options", "some that go together", dict(named)):
            made = _tried(predefined, named, directory.path)
    for name, value in named.items():
        _check_made(name, value, made.get(name))


@contextmanager
def _refused(what: str, expected: str, found: object) -> Iterator[None]:
    """Turn an error of RocksDB into `Invalid`, or `Unavailable` if only disk space was missing."""
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
    """The options as RocksDB reports them, after a write and a read with them have succeeded."""
    options = rocks_options(predefined, named, SlotMemory(16 * _MEBIBYTE, 0.5), folder)
    options.database.create_if_missing(True)
    path = str(folder / _TRIED)
    database = Rdict(path, options.database)
    family = database.create_column_family(_TRIED, options.family)
    family.set_write_options(without_log())
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
    listed = listed_options(option_lines(Path(path)), _TRIED)
    return {name: value for name, (_, value) in listed.items()}


def _check_made(name: str, value: Any, made: str | None) -> None:
    """Refuse a value that RocksDB has silently replaced by another one."""
    if made is None:  # RocksDB does not report this one
        return
    if isinstance(value, Mapping):
        kept = set(made.strip("{}").split(";"))
        is_kept = all(f"{each}={option_text(its)}" in kept for each, its in value.items())
    elif isinstance(value, float) or "." in made:
        is_kept = made.replace(".", "", 1).isdigit() and float(made) == float(value)
    else:
        said = option_text(value)
        is_kept = made == said or (name in _SHORTENED and said.startswith(made))
    if not is_kept:
        raise Invalid(
            f"RocksDB changes the value of its option {name!r}",
            expected=f"{option_text(value)}, as it is set",
            found=made,
            fix="Choose another value, or other options beside it",
        )


def _check(name: str, value: Any) -> None:
    _check_name(name, value)
    _, default = known_options()[name]
    if default in ("true", "false"):
        expected, fits = "True or False", type(value) is bool
    elif re.fullmatch(r"-?\d+", default):
        least = _LEAST.get(name, 0 if int(default) >= 0 else -1)
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


def _check_name(name: str, value: Any) -> None:
    if name in _OURS:
        raise Invalid(
            f"the option {name!r} of RocksDB is the backend's own",
            found=f"{name}={value!r}",
            fix="Leave it out; memory is set by `memory`, places by `directories`",
        )
    reason = next((reason for reason, names in _USELESS.items() if name in names), "")
    if reason:
        raise Invalid(
            f"the option {name!r} of RocksDB has no use here, or does harm",
            expected=f"no options of {reason}",
            found=f"{name}={value!r}",
            fix="Leave it out",
        )
    known = known_options()
    if name not in known:
        close = get_close_matches(name, known.keys() - _REFUSED)
        raise Invalid(
            f"the option {name!r} of RocksDB is not known",
            expected=f"one of {', '.join(close)}"
            if close
            else "a name that RocksDB has in its file OPTIONS, such as write_buffer_size",
        )


def _wrong(name: str, value: Any, expected: str) -> Invalid:
    return Invalid(
        f"the option {name!r} of RocksDB has a value of a wrong type",
        expected=expected,
        found=repr(value),
    )
