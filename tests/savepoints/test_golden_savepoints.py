"""Savepoints and retained checkpoints of version 1 are read by later versions, as users have them.

What they hold is in `golden/savepoints-v1/content.json`; they were made from it, and nothing here
computes it.
"""

import importlib
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from golden_content import (
    CONTENT,
    FIRST_MS,
    GOLDEN,
    LIFE_MS,
    STATES,
    THEN_MS,
    expected,
    rows,
    rows_without_keys,
    timer_rows,
)
from golden_entries import as_first_described
from golden_savepoints import JOB, SNAPSHOTS, UID, build, golden, positions, restored
from holdfast.backends import StateBackend, load_backend
from holdfast.runtime import read_state
from holdfast.runtime.cli.application import application
from holdfast.savepoints import StoredSnapshot, compare, find_snapshot, validate
from support.installing import install_project

APART = ("slot", "key", "namespace", "time", "map_key", "position")
"""The columns that tell rows of a state from one another, as far as it has them."""
QUICK = ("canonical", "checkpoint-hashmap")
NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SNAPSHOTS]
KINDS = {
    "canonical": {"holdfast.keyed-parquet/1", "holdfast.operator-parquet/1"},
    "native-hashmap": {"holdfast.keyed-entries/1", "holdfast.operator-state/1"},
    "native-rocksdb": {"holdfast.keyed-files/1", "holdfast.operator-state/1"},
    "native-sqlite": {"holdfast.keyed-entries/1", "holdfast.operator-state/1"},
    "checkpoint-hashmap": {"holdfast.keyed-entries/1", "holdfast.operator-state/1"},
    "checkpoint-changelog-rocksdb": {"holdfast.keyed-log/1", "holdfast.operator-state/1"},
}


def files_below(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }


@pytest.fixture(autouse=True)
def _golden_stays_as_it_is() -> Iterator[None]:
    before = files_below(GOLDEN)
    assert len(before) > len(SNAPSHOTS)
    yield
    assert files_below(GOLDEN) == before


def kinds(snapshot: StoredSnapshot) -> set[str]:
    return {part.kind for part in snapshot.metadata.operators[UID].parts}


def its(name: str) -> StateBackend:
    """A backend that goes on from a golden snapshot as it is."""
    return load_backend("rocksdb" if "rocksdb" in name else "hashmap")


def converted(path: Path, to: Path, *options: str) -> StoredSnapshot:
    """What `holdfast savepoint convert` makes of a snapshot."""
    arguments = ["savepoint", "convert", str(path), str(to), "--workers", "1", *options]
    result = CliRunner().invoke(application, arguments, catch_exceptions=True)
    assert result.exit_code == 0, (result.output, result.exception)
    return find_snapshot(str(to))


def in_order(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows by what tells them apart, without their key groups; maps are pairs in Arrow."""
    rows = [{name: value for name, value in row.items() if name != "key_group"} for row in found]
    for row in rows:
        if "map_key" in row and isinstance(row["value"], list):
            row["value"] = dict(row["value"])
    return sorted(rows, key=lambda row: [row[name] for name in APART if name in row])


def of_pandas(folder: Path) -> list[dict[str, Any]]:
    """The rows in a folder of Parquet, as pandas has them by itself."""
    pandas = importlib.import_module("pandas")  # which comes without types
    found = pandas.read_parquet(folder).to_dict("records")
    return in_order({str(name): plain(value) for name, value in row.items()} for row in found)


def plain(value: Any) -> Any:
    """What pandas answers for a value: lists are arrays there, and null is NaN among floats."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_snapshot_is_found_and_whole(name: str) -> None:
    snapshot = find_snapshot(str(golden(name)))
    metadata = snapshot.metadata
    left = metadata.operators[UID]
    assert (metadata.job_id, metadata.checkpoint_id) == (JOB, 2)
    assert metadata.kind == SNAPSHOTS[name].kind
    assert metadata.properties.get("format", "") == SNAPSHOTS[name].format
    assert (left.parallelism, left.max_parallelism) == (2, 128)
    assert kinds(snapshot) == KINDS[name]
    told = validate(snapshot, lambda _: None)
    assert not told.findings
    assert told.files == len(metadata.files()) > 0
    assert positions(snapshot) == CONTENT["sources"]


@pytest.mark.parametrize("name", NAMES)
def test_a_job_of_any_backend_restores_it(name: str, backend: StateBackend) -> None:
    assert restored(find_snapshot(str(golden(name))), backend) == expected(THEN_MS)


@pytest.mark.parametrize("name", NAMES)
def test_state_expires_at_its_time(name: str) -> None:
    snapshot = find_snapshot(str(golden(name)))
    last_ms = FIRST_MS + LIFE_MS - 1
    assert restored(snapshot, its(name), now_ms=last_ms) == expected(THEN_MS)
    later = expected(last_ms + 1)
    assert restored(snapshot, its(name), now_ms=last_ms + 1) == later
    assert later["keyed"]["dies"] == {"bob": "later", "kéy": "plus tard"}
    assert restored(snapshot, its(name), now_ms=THEN_MS + LIFE_MS)["keyed"]["dies"] == {}


@pytest.mark.parametrize("name", NAMES)
def test_its_states_are_tables(name: str) -> None:
    path = str(golden(name))
    for state in STATES:
        found = read_state(path, operator=UID, state=state).read_all()
        assert in_order(found.to_pylist()) == in_order(rows(state)), state
    for domain in CONTENT["timers"]:
        found = read_state(path, operator=UID, timers=domain).read_all()
        assert in_order(found.to_pylist()) == in_order(timer_rows(domain)), domain
    for state in CONTENT["operator"]:
        found = read_state(path, operator=UID, state=state).read_all()
        assert in_order(found.to_pylist()) == in_order(rows_without_keys(state)), state


def test_the_canonical_one_is_read_without_holdfast() -> None:
    folder = golden("canonical") / "op~2F1"
    there = {each.name for each in folder.iterdir()}
    assert there == {*(state.replace(" ", "~20") for state in STATES), "~timers", "~operator"}
    for state in STATES:
        assert of_pandas(folder / state.replace(" ", "~20")) == in_order(rows(state)), state
        for file in (folder / state.replace(" ", "~20")).iterdir():
            said = pq.read_schema(file).metadata
            assert said[b"holdfast.format"] == b"holdfast.keyed-parquet/1"
            assert (said[b"holdfast.uid"], said[b"holdfast.state"]) == (b"op/1", state.encode())
            assert said[b"holdfast.max_parallelism"] == b"128"
    for domain in CONTENT["timers"]:
        found = of_pandas(folder / "~timers" / "user-timers" / domain)
        assert found == in_order(timer_rows(domain)), domain
    for state in CONTENT["operator"]:
        assert of_pandas(folder / "~operator" / state) == in_order(rows_without_keys(state)), state


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_snapshot_becomes_a_canonical_savepoint(name: str, quick_path: Path) -> None:
    source = find_snapshot(str(golden(name)))
    after = converted(golden(name), quick_path / "to")
    assert (after.metadata.kind, kinds(after)) == ("savepoint", KINDS["canonical"])
    assert compare(source, after, lambda _: None).are_equal
    assert restored(after, load_backend("hashmap")) == expected(THEN_MS)
    assert positions(after) == CONTENT["sources"]


@pytest.mark.slow
@pytest.mark.dealt("name", "to")
@pytest.mark.parametrize("to", ["hashmap", "rocksdb", "sqlite"])
@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_golden_snapshot_becomes_a_native_savepoint(
    name: str, to: str, quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = Path(__file__).parents[1] / "sqlite_plugin"
    monkeypatch.syspath_prepend(install_project(quick_path / "site", plugin))
    after = converted(golden(name), quick_path / "to", "--backend", to)
    assert kinds(after) == KINDS[f"native-{to}"]
    assert compare(find_snapshot(str(golden(name))), after, lambda _: None).are_equal
    assert restored(after, load_backend(to)) == expected(THEN_MS)
    assert positions(after) == CONTENT["sources"]


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_in_another_place_reads_the_same(name: str, quick_path: Path) -> None:
    shutil.copytree(GOLDEN / name, quick_path / "moved")
    path = golden("moved", quick_path)
    snapshot = find_snapshot(str(path))
    assert not validate(snapshot, lambda _: None).findings
    assert restored(snapshot, its(name)) == expected(THEN_MS)
    assert positions(snapshot) == CONTENT["sources"]
    root = path if SNAPSHOTS[name].kind == "savepoint" else path.parent
    spoiled = root / max(snapshot.metadata.files())
    spoiled.write_bytes(bytes(spoiled.stat().st_size))
    assert validate(snapshot, lambda _: None).findings  # so it is the copy that is read


@pytest.mark.parametrize("name", NAMES)
def test_this_version_writes_the_same(name: str, quick_path: Path) -> None:
    before = find_snapshot(str(golden(name)))
    after = find_snapshot(str(build(name, quick_path / "new", quick_path / "state")))
    assert compare(before, after, lambda _: None).are_equal
    assert kinds(after) == KINDS[name]
    assert after.metadata.properties == before.metadata.properties
    assert positions(after) == CONTENT["sources"]
    if "rocksdb" not in name:  # whose attributes say how long its files are
        written, golden_ones = (
            msgspec.json.encode([part.attributes for part in each.metadata.operators[UID].parts])
            for each in (after, before)
        )
        assert msgspec.json.decode(as_first_described(written)) == msgspec.json.decode(golden_ones)
