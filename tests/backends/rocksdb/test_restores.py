"""Restores of RocksDB from files of other slots, and with key groups of other slots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import KeyGroupRange
from holdfast.backends.rocksdb.database import RocksDatabase
from holdfast.backends.rocksdb.files import RocksFiles
from holdfast.storage import JobStorage, load_storage
from support.states.rocksdb_states import ALL, LOW, VALUE, content, fill, opened, rocksdb_in


@pytest.fixture
def job(quick_path: Path) -> JobStorage:
    return load_storage(str(quick_path / "storage"), inline_limit_bytes=0).job("job")


class Compacted:
    """A table that counts its compactions."""

    def __init__(self, table: Any, ranges: list[tuple[bytes, bytes]]) -> None:
        self.table, self.ranges = table, ranges

    def compact_range(self, first: bytes, end: bytes) -> None:
        self.ranges.append((first, end))
        self.table.compact_range(first, end)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)


@pytest.mark.parametrize(("predefined", "times"), [("default", 1), ("flash-ssd", 2)])
def test_clipped_key_groups_are_compacted_away_with_one_rewrite(
    quick_path: Path, job: JobStorage, monkeypatch: pytest.MonkeyPatch, predefined: str, times: int
) -> None:
    rocksdb = rocksdb_in(quick_path, predefined=predefined)
    with opened(rocksdb) as state:
        state.get_state(VALUE).put_many(range(3_000), [b"v" * 100] * 3_000)
        whole = state.snapshot(1, job).result(30)
    original = RocksFiles._clip
    ranges: list[tuple[bytes, bytes]] = []

    def clip(files: RocksFiles, outside: Sequence[tuple[bytes, bytes]]) -> None:
        (family,) = files.families.values()
        table, counted = family.table, Compacted(family.table, ranges)
        monkeypatch.setattr(family, "table", counted)
        original(files, outside)
        assert files._compacting is not None
        files._compacting.join(30)
        family.table = table

    monkeypatch.setattr(RocksFiles, "_clip", clip)
    with opened(rocksdb, whole, job=job, key_groups=KeyGroupRange(40, 80)) as state:
        state.get_state(VALUE)
        left = len(list(state.keys("value")))
        # All that was cut off is gone from the files, and no removal is left in them.
        assert state.metrics().states["value"]["entries"] == left
    assert len(ranges) == times
    assert ranges[0][0] < ranges[-1][1]


@pytest.mark.parametrize("key_groups", [ALL, LOW])
def test_a_restore_opens_the_downloaded_database_and_creates_no_other(
    quick_path: Path,
    job: JobStorage,
    monkeypatch: pytest.MonkeyPatch,
    key_groups: KeyGroupRange,
) -> None:
    rocksdb = rocksdb_in(quick_path)
    with opened(rocksdb) as state:
        fill(state)
        whole = state.snapshot(1, job).result(30)
    made = []

    def counted(*arguments: Any, **options: Any) -> RocksDatabase:
        made.append(RocksDatabase(*arguments, **options))
        return made[-1]

    monkeypatch.setattr("holdfast.backends.rocksdb.files.RocksDatabase", counted)
    with opened(rocksdb, whole, job=job, key_groups=key_groups) as state:
        assert content(state)
    assert len(made) == 1
