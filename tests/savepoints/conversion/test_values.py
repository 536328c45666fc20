"""Conversions of values that are not what they seem: older records, pickles, empty tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from golden_entries import as_first_described
from golden_savepoints import golden
from holdfast.backends import (
    KeyedStateBackend,
    KeyGroupRange,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.backends.snapshots.parquet import is_complete_part
from holdfast.backends.values.codec import value_codec_for
from holdfast.savepoints import StoredSnapshot, compare, find_snapshot, rows_of, validate
from holdfast.savepoints.conversion import Conversion, ConversionOptions, InProcess
from holdfast.storage import (
    Handle,
    OperatorState,
    SavepointFolder,
    StateFolder,
    StateSnapshot,
    load_storage,
)
from support.states.made_savepoints import complete

UID = "spend"
TARGETS = ("hashmap", "rocksdb", None)


@dataclass
class Unopened:
    """A class whose pickles must not be loaded."""

    number: int

    def __reduce__(self) -> Any:
        return _opened, (self.number,)


def _opened(number: int) -> Any:
    raise AssertionError(f"a pickle was opened: {number}")


class Place:
    """One slot of an operator, and the savepoints that it leaves."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = SavepointFolder.begin(load_storage(str(root / "from")), "job")

    def open(
        self, *restore: StateSnapshot, folder: Any = None, backend: str = "hashmap"
    ) -> KeyedStateBackend:
        return load_backend(backend).open(
            uid=UID,
            key_groups=KeyGroupRange(0, 127),
            max_parallelism=128,
            key_type=str,
            restore=restore,
            storage=folder or self.folder,
            allow_pickle=True,
        )

    def saved(self, *parts: StateSnapshot) -> StoredSnapshot:
        complete(self.folder, {UID: OperatorState(parallelism=1, max_parallelism=128, parts=parts)})
        return find_snapshot(self.folder.url)

    def converted(
        self, source: StoredSnapshot, to: str | None, name: str, **options: Any
    ) -> StoredSnapshot:
        folder = SavepointFolder(load_storage(str(self.root / name)), "")
        Conversion(
            source=source,
            destination=folder,
            options=ConversionOptions(backend=to, is_canonical=to is None, **options),
            backend=None if to is None else load_backend(to),
            runner=InProcess(),
        ).run()
        return find_snapshot(folder.url)


@pytest.fixture
def place(quick_path: Path) -> Place:
    return Place(quick_path)


def put(state: KeyedStateBackend, descriptor: StateDescriptor, values: dict[str, Any]) -> None:
    kept = state.get_state(descriptor)
    for key, value in values.items():
        state.set_current_key(key)
        kept.update(value)


def from_before(part: StateSnapshot) -> StateSnapshot:
    """As it was before descriptions said that records are whole."""
    described = as_first_described(msgspec.json.encode(part.attributes))
    return msgspec.structs.replace(part, attributes=msgspec.json.decode(described))


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("max_parallelism", [None, 50])
def test_records_from_before_a_field_was_added_stay_the_same(
    place: Place, to: str | None, max_parallelism: int | None
) -> None:
    old = make_dataclass("Order", [("amount", int)])
    new = make_dataclass("Order", [("amount", int), ("note", str | None, "none")])
    old_state, new_state = (ValueStateDescriptor("last", each) for each in (old, new))
    with place.open() as state:
        put(state, old_state, {"ann": old(1), "bob": old(2)})
        first = state.snapshot(1, place.folder).result(60)
    (table,) = first.attributes["tables"]  # once, such a field was added without a word
    described = {**table, "values": value_codec_for(new).describe()}
    attributes = {**first.attributes, "tables": [described]}
    source = place.saved(from_before(msgspec.structs.replace(first, attributes=attributes)))
    after = place.converted(source, to, "to", max_parallelism=max_parallelism)
    again = place.converted(after, "hashmap", "again", max_parallelism=128)
    assert compare(source, again, lambda _: None).are_equal
    with place.open(*again.metadata.operators[UID].parts, folder=again.folder) as state:
        found = {}
        kept = state.get_state(new_state)
        for key in ("ann", "bob"):
            state.set_current_key(key)
            found[key] = (kept.value().amount, kept.value().note)
    assert found == {"ann": (1, "none"), "bob": (2, "none")}


@pytest.mark.slow
@pytest.mark.parametrize("max_parallelism", [None, 50])
def test_the_footer_of_each_file_is_read_once(
    place: Place, max_parallelism: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that were written before descriptions said so."""
    source = find_snapshot(str(golden("canonical")))
    asked: list[Handle] = []

    def complete(folder: StateFolder, handle: Handle) -> bool:
        asked.append(handle)
        return is_complete_part(folder, handle)

    monkeypatch.setattr("holdfast.savepoints.reading.readers.is_complete_part", complete)
    monkeypatch.setattr("holdfast.savepoints.conversion.plan._PIECE_BYTES", 500)
    place.converted(source, None, "to", max_parallelism=max_parallelism)
    assert asked
    assert len(asked) == len(set(map(str, asked)))
    asked.clear()
    place.converted(source, "hashmap", "other", max_parallelism=max_parallelism)
    assert not asked


@pytest.mark.parametrize("to", TARGETS)
def test_pickles_are_copied_and_never_loaded(place: Place, to: str | None) -> None:
    descriptor = ValueStateDescriptor("last", Unopened, pickle=True)
    with place.open() as state:
        put(state, descriptor, {"ann": Unopened(1), "bob": Unopened(2)})
        source = place.saved(state.snapshot(1, place.folder).result(60))
    after = place.converted(source, to, "to", max_parallelism=64)
    assert compare(source, after, lambda _: None).are_equal
    assert not validate(after, lambda _: None).findings
    for snapshot in (source, after):
        rows = list(rows_of(snapshot, UID, ("last", "keyed"), "ann"))
        assert [row["value"].startswith("<a pickle of ") for row in rows] == [True]


@pytest.mark.parametrize("to", TARGETS)
def test_states_without_entries_stay_states(place: Place, to: str | None) -> None:
    descriptors: Sequence[StateDescriptor] = (
        ValueStateDescriptor("value", int),
        MapStateDescriptor("map", str, list[int]),
    )
    with place.open() as state:
        for each in descriptors:
            state.get_state(each)
        state.timers("timers")
        source = place.saved(state.snapshot(1, place.folder).result(60))
    after = place.converted(source, to, "to", parallelism=3)
    reader = after.keyed(UID)
    assert reader is not None
    names = ["_timers/timers/event", "_timers/timers/processing", "map", "value"]
    assert [table.name for table in reader.description.tables] == names
    assert not validate(after, lambda _: None).findings
    parts = after.metadata.operators[UID].parts
    with place.open(*parts, folder=after.folder, backend=to or "hashmap") as state:
        put(state, descriptors[0], {"ann": 1})
