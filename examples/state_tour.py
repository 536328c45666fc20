"""A tour of the state room: `make tour` runs it after that of the storage room.

An operator counts by key, a snapshot is taken in the middle, the operator is lost, and two others
go on from the snapshot, each with half of the keys.
"""

from __future__ import annotations

import operator
import tempfile

import pyarrow as pa

from holdfast.backends import (
    KeyGroupRange,
    ReducingStateDescriptor,
    StateBackend,
    ValueStateDescriptor,
    key_groups_of_slots,
    load_backend,
)
from holdfast.storage import JobStorage, StateSnapshot, load_storage

SPEND = ReducingStateDescriptor("spend", operator.add, int)
LAST = ValueStateDescriptor("last", str)
USERS = [f"user-{number}" for number in range(1000)]
GROUPS = 128


def main() -> None:
    """Tell the story in a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as directory:
        job = load_storage(directory).job("spend")
        backend = load_backend("hashmap")
        snapshot = lose_an_operator(backend, job)
        totals: dict[str, int] = {}
        for slot, key_groups in enumerate(key_groups_of_slots(2, GROUPS)):
            part = restored(backend, job, snapshot, key_groups)
            say(f"slot {slot} has key groups {key_groups}: {len(part)} users")
            totals |= part
        say(f"together {len(totals)} users, who spent {sum(totals.values())}: as at the snapshot")


def lose_an_operator(backend: StateBackend, job: JobStorage) -> StateSnapshot:
    """Work by the batch and by the row, with a snapshot in between, and end without another."""
    everything = KeyGroupRange(0, GROUPS - 1)
    with backend.open(uid="spend", key_groups=everything, max_parallelism=GROUPS) as state:
        spend, last = state.get_state(SPEND), state.get_state(LAST)
        for amount in range(10):
            spend.reduce_many(pa.array(USERS), pa.array([amount] * len(USERS)))
        say(f"ten batches of {len(USERS)} orders, 45 for each user")
        future = state.snapshot(1, job)
        say("a snapshot begins, and processing goes on")
        state.set_current_key("user-7")
        spend.add(1_000_000)
        last.update("after the barrier")
        snapshot = future.result()
        say(f"user-7 now has {spend.get()}; the snapshot has {snapshot.size_bytes} bytes")
    say("the operator is lost, with all that came after the snapshot")
    return snapshot


def restored(
    backend: StateBackend, job: JobStorage, snapshot: StateSnapshot, key_groups: KeyGroupRange
) -> dict[str, int]:
    """What one slot has after the restore."""
    with backend.open(
        uid="spend",
        key_groups=key_groups,
        max_parallelism=GROUPS,
        restore=[snapshot],
        storage=job,
    ) as state:
        spend = state.get_state(SPEND)
        users = list(state.keys("spend"))
        return dict(zip(users, spend.get_many(users).to_pylist(), strict=True))


def say(line: str) -> None:
    """One line of the story."""
    print(f"  {line}")


if __name__ == "__main__":
    main()
