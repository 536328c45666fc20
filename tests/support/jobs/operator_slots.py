"""Slots with operator state for tests: how they are opened, and stopped with a snapshot."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.backends import ListStateDescriptor, MapStateDescriptor, OperatorStateBackend
from holdfast.storage import JobStorage, StateSnapshot

LIST = ListStateDescriptor("list", str)
UNION = ListStateDescriptor("union", dict[str, list[int]])
RULES = MapStateDescriptor("rules", tuple[str, int], list[int])


def opened(
    *snapshots: StateSnapshot,
    slot: int = 0,
    parallelism: int = 1,
    job: JobStorage | None = None,
    **options: Any,
) -> OperatorStateBackend:
    return OperatorStateBackend.open(
        **{
            "uid": "op",
            "slot": slot,
            "parallelism": parallelism,
            "restore": snapshots,
            "storage": job,
            **options,
        }
    )


def started(
    parallelism: int, snapshots: Sequence[StateSnapshot], job: JobStorage
) -> list[OperatorStateBackend]:
    shuffled = random.Random(parallelism).sample(snapshots, len(snapshots))
    return [
        opened(*shuffled, slot=slot, parallelism=parallelism, job=job)
        for slot in range(parallelism)
    ]


def stopped(
    slots: Iterable[OperatorStateBackend], number: int, job: JobStorage, compression: str = ""
) -> list[StateSnapshot]:
    slots = list(slots)
    futures = [slot.snapshot(number, job, compression=compression) for slot in slots]
    snapshots = [future.result(30) for future in futures]
    for slot in slots:
        slot.close()
    return snapshots


def union_element(number: int) -> dict[str, list[int]]:
    return {f"partition-{number}": [number] * (number % 4)}


def keys_of(elements: Iterable[dict[str, list[int]]]) -> list[str]:
    return sorted(key for element in elements for key in element)
