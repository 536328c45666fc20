"""State much larger than its memory: the child side of `backends/test_rocksdb_large.py`.

`python large_state.py FOLDER write` fills state and leaves a snapshot; `… read PARALLELISM` goes
through all of it again, slot by slot. Each prints what it found as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from holdfast.backends import ValueStateDescriptor, key_groups_of_slots
from holdfast.backends.key_groups import KeyGroupRange
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.storage import JobStorage, StateSnapshot, load_storage

MEMORY_BYTES = 16 << 20
ENTRIES = 160_000
VALUE_BYTES = 1_024
BATCH = 2_000
MAX_PARALLELISM = 128
ALL = KeyGroupRange(0, MAX_PARALLELISM - 1)
VALUE = ValueStateDescriptor("value", bytes)
_MASK = 2**64 - 1


def main(folder: Path, task: str, parallelism: int) -> dict[str, Any]:
    """Write or read it."""
    backend = RocksDBStateBackend(
        memory=MEMORY_BYTES,
        directories=[str(folder / "state")],
        options={"compression": "kNoCompression"},
    )
    job = load_storage(str(folder / "storage")).job("job")
    path = folder / "snapshot"
    _write_and_read_a_little(backend)
    before = _resident_bytes("VmHWM")
    if task == "write":
        found, snapshot = _write(backend, job)
        path.write_bytes(msgspec.json.encode(snapshot))
    else:
        snapshot = msgspec.json.decode(path.read_bytes(), type=StateSnapshot)
        found = _read(backend, job, snapshot, parallelism)
    return {**found, "grown_bytes": _resident_bytes("VmHWM") - before}


def _write(backend: RocksDBStateBackend, job: JobStorage) -> tuple[dict[str, Any], StateSnapshot]:
    with _opened(backend, ALL) as state:
        values = state.get_state(VALUE)
        for keys in _batches():
            values.put_many(pa.array(keys), [value_of(key) for key in keys.tolist()])
        sample = list(range(0, ENTRIES, ENTRIES // 500))
        read_back = values.get_many(sample).to_pylist() == [value_of(key) for key in sample]
        snapshot = state.snapshot(1, job).result()
    found = {"count": ENTRIES, "checksum": _checksum(range(ENTRIES)), "is_read_back": read_back}
    return {**found, "size_bytes": snapshot.size_bytes}, snapshot


def _read(
    backend: RocksDBStateBackend, job: JobStorage, whole: StateSnapshot, parallelism: int
) -> dict[str, Any]:
    """All of it, after it was divided, and after it was united again."""
    parts, count, checksum = [], 0, 0
    for number, key_groups in enumerate(key_groups_of_slots(parallelism, MAX_PARALLELISM)):
        with _opened(backend, key_groups, job, whole) as state:
            found = list(state.keys("value")) if state.get_state(VALUE) else []
            count += len(found)
            for first in range(0, len(found), BATCH):
                keys = found[first : first + BATCH]
                there = state.get_state(VALUE).get_many(keys).to_pylist()
                checksum += sum(map(_check, keys, there))
            parts.append(state.snapshot(2 + number, job).result())
    with _opened(backend, ALL, job, *parts) as state:
        values = state.get_state(VALUE)
        united = sum(
            sum(map(_check, keys.tolist(), values.get_many(pa.array(keys)).to_pylist()))
            for keys in _batches()
        )
    return {"count": count, "checksum": checksum & _MASK, "united": united & _MASK}


def _opened(
    backend: RocksDBStateBackend,
    key_groups: KeyGroupRange,
    job: JobStorage | None = None,
    *snapshots: StateSnapshot,
) -> Any:
    return backend.open(
        uid="large",
        key_groups=key_groups,
        max_parallelism=MAX_PARALLELISM,
        key_type=int,
        restore=snapshots,
        storage=job,
    )


def _write_and_read_a_little(backend: RocksDBStateBackend) -> None:
    """So that all code is loaded before memory is measured."""
    with _opened(backend, ALL) as state:
        values = state.get_state(VALUE)
        values.put_many(pa.array(range(BATCH)), [value_of(key) for key in range(BATCH)])
        assert values.get_many([1]).to_pylist() == [value_of(1)]


def _batches() -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
    """All keys, in batches, far from their order."""
    keys = np.random.default_rng(1).permutation(ENTRIES)
    for first in range(0, ENTRIES, BATCH):
        yield keys[first : first + BATCH]


def value_of(key: int) -> bytes:
    """The value of a key."""
    start = blake2b(key.to_bytes(8, "big")).digest()
    return start * (VALUE_BYTES // len(start))


def _check(key: int, value: bytes) -> int:
    return xxhash.xxh3_64_intdigest(value, seed=key)


def _checksum(keys: range) -> int:
    return sum(_check(key, value_of(key)) for key in keys) & _MASK


def _resident_bytes(what: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


if __name__ == "__main__":
    answer = main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    sys.stdout.write(json.dumps(answer) + "\n")
