"""State much larger than its memory: the child side of `backends/test_rocksdb_large.py`.

`python larger_than_memory.py FOLDER write VALUE_BYTES` fills state and leaves a snapshot; `… read
…` goes through all of it again, by two slots, and by one. Each prints what it found as one line of
JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from holdfast.backends import ValueStateDescriptor, key_groups_of_slots
from holdfast.backends.keys.groups import KeyGroupRange
from holdfast.backends.rocksdb import RocksDBStateBackend
from holdfast.backends.snapshots.neutral import SnapshotForm
from holdfast.storage import JobStorage, StateSnapshot, load_storage

MEMORY_BYTES = 16 << 20
STATE_BYTES = 160 << 20
BATCH_BYTES = 2 << 20
PARALLELISM = 2
MAX_PARALLELISM = 128
ALL = KeyGroupRange(0, MAX_PARALLELISM - 1)
VALUE = ValueStateDescriptor("value", bytes)
_MASK = 2**64 - 1


@dataclass(frozen=True)
class Content:
    """What is in the state: keys from 0 on, each with a value of its own."""

    value_bytes: int

    @property
    def count(self) -> int:
        """How many keys there are."""
        return STATE_BYTES // self.value_bytes

    @property
    def batch(self) -> int:
        """How many of them are worked on at once."""
        return max(BATCH_BYTES // self.value_bytes, 2)

    def value(self, key: int) -> bytes:
        """The value of a key."""
        start = blake2b(key.to_bytes(8, "big")).digest()
        return start * (self.value_bytes // len(start))

    def batches(self) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
        """All keys, in batches, far from their order."""
        keys = np.random.default_rng(1).permutation(self.count)
        for first in range(0, self.count, self.batch):
            yield keys[first : first + self.batch]

    def checksum(self) -> int:
        """Of all that is there."""
        return sum(_check(key, self.value(key)) for key in range(self.count)) & _MASK


def main(folder: Path, task: str, content: Content) -> dict[str, Any]:
    """Write or read it."""
    backend = RocksDBStateBackend(
        memory=MEMORY_BYTES,
        directories=[str(folder / "state")],
        options={"compression": "kNoCompression"},
    )
    job = load_storage(str(folder / "storage")).job("job")
    path = folder / "snapshot"
    _write_and_read_a_little(backend, content)
    before = _resident_bytes("VmHWM")
    if task == "write":
        found, snapshot = _write(backend, job, content)
        path.write_bytes(msgspec.json.encode(snapshot))
    else:
        snapshot = msgspec.json.decode(path.read_bytes(), type=StateSnapshot)
        found = _read(backend, job, snapshot, content)
    return {**found, "grown_bytes": _resident_bytes("VmHWM") - before}


def _write(
    backend: RocksDBStateBackend, job: JobStorage, content: Content
) -> tuple[dict[str, Any], StateSnapshot]:
    with _opened(backend, ALL) as state:
        values = state.get_state(VALUE)
        for keys in content.batches():
            values.put_many(pa.array(keys), [content.value(key) for key in keys.tolist()])
        sample = list(range(0, content.count, max(content.count // 500, 20)))
        expected = [content.value(key) for key in sample]
        read_back = values.get_many(sample).to_pylist() == expected
        snapshot = state.snapshot(1, job).result()
    found = {"count": content.count, "checksum": content.checksum(), "is_read_back": read_back}
    return {**found, "size_bytes": snapshot.size_bytes}, snapshot


def _read(
    backend: RocksDBStateBackend, job: JobStorage, whole: StateSnapshot, content: Content
) -> dict[str, Any]:
    """All of it, after it was divided, and after it was united again."""
    parts, count, checksum = [], 0, 0
    for number, key_groups in enumerate(key_groups_of_slots(PARALLELISM, MAX_PARALLELISM)):
        with _opened(backend, key_groups, job, whole) as state:
            values = state.get_state(VALUE)
            found = list(state.keys("value"))
            count += len(found)
            for first in range(0, len(found), content.batch):
                keys = found[first : first + content.batch]
                checksum += sum(map(_check, keys, values.get_many(keys).to_pylist()))
            parts.append(state.snapshot(2 + number, job).result())
    with _opened(backend, ALL, job, *parts) as state:
        values = state.get_state(VALUE)
        united = sum(
            sum(map(_check, keys.tolist(), values.get_many(pa.array(keys)).to_pylist()))
            for keys in content.batches()
        )
        neutral = state.snapshot(2 + PARALLELISM, job, form=SnapshotForm.NEUTRAL).result()
    return {
        "count": count,
        "checksum": checksum & _MASK,
        "united": united & _MASK,
        "neutral_bytes": neutral.size_bytes,
    }


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


def _write_and_read_a_little(backend: RocksDBStateBackend, content: Content) -> None:
    """So that all code is loaded before memory is measured."""
    with _opened(backend, ALL) as state:
        values, keys = state.get_state(VALUE), range(content.batch)
        values.put_many(pa.array(keys), [content.value(key) for key in keys])
        assert values.get_many([1]).to_pylist() == [content.value(1)]


def _check(key: int, value: bytes) -> int:
    return xxhash.xxh3_64_intdigest(value, seed=key)


def _resident_bytes(what: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


if __name__ == "__main__":
    answer = main(Path(sys.argv[1]), sys.argv[2], Content(int(sys.argv[3])))
    sys.stdout.write(json.dumps(answer) + "\n")
