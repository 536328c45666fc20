"""Sets of changes as bytes: they are read back, and all damage is reported."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.backends import ListStateDescriptor, MapStateDescriptor
from holdfast.backends.blocks.block import encode_block, frame
from holdfast.backends.blocks.changes import (
    Added,
    Change,
    Removed,
    SetHead,
    decode_sets,
    encode_set,
)
from holdfast.backends.tables.contract import Rows
from holdfast.storage import Corrupt
from support.states.logged_snapshots import TableLog, logs_of, table_log
from support.states.logged_steps import steps

HEAD = SetHead("log", "table", 3)
WHERE = "storage: log of table 'table'"


def a_log() -> TableLog:
    log = table_log(MapStateDescriptor("table", str, list[int]), str)
    for key in range(5):
        log.add(key, [key] * key, namespace="", map_key=f"m{key}")
        log.add(key, None, namespace="a\0", map_key="")
        log.remove(key, namespace="")
        log.remove(key, namespace="a\0", map_key="")
    return log


def encoded(sets: list[list[Change]], first: int = 3) -> bytes:
    return b"".join(
        encode_set(SetHead("log", "table", first + place), changes)
        for place, changes in enumerate(sets)
    )


def decoded(data: bytes, count: int, head: SetHead = HEAD) -> list[Change]:
    return list(decode_sets((data,), head, count, where=WHERE))


def test_encoded_changes_decode_to_the_same_changes() -> None:
    log = a_log()
    data = encoded(log.sets)
    expected = [change for changes in log.sets for change in changes]
    assert decoded(data, len(log.sets)) == expected
    assert {type(change) for change in expected} == {Added, Removed}


def test_pieces_may_be_cut_anywhere() -> None:
    log = a_log()
    data = encoded(log.sets)
    expected = decoded(data, len(log.sets))
    for size in (1, 2, 7, len(data) - 1):
        pieces = (data[start : start + size] for start in range(0, len(data), size))
        assert list(decode_sets(pieces, HEAD, len(log.sets), where=WHERE)) == expected


def test_every_kind_of_table_has_changes() -> None:
    for log in logs_of(steps(300, seed=9)):
        head = SetHead("log", "table", 0)
        every = [change for changes in log.sets for change in changes]
        assert every
        assert decoded(encoded(log.sets, 0), len(log.sets), head) == every
        for change in every:
            block = change.block
            assert (block.values == b"") == isinstance(change, Removed)
            assert (block.stamps is not None) == (log.spec.stamped and bool(block.values))


def test_sets_may_be_empty() -> None:
    assert decoded(encoded([[], [], []]), 3) == []
    assert decoded(b"", 0) == []


def test_a_change_has_all_of_its_rows() -> None:
    log = table_log(ListStateDescriptor("table", str))
    lists: Any = log.store.table(log.spec)
    rows = Rows([0, 1, 0, 0], None, ["a", "b", "c", "a"])
    every: list[Change] = [Added(block) for block in log.store.blocks(log.spec, rows)]
    for change in decoded(encoded([every]), 1):
        lists.load(change.block)
    assert [lists.get(0), lists.get(1)] == [["a", "c", "a"], ["b"]]


@pytest.mark.parametrize(
    ("data", "count", "says"),
    [
        pytest.param(encoded([[], []]), 3, "expected 3 sets, found 2", id="a set too few"),
        pytest.param(encoded([[]] * 4), 3, "expected 3 sets, found 4", id="a set too many"),
        pytest.param(b"", 1, "expected 1 sets, found 0", id="nothing"),
        pytest.param(encoded([[]], 4), 1, "number=3.*number=4", id="a later set"),
        pytest.param(encoded([[]]) + encoded([[]], 5), 2, "number=4.*number=5", id="a gap"),
        pytest.param(encoded([[]]) * 2, 2, "number=4.*number=3", id="a set twice"),
        pytest.param(
            encode_set(SetHead("other", "table", 3), ()), 1, "log='log'.*'other'", id="another log"
        ),
        pytest.param(
            encode_set(SetHead("log", "other", 3), ()), 1, "table='table'.*'other'", id="a table"
        ),
        pytest.param(b"\1\0\0\0\xc1", 1, "a head, or rows in columns", id="no MessagePack"),
        pytest.param(frame(msgspec.msgpack.encode([7, 1])), 1, "a head, or rows", id="a tag"),
        pytest.param(frame(msgspec.msgpack.encode([1, 5])), 1, "a head, or rows", id="no block"),
        pytest.param(frame(b""), 1, "a head, or rows", id="an empty frame"),
        pytest.param(encoded([[]]) + b"\0", 1, "found 1 bytes more", id="a byte behind"),
        pytest.param(encoded([[]])[:-1], 1, "bytes more", id="a byte too few"),
    ],
)
def test_an_unexpected_number_of_sets_is_corrupt(data: bytes, count: int, says: str) -> None:
    with pytest.raises(Corrupt, match=says) as caught:
        decoded(data, count)
    assert WHERE in str(caught.value)


def test_changes_before_a_head_are_corrupt() -> None:
    (change, *_), *_ = a_log().sets
    headless = encode_set(HEAD, [change]).removeprefix(encode_set(HEAD, ()))
    with pytest.raises(Corrupt, match="found changes without a head"):
        decoded(headless + encoded([[]]), 1)


def test_blocks_of_a_snapshot_are_no_changes() -> None:
    (change, *_), *_ = a_log().sets
    with pytest.raises(Corrupt, match="a head, or rows in columns"):
        decoded(encode_block(change.block), 1)


def test_every_truncation_is_reported() -> None:
    """Whatever is cut off, no part of the sets passes for the whole."""
    log = a_log()
    data = encoded(log.sets)
    for end in range(0, len(data), 7):
        with pytest.raises(Corrupt, match="storage: log of table 'table'"):
            decoded(data[:end], len(log.sets))
