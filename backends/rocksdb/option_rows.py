"""Options of the RocksDB backend, under the names that Flink has for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from holdfast.backends.rocksdb.backend import RocksDBStateBackend
from holdfast.backends.rocksdb.memory import memory_bytes
from holdfast.storage.options.codecs import NUMBER, PATHS, SIZE, SWITCH, WHOLE_NUMBER, Codec, one_of
from holdfast.storage.options.table import Option, Owner, refused

__all__ = ["ROCKSDB", "ROCKSDB_OPTIONS", "rocksdb_arguments", "rocksdb_fields"]

_PREFIX = "state.backend.rocksdb."
_OWN = "options."
"""Begins fields that are RocksDB's own options."""


def rocksdb_arguments(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the backend for fields of options: RocksDB's own ones go under `options`."""
    own = {name[len(_OWN) :]: fields[name] for name in fields if name.startswith(_OWN)}
    others = {name: fields[name] for name in fields if not name.startswith(_OWN)}
    return {**others, "options": own} if own else others


def rocksdb_fields(backend: RocksDBStateBackend) -> dict[str, Any]:
    """Fields of options for what a backend has other than by default."""
    named = {f"{_OWN}{name}": value for name, value in backend.options.items()}
    values = {each.name: getattr(backend, each.name) for each in fields(backend)}
    defaults = {each.name: each.default for each in fields(backend)}
    del values["options"]
    return {name: value for name, value in values.items() if value != defaults[name]} | named


ROCKSDB = Owner(
    "rocksdb",
    RocksDBStateBackend,
    "Arguments of `RocksDBStateBackend`; those of `options` have RocksDB's own names. Refused "
    "where the job has another backend. [rocksdb.md](rocksdb.md) says more.",
    make=lambda **given: RocksDBStateBackend(**rocksdb_arguments(given)),
)
_MEMORY = replace(SIZE, is_same=lambda code, value: memory_bytes(code) == value)
_DISKS = {
    "DEFAULT": "default",
    "SPINNING_DISK_OPTIMIZED": "spinning-disk",
    "FLASH_SSD_OPTIMIZED": "flash-ssd",
}
_STYLES = {"LEVEL": "kCompactionStyleLevel", "UNIVERSAL": "kCompactionStyleUniversal"}
_FILTERS = {"true": "bloomfilter:10:false", "false": "nullptr"}
_ROWS: tuple[tuple[str, str, Codec], ...] = (
    ("memory.fixed-per-slot", "memory", _MEMORY),
    ("memory.write-buffer-ratio", "write_buffer_ratio", NUMBER),
    ("predefined-options", "predefined", one_of(_DISKS)),
    ("localdir", "directories", PATHS),
    ("timer-service.factory", "timers", one_of({"ROCKSDB": "rocksdb", "HEAP": "heap"})),
    ("compaction.style", "options.compaction_style", one_of(_STYLES)),
    ("compaction.level.use-dynamic-size", "options.level_compaction_dynamic_level_bytes", SWITCH),
    ("compaction.level.target-file-size-base", "options.target_file_size_base", SIZE),
    ("compaction.level.max-size-level-base", "options.max_bytes_for_level_base", SIZE),
    ("thread.num", "options.max_background_jobs", WHOLE_NUMBER),
    ("files.open", "options.max_open_files", WHOLE_NUMBER),
    ("writebuffer.size", "options.write_buffer_size", SIZE),
    ("writebuffer.count", "options.max_write_buffer_number", WHOLE_NUMBER),
    ("writebuffer.number-to-merge", "options.min_write_buffer_number_to_merge", WHOLE_NUMBER),
    ("block.blocksize", "options.block_size", SIZE),
    ("block.metadata-blocksize", "options.metadata_block_size", SIZE),
    ("use-bloom-filter", "options.filter_policy", one_of(_FILTERS)),
)
_REFUSED = {
    "memory.managed": "there is no managed memory",
    "memory.fixed-per-tm": "a slot is a process",
    "block.cache-size": "it bounds caches and write buffers together",
}

ROCKSDB_OPTIONS = (
    Option(
        "execution.checkpointing.incremental",
        ROCKSDB,
        "incremental",
        SWITCH,
        ("state.backend.incremental",),
    ),
    *(Option(f"{_PREFIX}{key}", ROCKSDB, field, codec) for key, field, codec in _ROWS),
    *(
        refused(f"{_PREFIX}{key}", ROCKSDB, f"Set {_PREFIX}memory.fixed-per-slot: {why}")
        for key, why in _REFUSED.items()
    ),
)
