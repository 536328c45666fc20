"""Scans of RocksDB: what ends one early is not its end, and none holds more than a little."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends.byte_tables import ByteTableStore
from holdfast.backends.rocksdb_database import Family
from holdfast.backends.rocksdb_files import RocksFiles
from holdfast.storage import JobStorage, StateSnapshot, Unavailable, load_storage
from rocksdb_states import HIGH, LOW, fill, opened, rocksdb_in


@pytest.fixture
def job(quick_path: Path) -> JobStorage:
    return load_storage(str(quick_path / "storage"), inline_limit_bytes=0).job("job")


@pytest.fixture
def parts(quick_path: Path, job: JobStorage) -> list[StateSnapshot]:
    """What two slots have left."""
    backend, found = rocksdb_in(quick_path), []
    with opened(backend) as state:
        fill(state)
        whole = state.snapshot(1, job).result(30)
    for number, key_groups in enumerate((LOW, HIGH)):
        with opened(backend, whole, job=job, key_groups=key_groups) as state:
            found.append(state.snapshot(2 + number, job).result(30))
    return found


class EndsEarly:
    """A table whose scans end for a reason that they do not tell, and that is gone afterwards."""

    def __init__(self, table: Any, count: int) -> None:
        self._table, self._count = table, count

    def items(self, *arguments: Any, **options: Any) -> Iterator[tuple[bytes, bytes]]:
        return islice(self._table.items(*arguments, **options), self._count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


Export = Callable[[RocksFiles, Family, tuple[bytes, bytes]], Iterator[Path]]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_scan_of_another_slot_that_ends_early_is_no_end(
    quick_path: Path,
    job: JobStorage,
    parts: list[StateSnapshot],
    monkeypatch: pytest.MonkeyPatch,
    count: int,
) -> None:
    """As where the process has no file left to open for a moment."""
    original: Export = RocksFiles._exported

    def early(files: RocksFiles, family: Family, bounds: tuple[bytes, bytes]) -> Iterator[Path]:
        other: Any = Family(family.name, family.table, family.handle)
        other.table = EndsEarly(family.table, count)
        return original(files, other, bounds)

    monkeypatch.setattr(RocksFiles, "_exported", early)
    with (
        pytest.raises(Unavailable, match=r"not all entries of another slot's files.*Restore again"),
        opened(rocksdb_in(quick_path), *parts, job=job),
    ):
        pass


@pytest.mark.parametrize("there", [0, 150, 299])
@pytest.mark.parametrize("count", [0, 1])
def test_a_walk_that_ends_early_loses_nothing(quick_path: Path, there: int, count: int) -> None:
    keys = [b"%03d" % number for number in range(300)]
    with opened(rocksdb_in(quick_path)) as state:
        assert isinstance(state.store, ByteTableStore)
        table: Any = state.store._store.table("walked")
        table.put_many(keys[there : there + 1], [b"value"])
        table._rocks = EndsEarly(table._rocks, count)
        found = table.get_many(keys)
        table._rocks = table.family.table
    assert found == [b"value" if number == there else None for number in range(300)]
