"""A changelog that goes on for an hour keeps what it must, and nothing of it grows.

HOLDFAST_SOAK_MINUTES says how long instead, and HOLDFAST_SOAK_DIR where the readings go, as
`changelog-soak-<backend>.csv`; `tools/plot_soak.py` draws them.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.changelog.recording.recorders import ListChanges
from support.simulations.changelog_soak import Plan, Reading, Soak, check_bounded, written
from support.states.tried_backends import REGISTERED, backend_named

MINUTES = float(os.environ.get("HOLDFAST_SOAK_MINUTES", "60"))
LONG = Plan(
    seconds=MINUTES * 60,
    keys=60_000,
    checkpoint_s=1.0,
    materialize_s=30.0,
    life_s=min(180.0, MINUTES * 10),
    clean_s=60.0,
    warm_s=min(60.0, MINUTES * 6),
)
SHORT = Plan(seconds=8.0, keys=500, checkpoint_s=0.1, materialize_s=0.5, life_s=2.0, clean_s=0.5)
MOST = 1.5


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 1800)
@pytest.mark.parametrize("name", REGISTERED)
def test_an_hour_of_changes_leaves_no_more_than_the_first_minutes(
    name: str, tmp_path: Path
) -> None:
    soak = Soak(backend_named(name, tmp_path / "state"), tmp_path / "job", LONG)
    try:
        soak.run()
    finally:
        kept = Path(os.environ.get("HOLDFAST_SOAK_DIR", tmp_path))
        written(soak.readings, kept / f"changelog-soak-{name}.csv")
    check_bounded(soak.readings, MOST)
    assert soak.lives >= 3
    assert soak.readings[-1].materializations >= LONG.seconds / LONG.materialize_s / 3
    assert len(soak.readings) >= (LONG.seconds - LONG.warm_s) / LONG.checkpoint_s / 3


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTERED)
def test_some_seconds_of_changes_are_all_there_after_each_death(
    name: str, quick_path: Path
) -> None:
    soak = Soak(backend_named(name, quick_path / "state"), quick_path / "job", SHORT)
    soak.run()
    check_bounded(soak.readings, 2 * MOST)
    assert soak.lives >= 2
    assert len({reading.parallelism for reading in soak.readings}) > 1
    assert soak.readings[-1].materializations >= soak.lives


@pytest.mark.slow
def test_files_that_are_never_deleted_are_found_to_grow(quick_path: Path) -> None:
    plan = replace(SHORT, life_s=1.0)
    soak = Soak(backend_named("hashmap", quick_path / "state"), quick_path / "job", plan)
    soak.deletes = False
    soak.run()
    with pytest.raises(AssertionError, match="what is stored grows"):
        check_bounded(soak.readings, 2 * MOST)


@pytest.mark.slow
def test_a_change_that_the_log_lacks_is_found(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(changes: ListChanges, address: object, cells: object) -> None:
        del changes, address, cells

    monkeypatch.setattr(ListChanges, "extend", forget)
    soak = Soak(backend_named("hashmap", quick_path / "state"), quick_path / "job", SHORT)
    with pytest.raises(AssertionError, match=r"list of key .*: expected"):
        soak.run()


def reading(second: int, **sizes: int) -> Reading:
    of_all = {"stored_bytes": 1000, "log_bytes": 100, "resident_bytes": 10_000, **sizes}
    return Reading(
        second=float(second),
        checkpoint_id=second,
        life=0,
        parallelism=1,
        rows=second,
        checkpoint_ms=1.0,
        base_bytes=900,
        materializations=second,
        **of_all,
    )


@pytest.mark.parametrize(
    ("what", "grown"),
    [
        ("what is stored", lambda second: {"stored_bytes": 1000 + 20 * second}),
        ("the log", lambda second: {"log_bytes": 100 + 2 * second}),
        ("memory", lambda second: {"resident_bytes": 10_000 + 200 * second}),
    ],
)
def test_each_size_that_grows_is_named(what: str, grown: Callable[[int], dict[str, int]]) -> None:
    check_bounded([reading(second) for second in range(90)], MOST)
    with pytest.raises(AssertionError, match=f"{what} grows: "):
        check_bounded([reading(second, **grown(second)) for second in range(90)], MOST)


def test_a_size_that_rises_and_falls_does_not_grow() -> None:
    check_bounded([reading(each, log_bytes=100 + each % 10 * 50) for each in range(90)], MOST)


def test_readings_are_written_by_name(tmp_path: Path) -> None:
    path = written([reading(1), reading(2)], tmp_path / "readings.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["second"], row["stored_bytes"]) for row in rows] == [
        ("1.0", "1000"),
        ("2.0", "1000"),
    ]
