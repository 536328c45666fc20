"""A value table that is in memory first is a dict, however much of it the inner table has yet."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from holdfast.backends import HashMapStateBackend, KeyGroupRange, StateBackend
from holdfast.backends.tables.contract import StateKind, TableSpec, ValueTable
from holdfast.backends.testing.table_clauses.tables import Tables
from holdfast.changelog.recording import tables as logged_tables
from holdfast.changelog.recording.store import LoggedStore
from holdfast.changelog.recording.tables import LoggedValueTable

KEYS = range(400)


def spec() -> TableSpec:
    return Tables.spec("values", StateKind.VALUE, keys=int)


class Pair:
    """A table, the dict that it must be, and the dict that its log makes."""

    def __init__(self, backend: StateBackend, seed: int) -> None:
        inner = backend.open_store("u", KeyGroupRange(0, 127), 128)
        self.store = LoggedStore(inner)
        self.spec = spec()
        self.table = cast("ValueTable", self.store.table(self.spec))
        self.form = self.store.form(self.spec)
        self.chance = random.Random(seed)
        self.expected: dict[int, int] = {}
        self.logged: dict[Any, Any] = {}
        self.modes: set[tuple[bool, bool]] = set()

    def addresses(self, keys: list[int]) -> list[Any]:
        return list(self.store.addresses(self.spec, keys, None))

    def step(self, spread: int) -> None:
        """One thing, of those that change, read, seal or walk."""
        chance = self.chance
        keys = chance.sample(KEYS[:spread], min(spread, chance.choice((1, 5, 50))))
        addresses = self.addresses(keys)
        what = chance.randrange(9)
        if what < 3:
            values = [chance.randrange(1000) for _ in keys]
            self.table.put_many(addresses, self.form.encode_many(values))
            self.expected.update(zip(keys, values, strict=True))
        elif what == 3:
            self.table.remove_many(addresses)
            for key in keys:
                self.expected.pop(key, None)
        elif what == 4:
            self.table.put(addresses[0], self.form.encode(7))
            self.expected[keys[0]] = 7
            self.table.remove(addresses[-1])
            self.expected.pop(keys[-1], None)
        elif what == 5:
            self.take()
        elif what == 6:
            self.store.apply_some(chance.choice((0.1, 0.5)))
        elif what == 7:
            found = sorted(key for key, _ in self.table.addresses())
            assert found == sorted(self.expected)
        for key, cell in zip(keys, self.table.get_many(addresses), strict=True):
            assert self.decoded(cell) == self.expected.get(key)
        assert self.decoded(self.table.get(addresses[0])) == self.expected.get(keys[0])
        if isinstance(self.table, LoggedValueTable):
            self.modes.add((self.table._is_ahead, self.table._is_remembered))

    def decoded(self, cell: Any) -> Any:
        return None if cell is None else self.form.decode(cell)

    def take(self) -> None:
        for taken in self.store.take():
            for rows in taken.recorded():
                if rows.cells is None:
                    for address in rows.addresses:
                        self.logged.pop(address, None)
                else:
                    self.logged.update(zip(rows.addresses, rows.cells, strict=True))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged_tables, "_MANY", 1)
    monkeypatch.setattr(logged_tables, "_LEAST_APPLIED", 2)
    monkeypatch.setattr(logged_tables, "_SEALS_BETWEEN", 2)


@pytest.mark.parametrize("seed", range(30))
def test_a_logged_table_and_its_log_match_a_dict(backend: StateBackend, seed: int) -> None:
    pair = Pair(backend, seed)
    for number in range(150):
        pair.step(spread=400 if number % 50 < 30 else 5)
    pair.take()
    expected = dict(
        zip(
            pair.addresses(list(pair.expected)),
            pair.form.encode_many(list(pair.expected.values())),
            strict=True,
        )
    )
    assert pair.logged == expected
    if isinstance(pair.table, LoggedValueTable):
        assert pair.modes == {(True, True), (False, False), (False, True)}
    pair.store.apply()
    inner = cast("ValueTable", pair.store.inner.table(pair.spec))
    found = inner.get_many(list(expected))
    assert found == list(expected.values())
    assert len(list(inner.addresses())) == len(expected)
    pair.store.close()


def test_cells_set_directly_are_in_the_table_and_in_the_log() -> None:
    pair = Pair(HashMapStateBackend(), 0)
    direct, noted = pair.table.direct, pair.table.write_mirror
    assert direct is not None
    assert noted is not None
    direct.hot[3] = noted.hot[3] = 5
    assert pair.table.get(3) == 5
    assert pair.table.get_many([3, 4]) == [5, None]
    pair.table.put_many([3, 4], [6, 7])
    pair.take()
    assert pair.logged == {3: 6, 4: 7}
    direct.hot[4] = noted.hot[4] = 8
    pair.take()
    assert pair.logged == {3: 6, 4: 8}
    pair.store.close()
