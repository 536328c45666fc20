"""Scans of RocksDB: an early stop is not taken for the end, and pages stay small."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import KeyedStateBackend
from holdfast.backends.byte_tables.store import ByteTableStore
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_group
from holdfast.backends.rocksdb.database import Family
from holdfast.backends.rocksdb.files import RocksFiles
from holdfast.backends.rocksdb.store import _pieces
from holdfast.backends.snapshots.neutral import SnapshotForm
from holdfast.storage import JobStorage, StateSnapshot, Unavailable, load_storage
from support.states.rocksdb_states import HIGH, LOW, VALUE, fill, opened, rocksdb_in


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
def test_a_scan_of_a_restored_slot_that_ends_early_is_continued(
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


@pytest.mark.parametrize(
    ("key_bytes", "value_bytes"), [(10, 10), (3_000, 10), (10, 3_000), (2_000, 2_000), (10, 20_000)]
)
@pytest.mark.parametrize("count", [0, 1, 7, 2_000])
def test_the_size_of_a_write_is_bounded_by_keys_and_values(
    key_bytes: int, value_bytes: int, count: int
) -> None:
    most_bytes = 16_000
    keys, values = [b"k" * key_bytes] * count, [b"v" * value_bytes] * count
    pieces = [range(count)[piece] for piece in _pieces(most_bytes, keys, values)]
    assert [row for piece in pieces for row in piece] == list(range(count))
    row_bytes = key_bytes + value_bytes
    assert all(len(piece) == 1 or len(piece) * row_bytes <= most_bytes for piece in pieces)
    if row_bytes < most_bytes:
        assert len(pieces) <= 1 + 2 * count * row_bytes // most_bytes


LONG = 600
LONG_BYTES = 256 << 10
A_FEW_BYTES = 36 << 20
"""Half of it is for files that are brought from storage, side by side."""


def grown_bytes(use: Callable[[], object]) -> int:
    """How much Python held at most while something was done, beyond what it held before."""
    tracemalloc.start()
    try:
        use()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_no_scan_holds_more_than_a_few_long_values(quick_path: Path, job: JobStorage) -> None:
    backend, hash_of = rocksdb_in(quick_path), key_codec_for(int).hash
    value, parts = random.Random(1).randbytes(LONG_BYTES), []
    for number, key_groups in enumerate((LOW, HIGH), start=1):
        with opened(backend, key_groups=key_groups) as state:
            values = state.get_state(VALUE)
            for key in range(LONG):
                if key_group(hash_of(key), 128) in key_groups:
                    state.set_current_key(key)
                    values.update(value)
            parts.append(state.snapshot(number, job).result(30))
    with ExitStack() as stack:
        united: list[KeyedStateBackend] = []

        def unite() -> None:
            united.append(stack.enter_context(opened(backend, *parts, job=job)))

        assert grown_bytes(unite) < A_FEW_BYTES
        (state,) = united
        values = state.get_state(VALUE)
        keys: list[int] = []
        assert grown_bytes(lambda: keys.extend(state.keys("value"))) < LONG_BYTES
        assert sorted(keys) == list(range(LONG))
        assert (
            grown_bytes(lambda: state.snapshot(3, job, form=SnapshotForm.NEUTRAL).result(30))
            < A_FEW_BYTES
        )
        absent = [-1 - number for number in range(LONG)]
        assert grown_bytes(lambda: values.get_many(absent)) < A_FEW_BYTES
        state.set_current_key(0)
        assert values.value() == value
