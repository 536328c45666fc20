"""Logs in snapshots: the pieces that a restore reads, their order, and its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from holdfast.backends import KeyGroupRange, ListStateDescriptor, ValueStateDescriptor, load_backend
from holdfast.backends.blocks.changes import Added, Removed
from holdfast.backends.blocks.columns import decode_values
from holdfast.backends.snapshots.logs import LoggedAttributes, PendingChanges, base_of
from holdfast.backends.snapshots.restores import read_snapshots
from holdfast.backends.tables.contract import NO_NAMESPACE, Rows
from holdfast.storage import Corrupt, FileHandle, JobStorage, StateSnapshot, load_storage
from support.states.logged_snapshots import TableLog, logged, table_log
from support.states.logged_steps import ALL, GROUPS, UID, group_of, opened

LIST = ListStateDescriptor("list", str)
KEYS = range(200)


@pytest.fixture
def job(tmp_path: Path) -> JobStorage:
    return load_storage(str(tmp_path), inline_limit_bytes=0).job("job")


@pytest.fixture
def base(job: JobStorage) -> StateSnapshot:
    with opened(load_backend("hashmap")) as state:
        state.get_state(LIST)
        return state.snapshot(1, job).result(30)


def a_log(**options: Any) -> TableLog:
    """An element under each key; then the list of every third one is replaced."""
    log = table_log(LIST, **options)
    for key in KEYS:
        log.add(key, f"{log.log} {key}")
    for key in KEYS[::3]:
        log.replace(key, f"{log.log} new {key}")
    return log


def pending_of(
    snapshot: StateSnapshot, job: JobStorage, key_groups: KeyGroupRange = ALL
) -> PendingChanges:
    restored = read_snapshots(
        [snapshot], job, uid=UID, key_groups=key_groups, max_parallelism=GROUPS
    )
    (pending,) = restored.changes["list"]
    return pending


def told(pending: PendingChanges) -> list[tuple[str, int, Any]]:
    """Each row of the changes: what was done to which key."""
    found: list[tuple[str, int, Any]] = []
    spec = table_log(LIST).spec
    for change in pending.changes():
        block = change.block
        keys = [spec.keys.decode(key) for key in block.keys.to_list(block.count)]
        if isinstance(change, Added):
            values = decode_values(spec.values, block.values, "")
            found += [("+", key, value) for key, value in zip(keys, values, strict=True)]
        else:
            found += [("-", key, None) for key in keys]
    return found


def expected(word: str, key_groups: KeyGroupRange = ALL) -> list[tuple[str, int, Any]]:
    found: list[tuple[str, int, Any]] = [("+", key, f"{word} {key}") for key in KEYS]
    for key in KEYS[::3]:
        found += [("-", key, None), ("+", key, f"{word} new {key}")]
    return [each for each in found if group_of(each[1]) in key_groups]


@pytest.mark.parametrize("sets", [1, 2, 50, 1000])
def test_changes_are_read_in_order(job: JobStorage, base: StateSnapshot, sets: int) -> None:
    snapshot = logged(job, 2, base, [a_log()], sets=sets)
    assert told(pending_of(snapshot, job)) == expected("log")


@pytest.mark.parametrize(
    "key_groups", [KeyGroupRange(0, 40), KeyGroupRange(41, 41), KeyGroupRange(90, 127)], ids=str
)
@pytest.mark.parametrize("sets", [1, 50])
def test_only_changes_of_the_slot_are_read(
    job: JobStorage, base: StateSnapshot, key_groups: KeyGroupRange, sets: int
) -> None:
    snapshot = logged(job, 2, base, [a_log()], sets=sets)
    found = told(pending_of(snapshot, job, key_groups))
    assert found == expected("log", key_groups)
    assert found


def test_a_block_is_cut_at_key_groups(job: JobStorage, base: StateSnapshot) -> None:
    log, key_groups = table_log(LIST), KeyGroupRange(30, 60)
    addresses = [log.store.address(log.spec, key, NO_NAMESPACE) for key in KEYS]
    for cells in (None, list(map(str, KEYS))):
        kind = Removed if cells is None else Added
        blocks = list(log.store.blocks(log.spec, Rows(addresses, None, cells)))
        assert len(blocks) == 1
        log.sets.append(list(map(kind, blocks)))
    found = told(pending_of(logged(job, 2, base, [log]), job, key_groups))
    mine = {key for key in KEYS if group_of(key) in key_groups}
    assert {each for each in found if each[0] == "-"} == {("-", key, None) for key in mine}
    assert {each for each in found if each[0] == "+"} == {("+", key, str(key)) for key in mine}


def test_logs_of_one_table_follow_one_another(job: JobStorage, base: StateSnapshot) -> None:
    snapshot = logged(job, 2, base, [a_log(log="b", first=9), a_log(log="a")])
    assert told(pending_of(snapshot, job)) == expected("b") + expected("a")


def test_the_base_is_a_snapshot_of_its_own(job: JobStorage, base: StateSnapshot) -> None:
    snapshot = logged(job, 2, base, [a_log()])
    restored = read_snapshots([snapshot], job, uid=UID, key_groups=ALL, max_parallelism=GROUPS)
    assert list(restored.tables) == ["list"]
    attributes = LoggedAttributes(
        uid=UID,
        max_parallelism=GROUPS,
        keys=None,
        tables=(),
        base_kind=base.kind,
        base=base.attributes,
        logs=(),
    )
    assert base_of(snapshot, attributes) == base


def with_logs(snapshot: StateSnapshot, change: Any) -> StateSnapshot:
    """The snapshot with other pieces of its one log."""
    (log,) = snapshot.attributes["logs"]
    segments = change(list(log["segments"]))
    attributes = {**snapshot.attributes, "logs": [{**log, "segments": segments}]}
    return structs.replace(snapshot, attributes=attributes)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda each: [each[0], *each[2:]],
            "begins with set 10, found one that begins with set 20",
        ),
        (
            lambda each: [each[1], each[0], *each[2:]],
            "with set 20, found one that begins with set 0",
        ),
        (lambda each: [each[0], *each], "with set 10, found one that begins with set 0"),
    ],
    ids=["one is missing", "two are swapped", "one is there twice"],
)
def test_a_gap_between_pieces_is_corrupt(
    job: JobStorage, base: StateSnapshot, change: Any, says: str
) -> None:
    snapshot = with_logs(logged(job, 2, base, [a_log()], sets=10), change)
    with pytest.raises(Corrupt, match=f"log of table 'list'.*{says}"):
        pending_of(snapshot, job)


def test_pieces_that_contradict_their_description_are_corrupt(
    job: JobStorage, base: StateSnapshot
) -> None:
    """A piece that is longer, shorter or another one than its attributes say."""
    snapshot = logged(job, 2, base, [a_log()], sets=10)

    def longer(each: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**each[0], "sets": 11}]

    def shorter(each: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**each[0], "sets": 9}]

    def another(each: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**each[0], "handle": "list/log/10"}]

    for change in (longer, shorter, another):
        pending = pending_of(with_logs(snapshot, change), job)
        says = r"log of table 'list', piece 'list/log/1?0'.*(sets|number=)"
        with pytest.raises(Corrupt, match=says):
            list(pending.changes())


def test_a_piece_without_a_handle_is_named(job: JobStorage, base: StateSnapshot) -> None:
    snapshot = logged(job, 2, base, [a_log()], sets=10)
    handles = {name: each for name, each in snapshot.handles.items() if name != "list/log/20"}
    with pytest.raises(Corrupt, match=r"log of table 'list'.*a handle 'list/log/20'.*no such"):
        pending_of(structs.replace(snapshot, handles=handles), job)


def test_a_piece_of_another_table_is_refused(job: JobStorage, base: StateSnapshot) -> None:
    other = table_log(ValueStateDescriptor("value", int))
    other.add(1, 1)
    snapshot = logged(job, 2, base, [a_log(), other], sets=1000)
    handles = {**snapshot.handles, "list/log/0": snapshot.handles["value/log/0"]}
    restored = structs.replace(snapshot, handles=handles)
    with pytest.raises(Corrupt, match=r"log of table 'list'.*table='list'.*table='value'"):
        list(pending_of(restored, job).changes())


def test_pieces_of_other_key_groups_are_not_read(job: JobStorage, base: StateSnapshot) -> None:
    """Nor missed: it is known from the attributes that they have nothing for this slot."""
    snapshot = logged(job, 2, base, [a_log()], sets=1)
    key_groups = KeyGroupRange(20, 60)
    away = {
        segment["handle"]
        for segment in snapshot.attributes["logs"][0]["segments"]
        if segment["first_group"] not in key_groups
    }
    handles = {
        name: FileHandle(**{**structs.asdict(each), "file": "chk-1/away"})
        if name in away and isinstance(each, FileHandle)
        else each
        for name, each in snapshot.handles.items()
    }
    partly = structs.replace(snapshot, handles=handles)
    assert len(away) > 100
    assert told(pending_of(partly, job, key_groups)) == expected("log", key_groups)
    with pytest.raises(Corrupt, match="away"):
        list(pending_of(partly, job).changes())


def test_attributes_of_another_shape_are_corrupt(job: JobStorage, base: StateSnapshot) -> None:
    snapshot = logged(job, 2, base, [a_log()])
    wrong: list[dict[str, Any]] = [
        {**snapshot.attributes, "more": 1},
        {key: value for key, value in snapshot.attributes.items() if key != "base"},
        {**snapshot.attributes, "logs": [{"log": "log"}]},
        {**snapshot.attributes, "base": {}},
    ]
    for attributes in wrong:
        with pytest.raises(Corrupt, match=r"attributes of a snapshot of operator 'op'"):
            pending_of(structs.replace(snapshot, attributes=attributes), job)


def test_changes_are_what_was_written(job: JobStorage, base: StateSnapshot) -> None:
    log = a_log()
    snapshot = logged(job, 2, base, [log])
    written = [change for changes in log.sets for change in changes]
    assert list(pending_of(snapshot, job).changes()) == written
