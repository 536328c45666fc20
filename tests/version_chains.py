"""Jobs that go on under one version of their classes after the other, and a model beside them.

In a run each slot asks for each state when it likes, or never; changes, checkpoints, savepoints and
materializations come in between, and each restart may have another number of slots, and a changelog
or none. The model has every value as the version has it that asked for it last in its slot.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import msgspec

from class_versions import Version, first_version, later_version
from holdfast.backends import (
    KeyedStateBackend,
    ListStateDescriptor,
    MapStateDescriptor,
    StateBackend,
    StateDescriptor,
    ValueStateDescriptor,
)
from holdfast.backends.columns import decode_keys
from holdfast.backends.entries import Block
from holdfast.backends.key_codec import key_codec_for
from holdfast.backends.snapshots import SnapshotForm
from holdfast.backends.table_reading import KeyedReader
from holdfast.storage import CheckpointMetadata, Invalid, JobStorage
from logged_jobs import LoggedRun, parts_of
from logged_steps import UID, group_of

__all__ = ["VersionChain"]

_KEYS = range(12)
_FORMS = (*[SnapshotForm.OWN] * 6, *SnapshotForm)
_DESCRIPTORS: dict[str, Callable[[Any], StateDescriptor]] = {
    "value": lambda cls: ValueStateDescriptor("value", cls),
    "list": lambda cls: ListStateDescriptor("list", cls),
    "map": lambda cls: MapStateDescriptor("map", str, cls),
}


@dataclass
class _Cell:
    """What is at one key: values in a list, or by map key, as one version has them."""

    version: Version
    values: Any

    def read_by(self, version: Version) -> _Cell:
        """The same after it was written anew by a version."""
        return _Cell(version, _each(version.migrated, self.values))


_Model = dict[str, dict[int, _Cell]]


def _each(change: Callable[[Any], Any], values: Any) -> Any:
    if isinstance(values, list):
        return list(map(change, values))
    return {map_key: change(value) for map_key, value in values.items()}


@dataclass
class _Slot:
    """One slot of a run: what it has asked for so far."""

    keyed: KeyedStateBackend
    states: dict[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> list[int]:
        """The keys whose state it has."""
        return [key for key in _KEYS if group_of(key) in self.keyed.key_groups]


class VersionChain:
    """One job, from its first version to its last."""

    def __init__(self, job: JobStorage, backends: Sequence[StateBackend], seed: int) -> None:
        self._job = job
        self._backends = backends
        self._rng = random.Random(seed)
        self._model: _Model = {name: {} for name in _DESCRIPTORS}
        self._checkpoint: CheckpointMetadata | None = None
        self._stored = deepcopy(self._model)
        self._asked: list[Version] = []
        """Every version that any state was written in."""
        self.seen: Counter[str] = Counter()
        """What has happened, by name."""

    def run(self, versions: int) -> None:
        """Go on under so many versions, and read all in the end."""
        version = first_version(self._rng)
        for number in range(versions):
            self._attempt(version, is_last=number == versions - 1)
            version = self._next(version)

    def _next(self, version: Version) -> Version:
        """One that can read what is there, but now and then."""
        there = [cell.version for cells in self._stored.values() for cell in cells.values()]
        if not all(map(version.takes, there)):
            version = max(there, key=lambda each: each.number)
        is_refused = self._rng.random() < 0.15
        for _ in range(30):
            later = later_version(self._rng, version)
            if all(map(later.takes, there)) != is_refused:
                return later
        return version

    def _attempt(self, version: Version, *, is_last: bool) -> None:
        rng = self._rng
        self._model = deepcopy(self._stored)
        cls = version.cls
        with LoggedRun(
            self._job,
            rng.choice(self._backends),
            parallelism=rng.choice((1, 1, 2)),
            restored=self._checkpoint,
        ) as run:
            slots = [_Slot(keyed) for keyed in run.slots]
            for _ in range(rng.randint(1, 3)):
                self._round(run, slots, version, cls)
            if is_last:
                for slot in slots:
                    self._ask(slot, version, cls, 1.0)
            for slot in slots:
                self._compare(slot, version)

    def _round(self, run: LoggedRun, slots: Sequence[_Slot], version: Version, cls: Any) -> None:
        """Some changes, and a checkpoint; changes go on until it is completed."""
        rng = self._rng
        for slot in slots:
            self._ask(slot, version, cls, 0.4)
            self._change(slot, version, cls)
        run.tend(rng.choice((0.0, 0.6, 3.0)))
        if rng.random() < 0.15:
            self.seen["given up"] += 1
            run.give_up(run.begin())
        begun, there = run.begin(form=rng.choice(_FORMS)), deepcopy(self._model)
        for slot in slots:
            self._ask(slot, version, cls, 0.1)
            self._change(slot, version, cls)
        run.tend(rng.choice((0.0, 0.6)))
        self._checkpoint, self._stored = run.complete(begun), there
        self.seen["checkpoints"] += 1
        _check_tables(self._checkpoint, self._job, there)

    def _ask(self, slot: _Slot, version: Version, cls: Any, share: float) -> None:
        """Ask for some states that the slot has not asked for yet."""
        for name, descriptor in _DESCRIPTORS.items():
            if name in slot.states or self._rng.random() >= share:
                continue
            cells = {key: self._model[name].get(key) for key in slot.keys}
            try:
                state = slot.keyed.get_state(descriptor(cls))
            except Invalid as refused:
                self.seen["refused"] += 1
                if all(map(version.takes, self._asked)):
                    raise AssertionError((version, self._asked)) from refused
                continue
            self.seen["asked"] += 1
            self._asked.append(version)
            slot.states[name] = state
            for key, cell in cells.items():
                if cell is not None:
                    assert version.takes(cell.version), (version, cell.version)
                    self._model[name][key] = cell.read_by(version)
            self._compare(slot, version)

    def _change(self, slot: _Slot, version: Version, cls: Any) -> None:
        rng = self._rng
        for name, state in slot.states.items():
            for key in rng.sample(slot.keys, min(len(slot.keys), 4)):
                slot.keyed.set_current_key(key)
                cells = self._model[name]
                there = cells.get(key, _Cell(version, {} if name == "map" else []))
                values = deepcopy(there.values)
                _MADE[name](state, rng, version, cls, values)
                if values:
                    cells[key] = _Cell(version, values)
                else:
                    cells.pop(key, None)

    def _compare(self, slot: _Slot, version: Version) -> None:
        for name, state in slot.states.items():
            for key in slot.keys:
                slot.keyed.set_current_key(key)
                cell = self._model[name].get(key)
                found = _each(version.fields_of, _READ[name](state))
                wanted = cell.values if cell else type(found)()
                assert _shown(found) == _shown(wanted), (name, key)
            expected = [key for key in slot.keys if key in self._model[name]]
            assert sorted(slot.keyed.keys(name)) == expected


def _shown(values: Any) -> str:
    return repr(sorted(values.items()) if isinstance(values, dict) else values)


def _change_value(
    state: Any, rng: random.Random, version: Version, cls: Any, values: list[Any]
) -> None:
    values.clear()
    if rng.random() < 0.3:
        state.clear()
    else:
        values.append(version.value(rng))
        state.update(version.object_of(values[0], cls))


def _change_list(
    state: Any, rng: random.Random, version: Version, cls: Any, values: list[Any]
) -> None:
    made = [version.value(rng) for _ in range(rng.randint(1, 2))]
    objects = [version.object_of(each, cls) for each in made]
    match rng.choice(("add", "add", "update", "clear")):
        case "add":
            state.add_all(objects)
            values += made
        case "update":
            state.update(objects)
            values[:] = made
        case _:
            state.clear()
            values.clear()


def _change_map(
    state: Any, rng: random.Random, version: Version, cls: Any, values: dict[str, Any]
) -> None:
    map_key = rng.choice("xyz")
    match rng.choice(("put", "put", "remove", "clear")):
        case "put":
            values[map_key] = version.value(rng)
            state.put(map_key, version.object_of(values[map_key], cls))
        case "remove":
            values.pop(map_key, None)
            state.remove(map_key)
        case _:
            state.clear()
            values.clear()


_MADE: dict[str, Callable[[Any, random.Random, Version, Any, Any], None]] = {
    "value": _change_value,
    "list": _change_list,
    "map": _change_map,
}
_READ: dict[str, Callable[[Any], Any]] = {
    "value": lambda state: [each for each in [state.value()] if each is not None],
    "list": lambda state: list(state.get()),
    "map": lambda state: dict(state.items()),
}


def _check_tables(checkpoint: CheckpointMetadata, job: JobStorage, model: _Model) -> None:
    """What tools read of a checkpoint, without the job: each value once, as it was written."""
    reader = KeyedReader(UID, parts_of(checkpoint), job)
    found: dict[str, dict[int, Any]] = {name: {} for name in model}
    with reader.open() as tables:
        for table in reader.description.tables:
            for block in tables.blocks(table):
                for key, map_key, value in _rows(block):
                    cells = found[table.name]
                    if map_key is None:
                        cells.setdefault(key, []).append(value)
                    else:
                        assert map_key not in cells.setdefault(key, {})
                        cells[key][map_key] = value
    for name, cells in model.items():
        wanted = {key: _each(cell.version.written, cell.values) for key, cell in cells.items()}
        assert found[name] == wanted, name


def _rows(block: Block) -> Iterator[tuple[int, str | None, Any]]:
    keys = decode_keys(key_codec_for(int), block.keys, block.count)
    map_keys: list[Any] = [None] * block.count
    if block.map_keys is not None:
        map_keys = decode_keys(key_codec_for(str), block.map_keys, block.count)
    yield from zip(keys, map_keys, msgspec.msgpack.decode(block.values), strict=True)
