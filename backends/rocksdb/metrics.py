"""Metrics of a RocksDB store.

RocksDB counts hits and misses of its cache for a database, and not for each of its column families,
so they are metrics of an operator. Sizes, stalls and compaction debt are metrics of a state.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count, takewhile

from holdfast.backends.rocksdb.database import Family, RocksDatabase
from holdfast.backends.tables.metrics import StateMetrics

__all__ = ["rocks_metrics"]

_HITS, _MISSES, _STALLED = "block.cache.hit", "block.cache.miss", "stall.micros"
_COMPACTION_READS = "read.block.compaction.micros"
_COUNTS = re.compile(
    rf"^rocksdb\.({'|'.join(map(re.escape, (_HITS, _MISSES, _STALLED, _COMPACTION_READS)))})"
    r" .*?COUNT : (\d+)",
    re.MULTILINE,
)
_STALLS = re.compile(r"\btotal-(delays|stops): (\d+)")


def rocks_metrics(database: RocksDatabase, families: Mapping[str, Family]) -> StateMetrics:
    """The metrics of a database, and of its families by the names given here.

    Takes half a millisecond with statistics, and some ten microseconds for each family.
    """
    return StateMetrics(
        store=_of_database(database),
        states={name: _of_family(family) for name, family in families.items()},
    )


def _of_database(database: RocksDatabase) -> dict[str, float]:
    numbers = {"background_errors": float(database.number("background-errors"))}
    counts = {name: int(times) for name, times in _COUNTS.findall(database.statistics)}
    if counts:
        hits = counts[_HITS]
        # A compaction reads past the cache, and each block that it reads counts as a miss.
        misses = max(counts[_MISSES] - counts[_COMPACTION_READS], 0)
        numbers["cache_hits"], numbers["cache_misses"] = float(hits), float(misses)
        numbers["cache_hit_ratio"] = hits / (hits + misses) if hits + misses else 1.0
        numbers["stalled_s"] = counts[_STALLED] / 1e6
    return numbers


def _of_family(family: Family) -> dict[str, float]:
    stalls = dict(_STALLS.findall(family.text("cf-write-stall-stats")))
    files_bytes = family.number("live-sst-files-size")
    return {
        "entries": float(family.number("estimate-num-keys")),
        "files_bytes": float(files_bytes),
        "buffered_bytes": float(family.buffered_bytes),
        "runs": float(_runs(family)),
        # RocksDB's own estimate is 0 where compaction is universal, which it is by default.
        "compaction_debt_bytes": float(
            max(files_bytes - family.number("estimate-live-data-size"), 0)
        ),
        "pending_compaction_bytes": float(family.number("estimate-pending-compaction-bytes")),
        "slowdowns": float(stalls.get("delays", 0)),
        "stops": float(stalls.get("stops", 0)),
        "room_waits": float(family.room_waits),
        "room_waited_s": family.room_waited_s,
    }


def _runs(family: Family) -> int:
    """How many sorted runs a read may have to search: files of level 0, and levels below."""
    levels = (family.text(f"num-files-at-level{level}") for level in count())
    first, *others = map(int, takewhile(bool, levels))
    return first + sum(map(bool, others))
