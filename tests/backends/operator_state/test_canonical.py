"""Canonical snapshots of operator state: redistributed as others, and readable by any tool."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec import structs

from holdfast.backends import (
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateBackend,
    SnapshotForm,
)
from holdfast.backends.operator_state.snapshots import OPERATOR_PARQUET_KIND
from holdfast.storage import Corrupt, JobStorage, StateSnapshot, load_storage
from support.states.snapshot_targets import files_of

CANONICAL = SnapshotForm.CANONICAL
WAIT_S = 30
LIST = ListStateDescriptor("list", int)
UNION = ListStateDescriptor("union", dict[str, float])
RULES = MapStateDescriptor("rules", str, list[int])


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path)).job("job")


def opened(
    job: JobStorage, *restore: StateSnapshot, slot: int = 0, parallelism: int = 1
) -> OperatorStateBackend:
    return OperatorStateBackend.open(
        uid="op", slot=slot, parallelism=parallelism, restore=restore, storage=job
    )


def written(
    job: JobStorage, parallelism: int, form: SnapshotForm, number: int
) -> list[StateSnapshot]:
    """The snapshots of so many slots with something in each kind of state."""
    parts = []
    for slot in range(parallelism):
        with opened(job, slot=slot, parallelism=parallelism) as state:
            state.get_list_state(LIST).add_all(range(100 * slot, 100 * slot + 5000 * (slot + 1)))
            state.get_union_list_state(UNION).add_all([{"n": float(slot)}] * slot)
            rules = state.get_broadcast_state(RULES)
            for rule in ("a", "b"):
                rules.put(rule, [1, 2])
            parts.append(state.snapshot(number, job, form=form).result(WAIT_S))
    return parts


def content(job: JobStorage, parts: Sequence[StateSnapshot], parallelism: int) -> list[Any]:
    found = []
    for slot in range(parallelism):
        with opened(job, *parts, slot=slot, parallelism=parallelism) as state:
            rules = state.get_broadcast_state(RULES)
            found.append(
                (
                    list(state.get_list_state(LIST).get()),
                    list(state.get_union_list_state(UNION).get()),
                    sorted(rules.items()),
                )
            )
    return found


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
def test_redistribution_is_the_same_for_every_form(job: JobStorage, parallelism: int) -> None:
    own = written(job, 3, SnapshotForm.OWN, 1)
    canonical = written(job, 3, CANONICAL, 2)
    assert {part.kind for part in canonical} == {OPERATOR_PARQUET_KIND}
    assert not {part.kind for part in own} & {OPERATOR_PARQUET_KIND}
    expected = content(job, own, parallelism)
    assert content(job, canonical, parallelism) == expected
    assert content(job, [own[0], *canonical[1:]], parallelism) == expected  # each as it comes


@pytest.mark.parametrize("parallelism", [2, 3])
def test_undeclared_state_is_carried_into_later_snapshots(
    job: JobStorage, parallelism: int
) -> None:
    parts = written(job, 3, CANONICAL, 1)
    expected = content(job, parts, 4)
    carried = []
    for slot in range(parallelism):
        with opened(job, *parts, slot=slot, parallelism=parallelism) as state:
            carried.append(state.snapshot(2, job, form=CANONICAL).result(WAIT_S))
    found = content(job, carried, 4)
    assert elements(found) == elements(expected)
    assert [each[2] for each in found] == [each[2] for each in expected]


def elements(slots: Sequence[Any]) -> list[int]:
    """The elements of the list in all slots."""
    return sorted(element for each in slots for element in each[0])


def test_files_have_readable_columns(job: JobStorage) -> None:
    first, second = written(job, 2, CANONICAL, 1)
    names = {name.split("/", 2)[2] for name in files_of(second)}
    assert names == {
        f"op/~operator/{state}/part-00001-00000.parquet" for state in ("list", "union", "rules")
    }

    def rows(part: StateSnapshot, name: str) -> list[Any]:
        handles = [handle for each, handle in part.handles.items() if each.startswith(name)]
        return [row for each in handles for row in pq.read_table(job.open(each)).to_pylist()]

    assert rows(first, "list")[:2] == [
        {"slot": 0, "position": 0, "value": 0},
        {"slot": 0, "position": 1, "value": 1},
    ]
    assert [row["position"] for row in rows(second, "list")] == list(range(10_000))
    assert rows(second, "union") == [{"slot": 1, "position": 0, "value": [("n", 1.0)]}]
    assert rows(first, "rules") == [
        {"slot": 0, "map_key": "a", "value": [1, 2]},
        {"slot": 0, "map_key": "b", "value": [1, 2]},
    ]


@dataclass
class Offset:
    at: int


@dataclass
class Position:
    at: float
    by: str = "nobody"


def test_a_class_may_have_changed_since(job: JobStorage) -> None:
    with opened(job) as state:
        state.get_list_state(ListStateDescriptor("at", Offset)).add(Offset(7))
        part = state.snapshot(1, job, form=CANONICAL).result(WAIT_S)
    with opened(job, part) as state:
        found = state.get_list_state(ListStateDescriptor("at", Position)).get()
        assert list(found) == [Position(7.0)]


def test_an_empty_broadcast_map_is_a_copy_too(job: JobStorage) -> None:
    with opened(job) as state:
        state.get_broadcast_state(RULES)
        part = state.snapshot(1, job, form=CANONICAL).result(WAIT_S)
    assert not part.handles
    with opened(job, part) as state:
        assert list(state.get_broadcast_state(RULES).items()) == []


def test_a_file_of_another_slot_or_state_is_refused(job: JobStorage) -> None:
    first, second = written(job, 2, CANONICAL, 1)
    for other in (first.handles["list/0"], second.handles["union/1"]):
        swapped = structs.replace(second, handles={**second.handles, "list/0": other})
        with (
            opened(job, first, swapped, slot=1, parallelism=2) as state,
            pytest.raises(Corrupt, match=r"state 'list' of operator 'op'.*not the one"),
        ):
            state.get_list_state(LIST)
