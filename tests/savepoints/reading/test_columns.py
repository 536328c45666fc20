"""One state as typed columns, by parts and by keys: of every backend and form the same rows."""

import datetime as dt
import pickle
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends import (
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateBackend,
    SnapshotForm,
    StateBackend,
    ValueStateDescriptor,
    key_groups_of_slots,
    load_backend,
)
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_group
from holdfast.backends.snapshots.parquet import read_part_columns
from holdfast.savepoints.reading.columns import (
    KeyedColumns,
    KeySet,
    StateColumns,
    UnkeyedColumns,
    even_ranges,
)
from holdfast.savepoints.reading.readers import KeyedReader, OperatorReader
from holdfast.storage import Invalid, JobStorage, StateSnapshot, load_storage
from state_values import Fixed
from support.states.fleets import KEYS, STATES, Fleet, fill

UID = "op"
STR = key_codec_for(str)


@pytest.fixture
def job(quick_path: Any) -> JobStorage:
    return load_storage(str(quick_path / "job")).job("job")


def snapshots(
    backend: StateBackend, job: JobStorage, form: SnapshotForm, slots: int = 2
) -> list[StateSnapshot]:
    opened = [
        backend.open(uid=UID, key_groups=groups, max_parallelism=64, key_type=str, storage=job)
        for groups in key_groups_of_slots(slots, 64)
    ]
    try:
        fleet = Fleet(opened)
        fill(fleet)
        return fleet.snapshots(1, job, form)
    finally:
        for slot in opened:
            slot.close()


def rows(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def counted(batches: Any) -> Counter[str]:
    return Counter(str(row) for row in rows(batches))


@pytest.mark.parametrize("form", [SnapshotForm.OWN, SnapshotForm.CANONICAL])
def test_parts_cover_all_rows_and_selected_keys_are_found(
    backend: StateBackend, job: JobStorage, form: SnapshotForm
) -> None:
    reader = KeyedReader(UID, snapshots(backend, job, form), job)
    for table in reader.description.tables:
        columns = pickle.loads(pickle.dumps(KeyedColumns(reader, table)))
        batches = list(columns.batches(columns.places))
        for batch in batches:
            assert batch.schema.equals(columns.schema, check_metadata=True)
        everything = counted(batches)
        assert everything
        parts = columns.parts(7)
        assert parts[0][0] == 0
        assert parts[-1][1] == 63
        assert len(parts) > 1
        assert sum((counted(columns.batches(each)) for each in parts), Counter()) == everything
        wanted = KEYS[3], KEYS[40], "no such key"
        keys = KeySet(columns.keys, 64, map(STR.encode, wanted))
        expected = [row for row in rows(batches) if row["key"] in wanted]
        assert expected
        assert rows(columns.batches(columns.places, keys)) == expected, table.name
        some = [row for row in expected if row["key_group"] <= 20]
        assert rows(columns.batches((0, 20), keys)) == some


def test_only_files_that_can_contain_a_key_are_read(
    job: JobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = snapshots(load_backend("hashmap"), job, SnapshotForm.CANONICAL, slots=4)
    reader = KeyedReader(UID, parts, job)
    columns = KeyedColumns(reader, reader.description.named("value")[0])
    known = rows(columns.batches(columns.places))[0]["key"]
    opened: list[Any] = []

    def noted(*args: Any, **named: Any) -> Any:
        opened.append((args[1], named["groups"]))
        return read_part_columns(*args, **named)

    monkeypatch.setattr("holdfast.savepoints.reading.columns.read_part_columns", noted)
    keys = KeySet(columns.keys, 64, [STR.encode(known)])
    (row,) = rows(columns.batches(columns.places, keys))
    assert row["key"] == known
    group = key_group(STR.hash(known), 64)
    assert [groups for _, groups in opened] == [(group, group)], "one file of four"


@dataclass
class First:
    """What it was."""

    amount: int


@dataclass
class Later:
    """What it became."""

    amount: int
    note: str | None = None
    marks: list[int] = field(default_factory=list)


def of_class(
    kind: Any, slots: list[int], job: JobStorage, before: Any = None
) -> list[StateSnapshot]:
    """Canonical snapshots of four slots, some of which have asked for the state as it is now."""
    found = []
    for slot, groups in enumerate(key_groups_of_slots(4, 64)):
        named: dict[str, Any] = {"uid": UID, "key_groups": groups, "max_parallelism": 64}
        restore = [] if before is None else [before[slot]]
        backend = load_backend("hashmap")
        with backend.open(**named, key_type=str, restore=restore, storage=job) as state:
            if slot in slots:
                each = state.get_state(ValueStateDescriptor("v", kind))
                for key in KEYS:
                    if before is None and key_group(STR.hash(key), 64) in groups:
                        state.set_current_key(key)
                        each.update(kind(len(key)))
            number = 1 if before is None else 2
            part = state.snapshot(number, job, form=SnapshotForm.CANONICAL).result(60)
            found.append(part)
    return found


def test_records_have_fields_where_all_files_have_them(job: JobStorage) -> None:
    first = of_class(First, [0, 1, 2, 3], job)
    for slots, is_struct in [([0, 1, 2, 3], True), ([], True), ([0, 1], None)]:
        parts = of_class(Later, slots, job, first)
        reader = KeyedReader(UID, parts, job)
        for table in reader.description.tables:
            columns = KeyedColumns(reader, table)
            found = rows(columns.batches(columns.places))
            if is_struct is not None:
                assert len(found) == len(KEYS)
                assert pa.types.is_struct(columns.schema.field("value").type)
                names = set(found[0]["value"])
                assert names == ({"amount", "note", "marks"} if slots else {"amount"})
        kinds = len(reader.description.tables)
        assert kinds == (1 if is_struct else 2), "some as it is now, some as it was"


def test_a_state_without_a_key_type_is_refused(job: JobStorage) -> None:
    with load_backend("hashmap").open(
        uid=UID, key_groups=KeyGroupRange(0, 63), max_parallelism=64
    ) as state:
        state.get_state(STATES["value"])
        part = state.snapshot(1, job, form=SnapshotForm.CANONICAL).result(60)
    reader = KeyedReader(UID, [part], job)
    with pytest.raises(Invalid, match="state 'value' of operator 'op' has no rows yet"):
        KeyedColumns(reader, reader.description.tables[0])


@pytest.mark.parametrize("form", [SnapshotForm.OWN, SnapshotForm.CANONICAL])
def test_state_without_keys_is_read_by_slot(job: JobStorage, form: SnapshotForm) -> None:
    parts = []
    for slot in range(3):
        with OperatorStateBackend.open(uid=UID, slot=slot, parallelism=3) as state:
            state.get_list_state(ListStateDescriptor("list", str)).update([f"{slot}", "x"])
            state.get_broadcast_state(MapStateDescriptor("rules", str, int)).put("a", 1)
            parts.append(state.snapshot(1, job, form=form).result(60))
    reader = OperatorReader(UID, parts, job)
    found = {table.name: UnkeyedColumns(reader, table) for table in reader.tables()}
    columns: StateColumns = pickle.loads(pickle.dumps(found["list"]))
    assert columns.parts(1) == [(0, 0), (1, 1), (2, 2)]
    assert rows(columns.batches((1, 1))) == [
        {"slot": 1, "position": 0, "value": "1"},
        {"slot": 1, "position": 1, "value": "x"},
    ]
    assert len(rows(columns.batches(columns.places))) == 6
    rules = rows(found["rules"].batches((0, 2)))
    assert rules == [{"slot": slot, "map_key": "a", "value": 1} for slot in range(3)]
    with pytest.raises(Invalid, match="has no keys"):
        list(columns.batches((0, 2), KeySet({"type": "str"}, 64, [])))


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=300),
    st.floats(1, 1e6),
)
def test_ranges_cover_each_place_once(weights: list[float], most: float) -> None:
    found = even_ranges(weights, most)
    assert found[0][0] == 0
    assert found[-1][1] == len(weights) - 1
    assert all(first <= last for first, last in found)
    assert all(one[1] + 1 == other[0] for one, other in pairwise(found))


def test_ranges_are_as_even_as_they_can_be() -> None:
    assert even_ranges([1.0] * 8, 2) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert even_ranges([1.0] * 8, 100) == [(0, 7)]
    assert even_ranges([0.0] * 8, 100) == [(0, 7)]
    assert even_ranges([100.0, 1, 1, 1], 34)[0] == (0, 0), "a heavy key group is alone"
    assert even_ranges([1.0], 0.1) == [(0, 0)], "and cannot be cut"


def test_a_value_that_is_not_a_key_encodes_to_none() -> None:
    schema = key_codec_for(tuple[int, str]).describe()
    encoded = key_codec_for(tuple[int, str]).encode((1, "a"))
    assert KeySet.encode(schema, {"_1": 1, "_2": "a"}) == encoded
    assert KeySet.encode(schema, {"_1": "1", "_2": "a"}) is None
    assert KeySet.encode({"type": "int"}, 2**70) is None
    assert KeySet.encode({"type": "decimal"}, "x") is None
    assert KeySet.encode({"type": "datetime"}, "2024-02-30T00:00:00") is None


DAY = dt.date(2024, 1, 31)


@pytest.mark.parametrize(
    ("annotation", "said", "key"),
    [
        (int, 5, 5),
        (float, 5, 5.0),
        (bool, True, True),
        (bytes, "ü", "ü".encode()),
        (dt.date, DAY, DAY),
        (dt.date, "2024-01-31", DAY),
        (tuple[dt.date, int], ["2024-01-31", 5], (DAY, 5)),
        (tuple[dt.date, int], {"_2": 5, "_1": DAY}, (DAY, 5)),
        (Fixed, [1, None], Fixed(1, None)),
        (tuple[tuple[int, str], ...], [[1, "a"], {"_1": 2, "_2": "b"}], ((1, "a"), (2, "b"))),
        (dt.date | None, "2024-01-31", DAY),
        (dt.date | None, None, None),
        (tuple[()], [], ()),
        (dt.datetime, "2024-01-31T00:00:00", dt.datetime(2024, 1, 31)),  # noqa: DTZ001
        (Decimal, "1.50", Decimal("1.5")),
    ],
)
def test_a_given_key_encodes_like_the_stored_key(annotation: Any, said: Any, key: Any) -> None:
    codec = key_codec_for(annotation)
    assert KeySet.encode(codec.describe(), said) == codec.encode(key)


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (int, 5.9),
        (int, 5.0),
        (int, True),
        (int, "5"),
        (bool, 1),
        (float, True),
        (float, 2**53 + 1),
        (float, 10**400),
        (str, 5),
        (str, b"a"),
        (dt.date, 5),
        (dt.date, dt.datetime(2024, 1, 31, 12)),  # noqa: DTZ001
        (dt.date, "soon"),
        (tuple[int, str], [1, "a", 2]),
        (tuple[int, str], [1]),
        (tuple[int, str], [1.5, "a"]),
        (tuple[int, str], {"_1": 1, "_2": "a", "_3": 2}),
        (tuple[int, str], {"_1": 1}),
        (Fixed, [1]),
        (tuple[int, ...], [1, 2.5]),
        (tuple[int, ...], "12"),
        (int | None, 0.5),
        (tuple[()], [1]),
    ],
)
def test_a_value_close_to_a_key_encodes_to_none(annotation: Any, said: Any) -> None:
    assert KeySet.encode(key_codec_for(annotation).describe(), said) is None
