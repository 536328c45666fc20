"""The options of RocksDB: sets for kinds of disks, any option by its name, and the memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from typing import Any, Protocol

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    ChecksumType,
    DataBlockIndexType,
    DBCompactionStyle,
    DBCompressionType,
    MemtableFactory,
    Options,
    WriteBufferManager,
)

from holdfast.storage import Invalid

__all__ = [
    "PREDEFINED",
    "HasBuffers",
    "SlotMemory",
    "check_options",
    "memory_bytes",
    "table_options",
]

_MEBIBYTE = 1024 * 1024
_LEAST_MEMORY = 16 * _MEBIBYTE

_MOST_TABLES = 256
"""For so many tables of one slot there is room in the least memory."""

PREDEFINED: dict[str, dict[str, Any]] = {
    "default": {},
    "spinning-disk": {
        "max_background_jobs": 4,
        "max_open_files": -1,
        "compaction_style": "level",
        "level_compaction_dynamic_level_bytes": True,
        "target_file_size_base": 256 * _MEBIBYTE,
        "max_bytes_for_level_base": 1024 * _MEBIBYTE,
        "compaction_readahead_size": 8 * _MEBIBYTE,
        "optimize_filters_for_hits": True,
    },
    "flash-ssd": {
        "max_background_jobs": 4,
        "max_open_files": -1,
        "bloom_filter": [10.0, False],
        "avoid_unnecessary_blocking_io": True,
    },
}
"""Settings that fit a kind of disk, by its name."""

_ALWAYS: dict[str, Any] = {
    "keep_log_file_num": 1,
    "max_log_file_size": _MEBIBYTE,
    "stats_dump_period_sec": 0,
    "cache_index_and_filter_blocks": True,
    "pin_l0_filter_and_index_blocks_in_cache": True,
    "format_version": 6,
}
"""What holds unless an option says otherwise. Indexes and filters count as memory of the cache."""

_OURS = frozenset(
    {
        "allow_ingest_behind",
        "allow_mmap_writes",
        "arena_block_size",
        "block_based_table_factory",
        "block_cache",
        "cuckoo_table_factory",
        "db_log_dir",
        "db_paths",
        "env",
        "error_if_exists",
        "inplace_update_support",
        "plain_table_factory",
        "prefix_extractor",
        "row_cache",
        "wal_bytes_per_sync",
        "wal_dir",
        "wal_recovery_mode",
        "wal_size_limit_mb",
        "wal_ttl_seconds",
        "write_buffer_manager",
    }
)
"""What the backend itself decides, or what makes no sense without a write-ahead log."""

_WORDS: dict[str, Any] = {
    "bottommost_compression_type": DBCompressionType,
    "blob_compression_type": DBCompressionType,
    "checksum_type": ChecksumType,
    "compaction_style": DBCompactionStyle,
    "compression_per_level": DBCompressionType,
    "compression_type": DBCompressionType,
    "data_block_index_type": DataBlockIndexType,
    "index_type": BlockBasedIndexType,
    "memtable_factory": MemtableFactory,
}
"""Options whose values are words: the static methods of a class."""


class HasBuffers(Protocol):
    """Who uses write buffers. Any thread may call it, also after its end."""

    @property
    def buffered_bytes(self) -> int:
        """What its write buffers take."""
        ...

    def flush(self) -> None:
        """Empty them."""
        ...


class SlotMemory:
    """One cache and one budget of write buffers, for all stores of a slot.

    The parts of a budget are those of Flink: write buffers may take `2 r/3` of it, and count in
    the cache of `(3 - r)/3`. Of the rest RocksDB makes the buffer that it is just filling when
    the others are full.

    RocksDB could make writers wait when write buffers have used up their part. It does so for ever
    where two databases share them, so whoever has written calls `make_room`, which is to wait too.
    """

    def __init__(self, budget_bytes: int, write_buffer_ratio: float) -> None:
        buffers_bytes = int(budget_bytes * 2 * write_buffer_ratio / 3)
        self.cache = Cache(int(budget_bytes * (3 - write_buffer_ratio) / 3))
        self.write_buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            buffers_bytes, False, self.cache
        )
        # Each table has a piece of a write buffer from its first entry on, which only a flush gives
        # back: the pieces alone must not be the whole budget.
        self.piece_bytes = min(max(buffers_bytes // (2 * _MOST_TABLES), 4096), _MEBIBYTE)
        self._owners: list[HasBuffers] = []

    def buffers_of(self, owner: HasBuffers) -> None:
        """Somebody begins to use write buffers."""
        self._owners.append(owner)

    def buffers_gone(self, owner: HasBuffers) -> None:
        """Its write buffers are gone, or soon will be."""
        with suppress(ValueError):
            self._owners.remove(owner)

    def make_room(self) -> None:
        """Flush the largest buffers, whose ever they are, if all together are above their part."""
        buffers = self.write_buffers
        if buffers.get_usage() <= buffers.get_buffer_size():
            return
        owners = list(self._owners)
        largest = max(owners, key=lambda owner: owner.buffered_bytes, default=None)
        if largest is not None:
            largest.flush()


def memory_bytes(memory: int | str) -> int:
    """A number of bytes, or text such as `512m`, as a number.

    Raises:
        Invalid: it is neither, or less than a database can work with.
    """
    size = memory
    if isinstance(memory, str):
        found = re.fullmatch(r"(\d+)\s*([kmgt]?)(?:i?b)?", memory.strip().lower())
        size = int(found[1]) * 1024 ** " kmgt".index(found[2] or " ") if found else -1
    if isinstance(size, bool) or not isinstance(size, int) or size < _LEAST_MEMORY:
        raise Invalid(
            "the memory for RocksDB is out of range",
            expected=f"{_LEAST_MEMORY // _MEBIBYTE}m or more, as a number of bytes or as text",
            found=repr(memory),
        )
    return size


def table_options(named: Mapping[str, Any], memory: SlotMemory) -> Options:
    """The options of a database, or of a column family, in this memory.

    Raises:
        Invalid: an option is not known, is not for users to set, or has a value of a wrong type.
    """
    options, blocks = Options(raw_mode=True), BlockBasedOptions()
    for name, value in {**_ALWAYS, **named}.items():
        _set(options, blocks, name, value)
    blocks.set_block_cache(memory.cache)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_manager(memory.write_buffers)
    options.set_arena_block_size(memory.piece_bytes)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    return options


def check_options(named: Mapping[str, Any]) -> None:
    """Refuse what RocksDB would not take; raises as `table_options` does."""
    options, blocks = Options(raw_mode=True), BlockBasedOptions()
    for name, value in named.items():
        _set(options, blocks, name, value)


def _set(options: Options, blocks: BlockBasedOptions, name: str, value: Any) -> None:
    known = _known()
    if name in _OURS:
        raise Invalid(
            f"the option {name!r} of RocksDB is the backend's own",
            found=f"{name}={value!r}",
            fix="Leave it out; memory is set by `memory`, places by `directories`",
        )
    if name not in known:
        raise Invalid(
            f"the option {name!r} of RocksDB is not known",
            expected=f"one of {', '.join(get_close_matches(name, known) or sorted(known))}",
        )
    target = options if hasattr(options, f"set_{name}") else blocks
    arguments = value if isinstance(value, list | tuple) and name not in _LISTS else [value]
    try:
        if isinstance(value, bool) and _takes(type(target)(), name, [1]):
            raise TypeError("a switch, where a number is wanted")
        getattr(target, f"set_{name}")(*[_word(name, each) for each in arguments])
    except (TypeError, ValueError, OverflowError) as error:
        raise Invalid(
            f"the option {name!r} of RocksDB has a value of a wrong type",
            expected=_words_of(name) or "a value as RocksDB has it",
            found=f"{value!r} ({error})",
        ) from None


_LISTS = frozenset({"compression_per_level", "max_bytes_for_level_multiplier_additional"})


@cache
def _known() -> set[str]:
    """The names of all options that users may set."""
    setters = {each for kind in (Options, BlockBasedOptions) for each in dir(kind)}
    return {each.removeprefix("set_") for each in setters if each.startswith("set_")} - _OURS


def _takes(target: Any, name: str, arguments: list[Any]) -> bool:
    try:
        getattr(target, f"set_{name}")(*arguments)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _word(name: str, value: Any) -> Any:
    kind = _WORDS.get(name)
    if kind is None:
        return value
    if isinstance(value, list):
        return [_word(name, each) for each in value]
    if not isinstance(value, str) or value not in _choices(kind):
        raise TypeError("not one of the words")
    return getattr(kind, value)()


def _choices(kind: Any) -> list[str]:
    return [each for each in dir(kind) if not each.startswith("_")]


def _words_of(name: str) -> str:
    return " or ".join(_choices(_WORDS[name])) if name in _WORDS else ""
