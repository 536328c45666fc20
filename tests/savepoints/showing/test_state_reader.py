"""State is read by the path of a savepoint, without a job and without Spark."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.backends import (
    ListStateDescriptor,
    OperatorStateBackend,
    SnapshotForm,
    ValueStateDescriptor,
    key_groups_of_slots,
    load_backend,
)
from holdfast.backends.state.timers import USER_TIMERS
from holdfast.runtime import read_state
from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    Invalid,
    NotFound,
    OperatorState,
    SavepointFolder,
    StateSnapshot,
    load_storage,
)

TOTALS = {("ann", 1): 3, ("bob", 2): -5, ("ü", 3): 0}


def parts_of(folder: SavepointFolder, form: SnapshotForm) -> Iterator[StateSnapshot]:
    for slot, key_groups in enumerate(key_groups_of_slots(2, 128)):
        backend = load_backend("hashmap")
        with backend.open(
            uid="spend", key_groups=key_groups, max_parallelism=128, key_type=tuple[str, int]
        ) as state:
            total = state.get_state(ValueStateDescriptor("total", int))
            both = state.get_state(ValueStateDescriptor("both", int))
            timers = state.timers(USER_TIMERS)
            for key, value in TOTALS.items():
                with suppress(Invalid):  # another slot's
                    state.set_current_key(key)
                    total.update(value)
                    both.update(value)
                    timers.register_event_time_timer(1000 + value)
            yield state.snapshot(1, folder, form=form).result(60)
        with OperatorStateBackend.open(uid="spend", slot=slot, parallelism=2) as other:
            other.get_list_state(ListStateDescriptor("both", str)).update([f"slot {slot}"])
            yield other.snapshot(1, folder, form=form).result(60)


@pytest.fixture(params=["canonical", "neutral"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    folder = SavepointFolder.begin(load_storage(str(tmp_path)), "orders")
    form = SnapshotForm(request.param)
    state = OperatorState(parallelism=2, max_parallelism=128, parts=tuple(parts_of(folder, form)))
    folder.commit(
        CheckpointMetadata(
            job_id="orders",
            checkpoint_id=1,
            kind="savepoint",
            triggered_ms=1,
            completed_ms=2,
            operators={"spend": state, "sink": OperatorState(parallelism=2, max_parallelism=128)},
        )
    )
    return str(tmp_path / folder.folder)


def plain(reader: pa.RecordBatchReader) -> dict[Any, Any]:
    table = reader.read_all()
    keys = [tuple(key.values()) for key in table.column("key").to_pylist()]
    return dict(zip(keys, table.column(table.column_names[-1]).to_pylist(), strict=True))


def test_all_rows_of_a_state(path: str) -> None:
    reader = read_state(path, operator="spend", state="total")
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema.names == ["key_group", "key", "value"]
    assert plain(reader) == TOTALS
    assert plain(read_state(f"{path}/_metadata", operator="spend", state="total")) == TOTALS


def test_a_frame_of_pandas(path: str) -> None:
    frame = read_state(path, operator="spend", state="total").read_pandas()
    assert type(frame).__module__.startswith("pandas.")
    assert sorted(frame["value"]) == [-5, 0, 3]


def test_some_rows(path: str) -> None:
    one = read_state(path, operator="spend", state="total", key=("bob", 2))
    assert plain(one) == {("bob", 2): -5}
    two = [("ü", 3), ("ann", 1), ("nobody", 1)]
    some = read_state(path, operator="spend", state="total", keys=two)
    assert plain(some) == {("ann", 1): 3, ("ü", 3): 0}
    assert plain(read_state(path, operator="spend", state="total", keys=[])) == {}
    found: dict[Any, Any] = {}
    for groups in [(0, 40), (41, 127)]:
        found |= plain(read_state(path, operator="spend", state="total", key_groups=groups))
    assert found == TOTALS


def test_timers(path: str) -> None:
    found = read_state(path, operator="spend", timers="event")
    assert plain(found) == {key: 1000 + value for key, value in TOTALS.items()}
    assert read_state(
        path, operator="spend", state="_timers/user-timers/event"
    ).read_all().num_rows == len(TOTALS)


def test_state_without_keys(path: str) -> None:
    reader = read_state(path, operator="spend", state="both", kind="operator")
    expected = [{"slot": slot, "position": 0, "value": f"slot {slot}"} for slot in (0, 1)]
    assert reader.read_all().to_pylist() == expected
    reader = read_state(path, operator="spend", state="both", kind="operator", key_groups=(1, 1))
    assert reader.read_all().to_pylist() == expected[1:]
    assert plain(read_state(path, operator="spend", state="both", kind="keyed")) == TOTALS


@pytest.mark.parametrize(
    ("named", "kind", "told"),
    [
        ({"operator": "spent", "state": "total"}, NotFound, "no operator 'spent'.*'spend'"),
        (
            {"operator": "spend", "state": "sum"},
            NotFound,
            r"no state 'sum'.*expected _timers/user-timers/event, .*both, total, both \(without",
        ),
        ({"operator": "sink", "state": "x"}, NotFound, "no state 'x'.*expected none at all"),
        (
            {"operator": "spend", "state": "total", "kind": "operator"},
            NotFound,
            "no state 'total', operator",
        ),
        ({"operator": "spend", "state": "both"}, Invalid, "two states 'both'.*Say kind="),
        ({"operator": "spend", "state": "both", "kind": "?"}, Invalid, "no such kind"),
        ({"operator": "spend"}, Invalid, "either a state or timers.*found neither"),
        ({"operator": "spend", "state": "a", "timers": "event"}, Invalid, "found both"),
        ({"operator": "spend", "timers": "late"}, Invalid, "expected event or processing"),
        (
            {"operator": "spend", "state": "total", "key": "bob"},
            Invalid,
            "a key does not fit its type",
        ),
        (
            {"operator": "spend", "state": "total", "key": 1, "keys": [1]},
            Invalid,
            "both one key and several",
        ),
        (
            {"operator": "spend", "state": "total", "key_groups": (3, 128)},
            Invalid,
            "do not exist: expected .*from 0 to 127, found .3, 128",
        ),
        (
            {"operator": "spend", "state": "both", "kind": "operator", "key": "x"},
            Invalid,
            "state 'both' has no keys",
        ),
    ],
)
def test_a_wrong_argument_is_an_error(
    path: str, named: Any, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=f"(?s){told}"):
        read_state(path, **named)


def test_no_savepoint(path: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no savepoint"):
        read_state(str(tmp_path / "nothing"), operator="spend", state="total")
    (Path(path) / "_metadata").unlink()
    with pytest.raises(NotFound, match=r"there is no (whole )?savepoint"):
        read_state(path, operator="spend", state="total")


def test_a_byte_that_has_changed(path: str) -> None:
    files = [file for file in Path(path).rglob("*") if file.is_file() and "total" in str(file)]
    if not files:
        pytest.skip("all is in _metadata, which has a checksum of its own")
    for file in files:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    with pytest.raises(Corrupt, match="changed after it was written"):
        read_state(path, operator="spend", state="total").read_all()


def test_options_reach_the_storage(path: str) -> None:
    named: Any = {"operator": "spend", "state": "total"}
    with pytest.raises(Invalid, match="endpoint"):
        read_state(path, **named, storage_options={"endpoint": "http://127.0.0.1:1"})
