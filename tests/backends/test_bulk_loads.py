"""Loading many rows at once: as files where the store has such a way, and the same rows."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends import KeyGroupRange, ValueStateDescriptor, load_backend
from holdfast.backends.byte_tables.keys import order_of
from holdfast.backends.snapshots.raw_tables import raw_spec
from holdfast.savepoints.writing.keyed_writer import load_in_bulk
from support.states.tried_backends import backend_named

ROWS = 70_000


@given(st.lists(st.binary(min_size=12, max_size=12), max_size=60), st.integers(1, 4))
def test_keys_of_one_length_are_put_in_order(keys: list[bytes], times: int) -> None:
    keys = [key.translate(bytes(n % 3 for n in range(256))) for key in keys] * times
    order = order_of(keys).tolist()
    assert order == sorted(range(len(keys)), key=lambda at: (keys[at], at))


def test_many_keys_that_begin_alike_are_put_in_order() -> None:
    chance = random.Random(5)
    for letters in ("ab", "abcdefgh0123456789"):
        keys = ["".join(chance.choices(letters, k=16)).encode() for _ in range(5000)]
        order = order_of(keys).tolist()
        assert order == sorted(range(len(keys)), key=lambda at: (keys[at], at))


@pytest.mark.parametrize("name", ["hashmap", "rocksdb", "sqlite"])
def test_a_table_that_is_filled_at_once_has_all_rows(
    name: str, quick_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.savepoints.writing.keyed_writer._BULK_ROWS", 40_000)
    groups = KeyGroupRange(0, 127)
    with load_backend("hashmap").open(uid="u", key_groups=groups, max_parallelism=128) as state:
        total = state.get_state(ValueStateDescriptor("total", int))
        keys = [f"user {number}" for number in range(ROWS)]
        total.put_many(keys, range(ROWS))
        tables = state._tables_now()
        frozen = state.store.freeze()
        blocks = list(frozen.blocks(tables[0].spec, None))
        frozen.release()
        described = state._keys.description
    store = backend_named(name, quick_path).open_store("u", groups, 128)
    try:
        spec = raw_spec("loaded", tables[0].info, described)
        load_in_bulk(store.table(spec), iter(blocks))
        frozen = store.freeze()
        found = list(frozen.blocks(spec, None))
        frozen.release()
    finally:
        store.close()

    def listed(them: list[Any]) -> set[tuple[bytes, int, int]]:
        import msgspec  # noqa: PLC0415

        return {
            row
            for block in them
            for row in zip(
                block.keys.to_list(block.count),
                block.group_array.tolist(),
                msgspec.msgpack.decode(block.values),
                strict=True,
            )
        }

    assert sum(block.count for block in found) == ROWS
    assert listed(found) == listed(blocks)
