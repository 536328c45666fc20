"""What a conversion does in which pieces: decided from what a snapshot says of itself."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import SnapshotForm, load_backend
from holdfast.backends.keys.groups import key_groups_of_slots
from holdfast.savepoints import StoredSnapshot
from holdfast.savepoints.conversion import ConversionOptions
from holdfast.savepoints.conversion import plan as planning
from holdfast.savepoints.conversion.plan import ConversionPlan, OperatorPlan, plan_conversion
from support.states.stored_snapshots import stored
from support.states.tried_backends import backend_named


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StoredSnapshot]:
    folder = tmp_path_factory.mktemp("places")
    return {
        name: stored(
            folder / name, backend_named(name, folder / "work"), "savepoint", SnapshotForm.NATIVE
        )
        for name in ("hashmap", "rocksdb")
    }


def planned(
    source: StoredSnapshot, *, is_files: bool = False, workers: int = 16, **options: Any
) -> ConversionPlan:
    made = ConversionOptions(backend="hashmap", is_canonical=False, **options)
    return plan_conversion(source, made, is_files=is_files, workers=workers)


def check_covers(plan: OperatorPlan) -> None:
    for spans, groups in ((plan.pieces, plan.max_parallelism), (plan.spread, 128)):
        if spans:
            assert (spans[0].first, spans[-1].last) == (0, groups - 1)
            assert all(one.last + 1 == other.first for one, other in pairwise(spans))


@pytest.mark.parametrize("name", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("max_parallelism", [None, 128, 7, 1000])
@pytest.mark.parametrize("is_files", [False, True])
def test_pieces_have_each_key_group_once(
    places: dict[str, StoredSnapshot],
    name: str,
    max_parallelism: int | None,
    *,
    is_files: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for size in ("_PIECE_BYTES", "_SORTED_BYTES", "_SHARED_BYTES"):
        monkeypatch.setattr(f"holdfast.savepoints.conversion.plan.{size}", 5_000)
    for parallelism in (None, 5):
        (plan,) = planned(
            places[name],
            is_files=is_files,
            max_parallelism=max_parallelism,
            parallelism=parallelism,
        ).operators
        check_covers(plan)
        assert plan.parallelism == (parallelism or 3)
        assert bool(plan.spread) == (max_parallelism not in (None, 128))
        if is_files:
            slots = key_groups_of_slots(plan.parallelism, plan.max_parallelism)
            assert [span.key_groups for span in plan.pieces] == slots
        else:
            assert len(plan.pieces) > 3


def test_files_of_a_slot_are_read_in_pieces_of_that_slot(
    places: dict[str, StoredSnapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {slot.last for slot in key_groups_of_slots(3, 128)}
    (plan,) = planned(places["rocksdb"]).operators
    assert {span.last for span in plan.pieces} == ends
    monkeypatch.setattr("holdfast.savepoints.conversion.plan._SHARED_BYTES", 5_000)
    (plan,) = planned(places["rocksdb"]).operators
    assert {span.last for span in plan.pieces} > ends


@pytest.mark.parametrize(
    ("size_bytes", "workers", "pieces"),
    [(10, 4, 1), (250, 4, 3), (900, 4, 4), (1_000, 4, 4), (1_001, 1, 2), (4_001, 4, 8), (9, 1, 1)],
)
def test_streamed_forms_are_cut_evenly_for_all_workers(
    size_bytes: int, workers: int, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.savepoints.conversion.plan._PIECE_BYTES", 1_000)
    monkeypatch.setattr("holdfast.savepoints.conversion.plan._LEAST_BYTES", 100)
    assert planning._even(size_bytes, workers) == pieces


@pytest.mark.parametrize("is_files", [False, True])
@pytest.mark.parametrize(("workers", "pieces"), [(1, 3), (3, 3), (4, 6), (6, 6), (7, 9)])
def test_files_are_downloaded_at_most_once_for_each_worker(
    places: dict[str, StoredSnapshot],
    workers: int,
    pieces: int,
    *,
    is_files: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for size in ("_SHARED_BYTES", "_FILES_BYTES"):
        monkeypatch.setattr(f"holdfast.savepoints.conversion.plan.{size}", 100)
    (plan,) = planned(places["rocksdb"], is_files=is_files, workers=workers).operators
    assert len(plan.pieces) == pieces
    (plan,) = planned(places["rocksdb"], workers=workers, max_parallelism=1000).operators
    assert len(plan.spread) == pieces
    (plan,) = planned(places["hashmap"], is_files=True, workers=workers).operators
    assert len(plan.pieces) > 9  # what streams is cut by its size


def test_the_fingerprint_depends_on_source_and_options(
    places: dict[str, StoredSnapshot], quick_path: Path
) -> None:
    other = stored(quick_path, load_backend("hashmap"), "savepoint", SnapshotForm.NATIVE, slots=2)
    plans = [
        planned(places["hashmap"]),
        planned(places["rocksdb"]),
        planned(other),
        planned(places["hashmap"], max_parallelism=128),
        planned(places["hashmap"], parallelism=3),
        planned(places["hashmap"], operators=("op/1",)),
    ]
    assert len({plan.fingerprint for plan in plans}) == len(plans)
    assert planned(places["hashmap"]) == plans[0]
