"""Restoring operator state: with changed declarations, and from damaged files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.backends import ListStateDescriptor, MapStateDescriptor
from holdfast.storage import (
    Corrupt,
    InlineHandle,
    Invalid,
    JobStorage,
    StateSnapshot,
    load_storage,
)
from support.jobs.operator_slots import LIST, RULES, UNION, opened, started, stopped, union_element
from support.states.snapshot_targets import files_of

GOLDEN = Path(__file__).parent.parent.parent / "golden" / "operator-state-v1.json"


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path)).job("job")


@dataclass
class Before:
    name: str
    count: int


@dataclass
class After:
    name: str
    count: float
    note: str = "none"


def evolved(job: JobStorage) -> list[StateSnapshot]:
    slots = started(2, [], job)
    for index, slot in enumerate(slots):
        slot.get_list_state(ListStateDescriptor("old", Before)).add(Before("n", index))
        slot.get_broadcast_state(MapStateDescriptor("m", str, int)).put("k", index)
    return stopped(slots, 1, job)


NEW = ListStateDescriptor("new", After, aliases=("older", "old"))


def test_values_are_migrated_to_what_is_declared_now(job: JobStorage) -> None:
    with opened(*evolved(job), job=job) as backend:
        assert backend.get_list_state(NEW).get() == [After("n", 0.0), After("n", 1.0)]
        broadcast = backend.get_broadcast_state(MapStateDescriptor("m", str, float))
        assert list(broadcast.items()) == [("k", 0.0)]
        snapshot = backend.snapshot(2, job).result(30)
    with opened(snapshot, job=job) as backend:
        again = backend.get_list_state(ListStateDescriptor("new", After))
        assert again.get() == [After("n", 0.0), After("n", 1.0)]


@dataclass
class Shorter:
    name: str


@dataclass
class Again:
    name: str
    count: int = 9


def test_versions_in_a_row_read_as_if_all_were_written_anew(job: JobStorage) -> None:
    """What a version has removed does not come back, and a default counts once."""
    snapshots = evolved(job)
    versions = [(Shorter, Shorter("n")), (Again, Again("n")), (Before, Before("n", 9))]
    for number, (cls, expected) in enumerate(versions, 2):
        slots = started(2, snapshots, job)
        for slot in slots:
            assert slot.get_list_state(ListStateDescriptor("old", cls)).get() == [expected]
        snapshots = stopped(slots, number, job)


def test_only_some_slots_ask_for_state_and_migrate_it(job: JobStorage) -> None:
    """The others carry it on as it was written, under its old name; then all come together."""
    slots = started(2, evolved(job), job)
    slots[1].get_list_state(NEW).add(After("added", 5.0))
    slots[1].get_broadcast_state(MapStateDescriptor("m", str, float)).put("k", 1.5)
    snapshots = stopped(started(3, stopped(slots, 2, job), job), 3, job)
    slots = started(2, snapshots, job)
    found = [slot.get_list_state(NEW).get() for slot in slots]
    assert sorted(each.count for part in found for each in part) == [0.0, 1.0, 5.0]
    descriptor = MapStateDescriptor("m", str, float)
    assert [slot.get_broadcast_state(descriptor).get("k") for slot in slots] == [0.0, 1.5]
    for slot in slots:
        slot.close()


def test_elements_of_several_types_are_carried_in_one_slot(job: JobStorage) -> None:
    numbers, fractions = ListStateDescriptor("n", int), ListStateDescriptor("n", float)
    slots = started(4, [], job)
    for index, slot in enumerate(slots):
        slot.get_list_state(numbers).add_all([index, index])
    slots = started(4, stopped(slots, 1, job), job)
    for slot in slots[1:3]:
        slot.get_list_state(fractions).add(0.5)
    one = stopped(started(1, stopped(slots, 2, job), job), 3, job)
    assert [state["values"]["type"] for state in one[0].attributes["states"]] == [
        "int",
        "float",
        "int",
    ]
    slots = started(2, one, job)
    found = [slot.get_list_state(fractions).get() for slot in slots]
    assert found == [[0.0, 0.0, 1.0, 1.0, 0.5], [2.0, 2.0, 0.5, 3.0, 3.0]]
    for slot in slots:
        slot.close()


@pytest.mark.parametrize(
    ("method", "descriptor", "message"),
    [
        ("get_list_state", ListStateDescriptor("old", int), r"state 'old'.*'op'.*integer|record"),
        (
            "get_union_list_state",
            ListStateDescriptor("old", Before),
            r"state 'old' is of another kind.*'op'.*expected list, found union-list",
        ),
        ("get_list_state", ListStateDescriptor("m", int), "expected broadcast, found list"),
        (
            "get_broadcast_state",
            MapStateDescriptor("m", int, int),
            r"the map keys of state 'm'.*type of a key cannot change.*'op'",
        ),
        ("get_broadcast_state", MapStateDescriptor("m", str, str), "state 'm' cannot be read"),
    ],
)
def test_an_unreadable_declaration_is_refused(
    job: JobStorage, method: str, descriptor: Any, message: str
) -> None:
    with opened(*evolved(job), job=job) as backend:
        with pytest.raises(Invalid, match=message):
            getattr(backend, method)(descriptor)
        assert len(backend.get_list_state(ListStateDescriptor("old", Before)).get()) == 2
        assert backend.get_broadcast_state(MapStateDescriptor("m", str, int)).get("k") == 0


def test_a_value_that_cannot_be_converted_is_refused(job: JobStorage) -> None:
    with opened() as backend:
        backend.get_list_state(ListStateDescriptor("n", int | None)).update([1, None])
        snapshot = backend.snapshot(1, job).result(30)
    with opened(snapshot, job=job) as backend:
        with pytest.raises(Invalid, match="'n'"):
            backend.get_list_state(ListStateDescriptor("n", int))
        assert backend.get_list_state(ListStateDescriptor("n", int | None)).get() == [1, None]


def test_pickles_are_read_only_where_that_is_allowed(job: JobStorage) -> None:
    elements = ListStateDescriptor("v", object, pickle=True)
    entries = MapStateDescriptor("m", str, object, pickle=True)
    with opened(allow_pickle=True) as backend:
        backend.get_list_state(elements).add({1, 2})
        backend.get_broadcast_state(entries).put("k", 1j)
        snapshot = backend.snapshot(1, job).result(30)
    with opened(snapshot, job=job) as backend:
        with pytest.raises(Invalid, match="'v' is kept as pickles, which may not be read here"):
            backend.get_list_state(elements)
        with pytest.raises(Invalid, match=r"'v' is pickled.*not allowed.*'op'"):
            backend.get_list_state(ListStateDescriptor("v", int))
        with pytest.raises(Invalid, match="'m' is pickled"):
            backend.get_broadcast_state(MapStateDescriptor("m", str, int))
        carried = backend.snapshot(2, job).result(30)
    with opened(carried, job=job, allow_pickle=True) as backend:
        assert backend.get_list_state(elements).get() == [{1, 2}]
        assert dict(backend.get_broadcast_state(entries).items()) == {"k": 1j}


# What does not fit, and what is damaged


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slot": 2}, r"slot is out of range \[operator 'op'\]: .*0 to below .* 2, found 2"),
        ({"slot": -1}, "found -1"),
        ({"parallelism": 0}, "a slot is out of range"),
        ({"uid": "other"}, r"another operator.*expected uid 'other', found 'op'"),
        ({"storage": None}, r"'op'.*without a storage.*Pass storage="),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    job: JobStorage, options: dict[str, Any], message: str
) -> None:
    snapshots = evolved(job)
    with pytest.raises(Invalid, match=message):
        opened(*snapshots, job=job, **{"parallelism": 2, **options})


def changed(snapshot: StateSnapshot, **attributes: Any) -> StateSnapshot:
    return msgspec.structs.replace(snapshot, attributes=snapshot.attributes | attributes)


def test_the_snapshots_of_all_slots_are_needed(job: JobStorage) -> None:
    first, second = evolved(job)
    other = changed(second, parallelism=3)
    with pytest.raises(Invalid, match=r"'op'.*all slots.*each of 2 slots once, found slots 1"):
        opened(second, job=job)
    with pytest.raises(Invalid, match="found slots 0, 0"):
        opened(first, first, job=job)
    with pytest.raises(Invalid, match="2 or 3 slots"):
        opened(first, other, job=job)
    states = [state | {"mode": "union-list"} for state in second.attributes["states"]]
    with pytest.raises(Invalid, match=r"'op'.*differ in the kind of state.*list.*in slot 1"):
        opened(first, changed(second, states=states[:1]), job=job)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda it: msgspec.structs.replace(it, kind="x/9"),
            r"'op'.*operator-parquet/1, found x/9",
        ),
        (lambda it: changed(it, states=5), r"attributes.*'op'.*Expected `array`"),
        (lambda it: changed(it, parallelism=0), r"attributes.*parallelism"),
        (lambda it: msgspec.structs.replace(it, slot=None), "does not say of which slot"),
    ],
)
def test_a_snapshot_of_an_unknown_kind_is_refused(
    job: JobStorage, change: Any, message: str
) -> None:
    with opened() as backend:
        backend.get_list_state(LIST).add("a")
        snapshot = backend.snapshot(1, job).result(30)
    with pytest.raises((Invalid, Corrupt), match=message):
        opened(change(snapshot), job=job)


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
@pytest.mark.parametrize("asked", [True, False])
def test_a_damaged_file_is_named_and_the_backend_stays_usable(
    tmp_path: Path, damage: str, *, asked: bool
) -> None:
    job = load_storage(str(tmp_path), inline_limit_bytes=0).job("job")
    with opened() as backend:
        backend.get_union_list_state(UNION).add_all(map(union_element, range(300)))
        snapshot = backend.snapshot(1, job).result(30)
    (file,) = files_of(snapshot)
    path = tmp_path / "job" / file
    whole = path.read_bytes()
    data = bytearray(whole)
    data[len(data) // 3] ^= 1
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data if damage == "flipped" else data[: len(data) // 3])
    with opened(snapshot, job=job) as backend:
        with pytest.raises(Corrupt, match=rf"state 'union' of operator 'op'.*{path.name}"):
            if asked:
                backend.get_union_list_state(UNION)
            else:
                backend.snapshot(2, job)
        backend.get_list_state(LIST).add("fresh")
        path.write_bytes(whole)
        assert len(backend.get_union_list_state(UNION).get()) == 300
        assert backend.get_list_state(LIST).get() == ["fresh"]


def test_handles_that_contradict_the_attributes_are_corrupt(job: JobStorage) -> None:
    with opened() as backend:
        backend.get_list_state(LIST).add_all("abc")
        snapshot = backend.snapshot(1, job).result(30)
    states = msgspec.json.decode(
        msgspec.json.encode(snapshot.attributes["states"]).replace(b'"elements":3', b'"elements":4')
    )
    with (
        opened(changed(snapshot, states=states), job=job) as backend,
        pytest.raises(Corrupt, match=r"'list' of operator 'op'.*4 elements.*found 3"),
    ):
        backend.get_list_state(LIST)
    with (
        opened(msgspec.structs.replace(snapshot, handles={}), job=job) as backend,
        pytest.raises(Corrupt, match=r"'list' of operator 'op'.*no such handle"),
    ):
        backend.get_list_state(LIST)
    nonsense = dict.fromkeys(snapshot.handles, InlineHandle(b"\x04\0\0\0nope"))
    with (
        opened(msgspec.structs.replace(snapshot, handles=nonsense), job=job) as backend,
        pytest.raises(Corrupt, match=r"'list' of operator 'op'.*block of state cannot be read"),
    ):
        backend.get_list_state(LIST)


# The format


def golden_slots() -> list[StateSnapshot]:
    job = load_storage("memory://golden").job("job")
    slots = started(2, [], job)
    for index, slot in enumerate(slots):
        slot.get_list_state(LIST).add_all([f"é{index}", ""])
        slot.get_union_list_state(UNION).add({"p": [index, -1]})
        slot.get_broadcast_state(RULES).put_all({("r", -1): [7], ("s", 2**40): None})
        slot.get_list_state(ListStateDescriptor("empty", int))
    return stopped(slots, 1, job)


def test_snapshots_of_version_1_are_read() -> None:
    data = GOLDEN.read_bytes()
    snapshots = msgspec.json.decode(data, type=list[StateSnapshot])
    written = msgspec.json.format(msgspec.json.encode(golden_slots(), order="sorted"))
    assert written + b"\n" == data
    job = load_storage("memory://golden").job("job")
    with opened(*snapshots, job=job) as backend:
        assert backend.get_list_state(LIST).get() == ["é0", "", "é1", ""]
        assert backend.get_union_list_state(UNION).get() == [{"p": [0, -1]}, {"p": [1, -1]}]
        rules = backend.get_broadcast_state(RULES)
        assert list(rules.items()) == [(("r", -1), [7]), (("s", 2**40), None)]
        assert backend.get_list_state(ListStateDescriptor("empty", int)).get() == []
