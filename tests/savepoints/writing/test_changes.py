"""What a savepoint is to become, and how it is put together of parts: without Spark."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from holdfast.backends import (
    ListStateDescriptor,
    OperatorStateBackend,
    SnapshotForm,
    StateTtlConfig,
    ValueStateDescriptor,
    key_groups_of_slots,
    load_backend,
)
from holdfast.backends.snapshots.in_flight import InFlight
from holdfast.backends.snapshots.neutral import KeyedAttributes, TableInfo
from holdfast.runtime import read_state
from holdfast.runtime.spark.launching.pickling import ByValue
from holdfast.runtime.spark.state_frames.state_writing import Carrier, Maker, OperatorTarget, Writer
from holdfast.savepoints import StoredSnapshot, find_snapshot
from holdfast.savepoints.writing.assembly import (
    clean_and_commit,
    copy_part,
    join_parts,
    write_unkeyed,
)
from holdfast.savepoints.writing.changes import NewState, SavepointChanges
from holdfast.savepoints.writing.keyed_rows import SHUFFLED, SORTED_BY, RowColumns, table_of_state
from holdfast.savepoints.writing.unkeyed_rows import UnkeyedRows
from holdfast.storage import (
    CheckpointMetadata,
    InlineHandle,
    Invalid,
    NotFound,
    OperatorState,
    SavepointFolder,
    StateSnapshot,
    load_storage,
)
from holdfast.storage.jobs.metadata import IN_FLIGHT_KIND

KEYS = [f"key {number}" for number in range(50)]
TOTAL = ValueStateDescriptor("total", int)


def metadata(operators: Any, **more: Any) -> CheckpointMetadata:
    return CheckpointMetadata(
        job_id="orders",
        checkpoint_id=3,
        kind="savepoint",
        triggered_ms=1,
        completed_ms=2,
        operators=operators,
        **more,
    )


@pytest.fixture(params=["canonical", "neutral"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A savepoint of two slots: keyed state, state without keys, a source."""
    folder = SavepointFolder.begin(load_storage(str(tmp_path)), "orders")
    form, parts = SnapshotForm(request.param), []
    for slot, groups in enumerate(key_groups_of_slots(2, 64)):
        with load_backend("hashmap").open(
            uid="spend", key_groups=groups, max_parallelism=64, key_type=str
        ) as state:
            for name in ("total", "best"):
                value = state.get_state(ValueStateDescriptor(name, int))
                for key in KEYS:
                    with suppress(Invalid):  # another slot's
                        state.set_current_key(key)
                        value.update(len(key))
            parts.append(state.snapshot(3, folder, form=form).result(60))
        with OperatorStateBackend.open(uid="spend", slot=slot, parallelism=2) as other:
            other.get_list_state(ListStateDescriptor("seen", int)).update([slot])
            parts.append(other.snapshot(3, folder, form=form).result(60))
    with folder.segments(3, "source") as writer:
        position = StateSnapshot(
            kind="source", handles={"a": writer.add(b"x" * 50_000), "b": writer.add(b"y")}
        )
    operators = {"spend": OperatorState(parallelism=2, max_parallelism=64, parts=tuple(parts))}
    folder.commit(metadata(operators, sources={"in": position}))
    return folder.url


def changes(path: str) -> SavepointChanges:
    return SavepointChanges(find_snapshot(path))


def names(found: SavepointChanges, uid: str = "spend") -> tuple[list[str], list[str]]:
    operator = found.operator(uid)
    keyed = [f"{table.name} as {info.name}" for table, info in operator.kept_tables]
    unkeyed = [f"{table.name} as {its.name}" for table, its in operator.kept_unkeyed]
    return keyed, unkeyed


def test_everything_that_is_not_named_is_kept(stored: str) -> None:
    found = changes(stored)
    assert names(found) == (["best as best", "total as total"], ["seen as seen"])
    assert list(found.sources) == ["in"]
    assert found.operator("spend").keys == {"type": "str"}


def test_kept_state_must_be_complete(stored: str) -> None:
    whole = find_snapshot(stored)
    left = whole.metadata.operators["spend"]
    fewer = msgspec.structs.replace(left, parts=left.parts[:2])  # the first of two slots
    found = SavepointChanges(of_operator(whole, fewer))
    with pytest.raises(Invalid, match=r"'spend' do not have all key groups.*key group 32"):
        _ = found.operator("spend").kept_tables
    for name in ("best", "total"):
        found.operator("spend").drop(name)
    assert names(found) == ([], ["seen as seen"])


def of_operator(whole: StoredSnapshot, left: OperatorState) -> StoredSnapshot:
    """The same snapshot, if its operator had left this."""
    metadata = msgspec.structs.replace(whole.metadata, operators={"spend": left})
    return replace(whole, point=replace(whole.point, metadata=metadata))


def test_states_are_dropped_and_renamed(stored: str) -> None:
    found = changes(stored)
    operator = found.operator("spend")
    operator.drop("best")
    operator.rename("total", "best")
    operator.rename("seen", "known")
    assert names(found) == (["total as best"], ["seen as known"])
    operator.rename("best", "sum")
    assert names(found)[0] == ["total as sum"]
    for wrong in ("total", "best"):
        with pytest.raises(NotFound, match=rf"no state '{wrong}'.*expected sum, known"):
            operator.drop(wrong)
    with pytest.raises(Invalid, match="has a state 'known'"):
        operator.rename("sum", "known")
    with pytest.raises(Invalid, match="names that do not begin with an underscore"):
        operator.rename("sum", "_timers/user-timers/event")


def new(name: str, *, keyed: bool = True, ttl: bool = False) -> NewState:
    """State of a DataFrame that is never read."""
    columns = RowColumns(key=("k",) if keyed else (), value="v")
    if not keyed:
        rows = UnkeyedRows(ListStateDescriptor(name, int), union=False, where="op")
        return NewState(frame=None, table=rows.table, columns=columns, rows=rows)
    life = StateTtlConfig(ttl=dt.timedelta(hours=1)) if ttl else None
    info = table_of_state(ValueStateDescriptor(name, int, ttl=life))
    return NewState(frame=None, table=info, columns=columns)


def test_a_new_state_replaces_a_stored_one(stored: str) -> None:
    operator = (found := changes(stored)).operator("spend")
    operator.put(new("total"))
    operator.put(new("seen", keyed=False))
    operator.put(new("seen"))
    assert names(found) == (["best as best"], [])
    assert (list(operator.new_keyed), list(operator.new_unkeyed)) == (["total", "seen"], ["seen"])


def test_nothing_is_renamed_over_a_new_state(stored: str) -> None:
    operator = (found := changes(stored)).operator("spend")
    operator.put(new("sum"))
    operator.put(new("known", keyed=False))
    for old, taken in (("total", "sum"), ("seen", "known"), ("total", "known")):
        with pytest.raises(Invalid, match=f"has a state '{taken}'"):
            operator.rename(old, taken)
    assert names(found) == (["best as best", "total as total"], ["seen as seen"])


def test_a_new_state_has_the_name_of_its_descriptor(stored: str) -> None:
    operator = changes(stored).operator("spend")
    operator.put(new("total"))
    operator.put(new("seen", keyed=False))
    for name in ("total", "seen"):
        with pytest.raises(Invalid, match=f"state '{name}' of operator 'spend' is new"):
            operator.rename(name, "other")


def test_a_new_state_is_dropped_with_the_stored_one(stored: str) -> None:
    operator = (found := changes(stored)).operator("spend")
    operator.put(new("total"))
    operator.put(new("seen", keyed=False))
    operator.drop("total")
    operator.drop("seen")
    assert names(found) == (["best as best"], [])
    assert (operator.new_keyed, operator.new_unkeyed) == ({}, {})
    assert operator.keys == {"type": "str"}
    other = found.operator_for("other")
    other.put(new("total"))
    other.keys = {"type": "int"}
    other.drop("total")
    assert other.keys is None


def test_states_of_one_name_are_told_apart_by_their_kind(stored: str) -> None:
    operator = (found := changes(stored)).operator("spend")
    operator.put(new("seen"))
    for change in (operator.drop, lambda name: operator.rename(name, "other")):
        with pytest.raises(Invalid, match=r"two states 'seen'.*kind=\"keyed\""):
            change("seen")
    operator.drop("seen", "keyed")
    assert names(found) == (["best as best", "total as total"], ["seen as seen"])
    operator.put(new("seen"))
    operator.rename("seen", "known", "operator")
    assert names(found)[1] == ["seen as known"]
    assert list(operator.new_keyed) == ["seen"]
    operator.drop("seen")
    assert operator.new_keyed == {}
    with pytest.raises(NotFound, match="no state 'seen', keyed"):
        operator.drop("seen", "keyed")
    with pytest.raises(Invalid, match=r"no such kind.*found timers"):
        operator.drop("seen", "timers")


def test_times_of_last_use_are_not_lost_by_accident(tmp_path: Path) -> None:
    folder = SavepointFolder.begin(load_storage(str(tmp_path)), "orders")
    info = msgspec.structs.replace(table_of_state(TOTAL), stamped=True)
    attributes = KeyedAttributes(uid="op", max_parallelism=8, keys=None, tables=(info,))
    parts = join_parts(attributes, key_groups_of_slots(1, 8), {})
    folder.commit(metadata({"op": OperatorState(parallelism=1, max_parallelism=8, parts=parts)}))
    operator = changes(folder.url).operator("op")
    with pytest.raises(Invalid, match=r"lose when its entries were last used.*with ttl="):
        operator.put(new("total"))
    assert operator.new_keyed == {}
    operator.put(new("total", ttl=True))
    operator.drop("total")
    operator.put(new("total"))
    assert list(operator.new_keyed) == ["total"]


def test_operators_and_sources_are_removed_and_renamed(stored: str) -> None:
    found = changes(stored)
    found.change_uid("spend", "spend-2")
    found.change_uid("in", "orders")
    assert names(found, "spend-2")[1] == ["seen as seen"]
    assert list(found.sources) == ["orders"]
    for gone in ("spend", "in"):
        with pytest.raises(NotFound, match=rf"no '{gone}'"):
            found.remove(gone)
    for taken in ("orders", "spend-2", ""):
        with pytest.raises(Invalid, match=f"cannot be called '{taken}'"):
            found.change_uid("spend-2", taken)
    with pytest.raises(Invalid, match="the uid of a source"):
        found.operator_for("orders")
    found.remove("orders")
    found.remove("spend-2")
    assert (found.operators, found.sources) == ({}, {})


@pytest.fixture
def with_in_flight(tmp_path: Path) -> SavepointChanges:
    """Two operators and a source: rows wait before both inputs of one operator."""
    rows = {
        f"in-flight/{number}": StateSnapshot(
            kind=IN_FLIGHT_KIND,
            handles={"0": InlineHandle(b"")},
            attributes=msgspec.to_builtins(
                InFlight(
                    edge=f"spend/{number}",
                    columns="user: int64",
                    parallelism=2,
                    max_parallelism=64,
                    rows={"0": 7 + number},
                )
            ),
            slot=number,
        )
        for number in range(2)
    }
    folder = SavepointFolder.begin(load_storage(str(tmp_path)), "orders")
    operators = {}
    for uid in ("spend", "towns"):
        with OperatorStateBackend.open(uid=uid, slot=0, parallelism=1) as state:
            state.get_list_state(ListStateDescriptor("seen", int)).update([1])
            part = state.snapshot(3, folder, form=SnapshotForm.OWN).result(60)
        operators[uid] = OperatorState(parallelism=1, max_parallelism=64, parts=(part,))
    position = StateSnapshot(kind="source", handles={"a": InlineHandle(b"1")})
    folder.commit(metadata(operators, sources={"in": position}, parts=rows))
    return changes(folder.url)


def test_an_operator_before_which_rows_wait_stays_what_it_is(
    with_in_flight: SavepointChanges,
) -> None:
    """Under another uid they would be refused or lost."""
    found = with_in_flight
    for change, said in (
        (partial(found.remove, "spend"), "operator 'spend' cannot be removed"),
        (partial(found.change_uid, "spend", "x"), "operator 'spend' cannot be called 'x'"),
    ):
        with pytest.raises(Invalid, match=f"{said} while rows are in flight") as caught:
            change()
        assert caught.value.found == "15 rows in flight to operator 'spend'"
        assert "take a savepoint" in caught.value.fix
        assert {*found.operators} == {"spend", "towns"}
    found.change_uid("towns", "cities")
    found.remove("cities")
    assert {*found.operators} == {"spend"}


def test_a_source_keeps_its_position_while_its_rows_may_wait(
    with_in_flight: SavepointChanges,
) -> None:
    """Without one it would read them again, and they would count twice."""
    found = with_in_flight
    with pytest.raises(Invalid, match="source 'in' cannot be removed while rows") as caught:
        found.remove("in")
    assert caught.value.found == "15 rows in flight to operator 'spend'"
    found.change_uid("in", "orders")
    assert {*found.sources} == {"orders"}


def written(uid: str, folder: SavepointFolder) -> OperatorTarget:
    return OperatorTarget(
        uid=uid,
        keys={"type": "str"},
        parallelism=3,
        max_parallelism=64,
        folder=folder,
        checkpoint_id=3,
    )


def parts_of(batches: Any) -> dict[int, list[StateSnapshot]]:
    found: dict[int, list[StateSnapshot]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            part = msgspec.msgpack.decode(row["snapshot"], type=StateSnapshot)
            found.setdefault(row["part"], []).append(part)
    return found


def test_parts_written_by_tasks_make_a_savepoint(stored: str, tmp_path: Path) -> None:
    """All that Spark does besides is to bring rows to their part, and to sort them."""
    found = changes(stored)
    operator = found.operator("spend")
    operator.rename("best", "least")
    frame = pa.table({"k": KEYS, "v": range(50)})
    info = table_of_state(TOTAL)
    columns = RowColumns(key=("k",), value="v")
    state = NewState(frame=None, table=info, columns=columns, descriptor=TOTAL)
    operator.put(state)
    operator.uid = "spend-2"
    folder = SavepointFolder.begin(load_storage(str(tmp_path)), "orders")
    to = written("spend-2", folder)
    made = pa.Table.from_batches(Maker(to, ByValue(state))(frame.to_batches(7)), SHUFFLED)
    ordered = made.sort_by([(name, "ascending") for name in SORTED_BY])
    parts = parts_of(Writer(to, ByValue(state))(ordered.to_batches(11)))
    assert operator.keyed is not None
    numbers = pa.record_batch({"id": pa.array([0, 1, 2])})
    carrier = Carrier(to, operator.keyed, tuple(operator.kept_tables))
    for part, snapshots in parts_of(carrier([numbers])).items():
        parts.setdefault(part, []).extend(snapshots)
    tables = (*(each for _, each in operator.kept_tables), info)
    attributes = KeyedAttributes(
        uid="spend-2", max_parallelism=64, keys={"type": "str"}, tables=tables
    )
    keyed = join_parts(attributes, [to.key_groups(part) for part in range(3)], parts)
    unkeyed = write_unkeyed(operator, [], folder, 3)
    source = find_snapshot(stored)
    position = copy_part(found.sources["in"], source.folder, folder, 3)
    whole = OperatorState(parallelism=3, max_parallelism=64, parts=(*keyed, *unkeyed))
    lost = folder.table_file(3, "spend-2/total/part-00000-00000-1057abcd.parquet")
    with lost as writer:
        writer.add(b"of an attempt that was lost")
    clean_and_commit(folder, metadata({"spend-2": whole}, sources={"in": position}))
    loaded = folder.load()
    assert {info.name for info in folder.storage.list(f"{folder.folder}/")} == {
        folder.name_of(file) for file in (*loaded.files(), "_metadata")
    }

    def rows(state: str, value: str = "value", key: str = "key") -> dict[Any, Any]:
        table = read_state(folder.url, operator="spend-2", state=state).read_all().to_pylist()
        return {row[key]: row[value] for row in table}

    assert rows("total") == {key: number for number, key in enumerate(KEYS)}
    assert rows("least") == {key: len(key) for key in KEYS}
    assert rows("seen", key="slot") == {0: 0, 1: 1}
    handles = loaded.sources["in"].handles
    assert folder.read(handles["a"]) == b"x" * 50_000
    assert folder.read(handles["b"]) == b"y"


def test_ranges_without_rows_are_parts_too() -> None:
    info = TableInfo(name="total", kind="value", values={"type": "int"})
    attributes = KeyedAttributes(uid="op", max_parallelism=64, keys=None, tables=(info,))
    parts = join_parts(attributes, key_groups_of_slots(2, 64), {})
    assert [part.key_groups for part in parts] == [(0, 31), (32, 63)]
    for part in parts:
        assert msgspec.convert(part.attributes, KeyedAttributes).tables == (info,)


def test_state_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    folder = SavepointFolder.begin(load_storage(str(tmp_path)), "orders")
    part = StateSnapshot(kind="something/9")
    folder.commit(metadata({"op": OperatorState(parallelism=1, max_parallelism=8, parts=(part,))}))
    with pytest.raises(Invalid, match=r"operator 'op' has state of a kind.*found something/9"):
        changes(folder.url)
