"""Options of the backend `rocksdb` as text, under the names that Flink has for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from holdfast.backends.rocksdb.memory import memory_bytes
from holdfast.changelog.settings import size_in_bytes
from holdfast.storage import Invalid

__all__ = ["NOT_HERE", "ROCKSDB_OPTIONS"]

_PREFIX = "state.backend.rocksdb."
NOT_HERE = {
    f"{_PREFIX}memory.managed": f"Say {_PREFIX}memory.fixed-per-slot: there is no managed memory",
    f"{_PREFIX}memory.fixed-per-tm": f"Say {_PREFIX}memory.fixed-per-slot: a slot is a process",
    f"{_PREFIX}block.cache-size": f"Say {_PREFIX}memory.fixed-per-slot, which bounds caches and "
    "write buffers together",
}
"""Flink's options that have no meaning here: what to do instead."""


def _wrong(key: str, text: str, expected: str) -> Invalid:
    return Invalid(f"option {key!r} cannot be this", expected=expected, found=repr(text))


def _bytes(key: str, text: str) -> int:
    size = size_in_bytes(text)
    if size is None:
        raise _wrong(key, text, 'a size such as "64 mb"')
    return size


def _memory(key: str, text: str) -> int:
    return memory_bytes(_bytes(key, text))


def _whole(key: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,15}", text):
        raise _wrong(key, text, "a whole number")
    return int(text)


def _ratio(key: str, text: str) -> float:
    if not re.fullmatch(r"[0-9](\.[0-9]{1,15})?", text):
        raise _wrong(key, text, 'a part of 1, such as "0.5"')
    return float(text)


def _switch(key: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise _wrong(key, text, "true or false")
    return text.lower() == "true"


def _folders(_: str, text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in re.split("[,:]", text) if each.strip())


def _word(**words: str) -> Callable[[str, str], str]:
    def read(key: str, text: str) -> str:
        if text.upper() not in words:
            raise _wrong(key, text, " or ".join(words))
        return words[text.upper()]

    return read


def _bloom_filter(key: str, text: str) -> str:
    return "bloomfilter:10:false" if _switch(key, text) else "nullptr"


_PREDEFINED = _word(
    DEFAULT="default", SPINNING_DISK_OPTIMIZED="spinning-disk", FLASH_SSD_OPTIMIZED="flash-ssd"
)
_STYLES = _word(LEVEL="kCompactionStyleLevel", UNIVERSAL="kCompactionStyleUniversal")
_SIZES, _NUMBERS, _SWITCHES = "a size such as `64 mb`", "a whole number", "`true`, `false`"

ROCKSDB_OPTIONS: tuple[tuple[str, str, Callable[[str, str], Any], str], ...] = (
    ("execution.checkpointing.incremental", "incremental", _switch, _SWITCHES),
    *(
        (f"{_PREFIX}{key}", field, read, values)
        for key, field, read, values in (
            ("memory.fixed-per-slot", "memory", _memory, _SIZES),
            ("memory.write-buffer-ratio", "write_buffer_ratio", _ratio, "a number from 0 to 1"),
            (
                "predefined-options",
                "predefined",
                _PREDEFINED,
                "`DEFAULT`, `SPINNING_DISK_OPTIMIZED`, `FLASH_SSD_OPTIMIZED`",
            ),
            ("localdir", "directories", _folders, "whole paths, with commas between them"),
            (
                "timer-service.factory",
                "timers",
                _word(ROCKSDB="rocksdb", HEAP="heap"),
                "`ROCKSDB`, `HEAP`",
            ),
            ("compaction.style", "options.compaction_style", _STYLES, "`LEVEL`, `UNIVERSAL`"),
            (
                "compaction.level.use-dynamic-size",
                "options.level_compaction_dynamic_level_bytes",
                _switch,
                _SWITCHES,
            ),
            (
                "compaction.level.target-file-size-base",
                "options.target_file_size_base",
                _bytes,
                _SIZES,
            ),
            (
                "compaction.level.max-size-level-base",
                "options.max_bytes_for_level_base",
                _bytes,
                _SIZES,
            ),
            ("thread.num", "options.max_background_jobs", _whole, _NUMBERS),
            ("files.open", "options.max_open_files", _whole, "a whole number, -1 for all"),
            ("writebuffer.size", "options.write_buffer_size", _bytes, _SIZES),
            ("writebuffer.count", "options.max_write_buffer_number", _whole, _NUMBERS),
            (
                "writebuffer.number-to-merge",
                "options.min_write_buffer_number_to_merge",
                _whole,
                _NUMBERS,
            ),
            ("block.blocksize", "options.block_size", _bytes, _SIZES),
            ("block.metadata-blocksize", "options.metadata_block_size", _bytes, _SIZES),
            ("use-bloom-filter", "options.filter_policy", _bloom_filter, _SWITCHES),
        )
    ),
)
"""Name, argument of the backend (`options.`: RocksDB's own name), what reads it, its values."""
