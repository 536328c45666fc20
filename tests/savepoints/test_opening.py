"""Looking into snapshots that are files of a store: how often, and how many at once, are opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import KeyGroupRange, SnapshotForm, TableStore, load_backend
from holdfast.savepoints import StoredSnapshot, compare, inspect, rows_of, validate
from support.states.stored_snapshots import SLOTS, UID, stored
from support.states.tried_backends import backend_named


class Counting:
    """Counts stores of the backends that it loads: all that were opened, and the most at once."""

    def __init__(self) -> None:
        self.opened = self.open = self.most = 0

    def load(self, name: str, **options: Any) -> Any:
        backend: Any = load_backend(name, **options)
        return _Counted(backend, self)


class _Counted:
    def __init__(self, backend: Any, counting: Counting) -> None:
        self._backend = backend
        self._counting = counting

    def for_reading(self) -> _Counted:
        return _Counted(self._backend.for_reading(), self._counting)

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        counting = self._counting
        store: TableStore = self._backend.open_store(uid, key_groups, max_parallelism)
        close = store.close

        def closed() -> None:
            counting.open -= 1
            close()

        store.close = closed  # type: ignore[method-assign]
        counting.opened += 1
        counting.open += 1
        counting.most = max(counting.most, counting.open)
        return store


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    found = Counting()
    monkeypatch.setattr("holdfast.backends.interface.load_backend", found.load)
    return found


LOOKS: dict[str, tuple[Callable[[StoredSnapshot], Any], int]] = {
    "inspect": (inspect, SLOTS),
    "validate": (lambda source: validate(source, lambda _: None), SLOTS),
    "diff": (lambda source: compare(source, source, lambda _: None), 2 * SLOTS),
    "show": (lambda source: list(rows_of(source, UID, ("list", "keyed"))), SLOTS),
    "show a key": (lambda source: list(rows_of(source, UID, ("list", "keyed"), "key 1")), 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOKS)
def test_slots_are_opened_once_and_one_after_the_other(
    name: str, counting: Counting, quick_path: Path
) -> None:
    backend = backend_named("rocksdb", quick_path / "state")
    source = stored(quick_path / "from", backend, "savepoint", SnapshotForm.NATIVE)
    look, expected = LOOKS[name]
    assert look(source)
    assert (counting.opened, counting.most, counting.open) == (expected, 1, 0)
