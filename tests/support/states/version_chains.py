"""Jobs that go on under one version of their classes after the other, and a model beside them.

In a run each slot asks for each state when it likes, or never; changes, checkpoints, savepoints and
materializations come in between. Each restart may have another number of slots, a changelog or
none, and may begin from what a conversion has made of the checkpoint, for another backend. The
model has every value as the version has it that asked for it last in its slot, and of each half of
the key groups which version that was: it alone decides what is refused.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import msgspec

from holdfast.backends import KeyedStateBackend, StateBackend
from holdfast.backends.blocks.block import Block
from holdfast.backends.blocks.columns import decode_keys
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_group
from holdfast.backends.snapshots.neutral import SnapshotForm
from holdfast.backends.values.codec import value_codec_for
from holdfast.backends.values.type_descriptions import are_alike
from holdfast.savepoints import find_snapshot
from holdfast.savepoints.conversion import Conversion, ConversionOptions, InProcess
from holdfast.savepoints.reading.readers import KeyedReader
from holdfast.storage import (
    CheckpointMetadata,
    Invalid,
    JobStorage,
    SavepointFolder,
    StateFolder,
    names,
)
from holdfast.storage.places.local import LocalObjects
from support.jobs.logged_jobs import LoggedRun, parts_of
from support.states.class_versions import Version, first_version, later_version
from support.states.logged_steps import GROUPS, NOW_MS, UID
from support.states.version_chain_states import (
    CHAINED,
    ChainedState,
    Declared,
    moved_class,
    unpickled,
)

__all__ = ["Kinds", "VersionChain"]

_KEYS = range(12)
_FORMS = (*[SnapshotForm.OWN] * 6, *SnapshotForm)
_HALVES = (0, 1)
"""Of the key groups: what a slot has is one, or both."""
_TIMERS = "timers"
_MOMENTS = 5
_PAST_ALL = 10**6
_PAUSES_MS = (0, 0, 0, 2_000, 6_000)

Kinds = Mapping[str, Sequence[StateBackend]]
"""By the name of a backend: that one, with a changelog over it, or both."""
_Timers = dict[int, set[tuple[int, int]]]
"""By key: moments, and the numbers of namespaces."""


@dataclass
class _Cell:
    """What is at one key: values in a list, or by map key, as one version has them."""

    declared: Declared
    values: Any
    stamp_ms: int

    def read_by(self, declared: Declared) -> _Cell:
        """The same after it was written anew by a version."""
        return replace(self, declared=declared, values=_each(declared.migrated, self.values))

    def is_alive(self, state: ChainedState, now_ms: int) -> bool:
        """Whether it is not past its time to live."""
        return state.ttl_ms is None or self.stamp_ms + state.ttl_ms > now_ms


@dataclass
class _Model:
    """All that a job has."""

    cells: dict[str, dict[int, _Cell]] = field(
        default_factory=lambda: {name: {} for name in CHAINED}
    )
    asked: dict[str, list[Version | None]] = field(
        default_factory=lambda: {name: [None for _ in _HALVES] for name in CHAINED}
    )
    """By state and half: the version that has asked for it last."""
    timers: _Timers = field(default_factory=dict)

    def alive(self, name: str, now_ms: int) -> dict[int, _Cell]:
        """The cells of a state that are not past their time."""
        cells, state = self.cells[name], CHAINED[name]
        return {key: cell for key, cell in cells.items() if cell.is_alive(state, now_ms)}


def _each(change: Callable[[Any], Any], values: Any) -> Any:
    if isinstance(values, list):
        return list(map(change, values))
    return {map_key: change(value) for map_key, value in values.items()}


@dataclass
class _Asked:
    """A state that a slot has asked for, and how."""

    state: Any
    declared: Declared
    cls: Any


@dataclass
class _Slot:
    """One slot of a run: what it has asked for so far."""

    keyed: KeyedStateBackend
    keys: Mapping[int, Any]
    """Those whose state it has, by their numbers."""
    place: Any
    """The class of namespaces."""
    states: dict[str, _Asked] = field(default_factory=dict)
    timers: Any = None

    @property
    def halves(self) -> list[int]:
        """Of the key groups, those that it has."""
        half = GROUPS // len(_HALVES)
        return [each for each in _HALVES if each * half in self.keyed.key_groups]


class VersionChain:
    """One job, from its first version to its last."""

    def __init__(
        self, job: JobStorage, kinds: Kinds, plain: Mapping[str, StateBackend], seed: int, name: str
    ) -> None:
        """`kinds` are what it runs on, `plain` what conversions write for, `name` the first."""
        self._job = job
        self._kinds = kinds
        self._plain = plain
        self._name = name
        self._rng = random.Random(seed)
        self._has_class_of_keys = seed % 2 == 1
        self._model = _Model()
        self._checkpoint: CheckpointMetadata | None = None
        self._folder: StateFolder | None = None
        """Where its state is, if that is not the job's folder."""
        self._stored = _Model()
        self._restored = self._stored
        """What there was when the run began."""
        self._now_ms = NOW_MS
        self.seen: Counter[str] = Counter()
        """What has happened, by name."""

    def run(self, versions: int) -> None:
        """Go on under so many versions, and read all in the end."""
        version = first_version(self._rng)
        for number in range(versions):
            self._attempt(version, is_last=number == versions - 1)
            self._now_ms += self._rng.choice(_PAUSES_MS)
            if self._rng.random() < 0.35:
                self._convert(number)
            version = self._next(version)

    def _next(self, version: Version) -> Version:
        """One that can read what is there, but now and then."""
        asked = self._stored.asked.values()
        there = [each for halves in asked for each in halves if each is not None]
        if not all(map(version.takes, there)):
            version = max(there, key=lambda each: each.number)
        is_refused = self._rng.random() < 0.15
        for _ in range(30):
            later = later_version(self._rng, version)
            if all(map(later.takes, there)) != is_refused:
                return later
        return version

    def _convert(self, number: int) -> None:
        """Go on from what a conversion makes of the newest checkpoint, for some backend or any."""
        checkpoint = self._checkpoint
        assert checkpoint is not None
        self._name = self._rng.choice(sorted(self._kinds))
        is_canonical = self._rng.random() < 0.4
        at = f"{self._job.url}/{names.checkpoint_folder(checkpoint.checkpoint_id)}"
        to = SavepointFolder(self._job.storage, f"converted-{number}")
        options = ConversionOptions(
            backend=None if is_canonical else self._name, is_canonical=is_canonical
        )
        backend = None if is_canonical else self._plain[self._name]
        Conversion(
            source=find_snapshot(at),
            destination=to,
            options=options,
            backend=backend,
            runner=InProcess(),
        ).run()
        after = find_snapshot(to.url)
        self._checkpoint, self._folder = after.metadata, after.folder
        self.seen[f"converted to {options.backend or 'any'}"] += 1
        self._check_tables(self._stored)

    def _key_type(self, version: Version) -> Any:
        return moved_class("Key", version) if self._has_class_of_keys else int

    def _attempt(self, version: Version, *, is_last: bool) -> None:
        rng = self._rng
        self._restored, self._model = self._stored, deepcopy(self._stored)
        key_type, place = self._key_type(version), moved_class("Place", version)
        with LoggedRun(
            self._job,
            rng.choice(self._kinds[self._name]),
            parallelism=rng.choice((1, 1, 2)),
            restored=self._checkpoint,
            from_job=self._folder,
            key_type=key_type,
            now_ms=self._now_ms,
        ) as run:
            slots = [_Slot(keyed, _keys_of(keyed, key_type), place) for keyed in run.slots]
            for _ in range(rng.randint(1, 3)):
                self._round(run, slots, version)
            if is_last:
                for slot in slots:
                    self._ask(slot, version, 1.0)
            for slot in slots:
                self._compare(slot)
            if is_last:
                for slot in slots:
                    self._check_timers(slot)

    def _round(self, run: LoggedRun, slots: Sequence[_Slot], version: Version) -> None:
        """Some changes, and a checkpoint; changes go on until it is completed."""
        rng = self._rng
        for slot in slots:
            self._ask(slot, version, 0.4)
            self._change(slot)
        self._tend(run, rng.choice((0.0, 0.6, 3.0)))
        if rng.random() < 0.15:
            self.seen["given up"] += 1
            run.give_up(run.begin())
        begun, there = run.begin(form=rng.choice(_FORMS)), deepcopy(self._model)
        for slot in slots:
            self._ask(slot, version, 0.1)
            self._change(slot)
        self._tend(run, rng.choice((0.0, 0.6)))
        self._checkpoint, self._stored = run.complete(begun), there
        self._folder = None
        self.seen["checkpoints"] += 1
        self._check_tables(there)

    def _tend(self, run: LoggedRun, passes_s: float) -> None:
        run.tend(passes_s)
        self._now_ms = run.clock.now_ms()

    def _ask(self, slot: _Slot, version: Version, share: float) -> None:
        """Ask for some states that the slot has not asked for yet."""
        for name, state in CHAINED.items():
            if name not in slot.states and self._rng.random() < share:
                declared = state.declared(version)
                self._ask_for(slot, name, declared)
                if name not in slot.states and (share == 1.0 or self._rng.random() < 0.5):
                    self._ask_as_before(slot, name)
        if slot.timers is None and self._rng.random() < share:
            slot.timers = slot.keyed.timers(_TIMERS, namespace_type=slot.place)

    def _ask_for(self, slot: _Slot, name: str, declared: Declared) -> None:
        state, cls = CHAINED[name], declared.cls
        asked = self._model.asked[name]
        there = list(map(state.declared, self._written(slot, name)))
        bad = [each for each in there if not declared.takes(each)]
        with patch.object(
            LocalObjects, "read_range", autospec=True, side_effect=LocalObjects.read_range
        ) as reads:
            try:
                found = slot.keyed.get_state(state.descriptor(cls))
            except Invalid as refused:
                assert bad, (name, declared, there)
                assert not reads.call_count
                _check_told(refused, state, bad, cls)
                self.seen["refused"] += 1
                return
        cells = self._model.cells[name]
        mine = {key: cells[key] for key in slot.keys if key in cells}
        for key, cell in mine.items():
            if not cell.is_alive(state, self._now_ms):
                del cells[key]
                continue
            assert declared.takes(cell.declared), (name, declared, cell.declared)
            cells[key] = cell.read_by(declared)
        for half in slot.halves:
            asked[half] = declared.version
        self.seen["asked"] += 1
        slot.states[name] = _Asked(found, declared, cls)
        self._compare(slot)

    def _written(self, slot: _Slot, name: str) -> list[Version]:
        """In which versions a slot may find a state: what came from one slot has both halves.

        A table that has no rows for the slot may be looked at all the same, and refuse the state.
        """
        now, restored = self._model.asked[name], self._restored.asked[name]
        halves = [now[half] if half in slot.halves else restored[half] for half in _HALVES]
        return [each for each in halves if each is not None]

    def _ask_as_before(self, slot: _Slot, name: str) -> None:
        """What was refused is there for the version that fits, also in this very run."""
        there = {each.number: each for each in self._written(slot, name)}
        if len(there) == 1:
            self._ask_for(slot, name, CHAINED[name].declared(*there.values()))
            assert name in slot.states
            self.seen["asked as before"] += 1

    def _change(self, slot: _Slot) -> None:
        rng = self._rng
        for name, asked in slot.states.items():
            state = CHAINED[name]
            for key in rng.sample(sorted(slot.keys), min(len(slot.keys), 4)):
                slot.keyed.set_current_key(slot.keys[key])
                cells = self._model.cells[name]
                there = self._model.alive(name, self._now_ms).get(key)
                values = deepcopy(there.values) if there else {} if state.is_map else []
                state.change(asked.state, rng, asked.declared, asked.cls, values)
                if values:
                    cells[key] = _Cell(asked.declared, values, self._now_ms)
                else:
                    cells.pop(key, None)
        if slot.timers is not None:
            self._change_timers(slot)

    def _change_timers(self, slot: _Slot) -> None:
        for key in self._rng.sample(sorted(slot.keys), min(len(slot.keys), 4)):
            slot.keyed.set_current_key(slot.keys[key])
            moment, number = self._rng.randrange(_MOMENTS), self._rng.randrange(2)
            place = slot.place(number, "")
            if self._rng.random() < 0.7:
                slot.timers.register_event_time_timer(moment, place)
                self._model.timers.setdefault(key, set()).add((moment, number))
            else:
                slot.timers.delete_event_time_timer(moment, place)
                self._model.timers.get(key, set()).discard((moment, number))

    def _check_timers(self, slot: _Slot) -> None:
        """They are gone by that."""
        found: _Timers = {}
        for timer in slot.timers.due_event_time(_PAST_ALL):
            at = (timer.timestamp, timer.namespace.number)
            assert at not in found.setdefault(_number(timer.key), set())
            found[_number(timer.key)].add(at)
        assert found == {
            key: self._model.timers[key] for key in slot.keys if self._model.timers.get(key)
        }

    def _compare(self, slot: _Slot) -> None:
        for name, asked in slot.states.items():
            alive, state = self._model.alive(name, self._now_ms), CHAINED[name]
            for key in slot.keys:
                slot.keyed.set_current_key(slot.keys[key])
                cell = alive.get(key)
                found = _each(asked.declared.fields_of, state.read(asked.state))
                wanted = cell.values if cell else type(found)()
                assert _shown(found) == _shown(wanted), (name, key)
            listed = sorted(map(_number, slot.keyed.keys(name)))
            if state.ttl_ms is not None:  # others are there until they are read
                listed = [key for key in listed if key in alive]
            assert listed == [key for key in sorted(slot.keys) if key in alive], name

    def _check_tables(self, model: _Model) -> None:
        """What tools read of the checkpoint, without the job: each value as it was written."""
        checkpoint = self._checkpoint
        assert checkpoint is not None
        reader = KeyedReader(UID, parts_of(checkpoint), self._folder or self._job)
        tables = _Tables(self._key_type(first_version(random.Random(0))), self._now_ms)
        with reader.open() as opened:
            for table in reader.description.tables:
                for block in opened.blocks(table):
                    tables.add(table.name, block)
        for name in CHAINED:
            alive = model.alive(name, self._now_ms)
            wanted = {k: _each(cell.declared.written, cell.values) for k, cell in alive.items()}
            assert tables.cells[name] == wanted, name
        assert tables.timers == {key: every for key, every in model.timers.items() if every}


def _keys_of(keyed: KeyedStateBackend, key_type: Any) -> dict[int, Any]:
    codec = key_codec_for(key_type)
    made = {number: number if key_type is int else key_type(number, "") for number in _KEYS}
    return {
        number: key
        for number, key in made.items()
        if key_group(codec.hash(key), GROUPS) in keyed.key_groups
    }


def _number(key: Any) -> int:
    number: int = key if isinstance(key, int) else key.number
    return number


def _shown(values: Any) -> str:
    return repr(sorted(values.items()) if isinstance(values, dict) else values)


def _check_told(refused: Invalid, state: ChainedState, bad: Sequence[Declared], cls: Any) -> None:
    """It names what is declared, and what was written by a version that cannot be read.

    Of versions that differ in nothing but names of classes it may be either.
    """
    declared = msgspec.json.encode(_described(state, cls)).decode()
    assert refused.expected == f"a type that can be converted to {declared}"
    found = msgspec.json.decode(refused.found)
    assert any(are_alike(found, _described(state, each.cls)) for each in bad), (found, bad)


def _described(state: ChainedState, cls: Any) -> Any:
    return value_codec_for(state.value_type(cls)).describe()


class _Tables:
    """What is in the tables of a snapshot."""

    def __init__(self, key_type: Any, now_ms: int) -> None:
        self._keys = key_codec_for(key_type)
        self._places = key_codec_for(moved_class("Place", first_version(random.Random(0))))
        self._now_ms = now_ms
        self.cells: dict[str, dict[int, Any]] = {name: {} for name in CHAINED}
        self.timers: _Timers = {}

    def add(self, name: str, block: Block) -> None:
        """The rows of a block."""
        keys = list(map(_number, decode_keys(self._keys, block.keys, block.count)))
        if name.startswith("_timers/"):
            self._add_timers(keys, block)
            return
        state, cells = CHAINED[name], self.cells[name]
        for number, (map_key, value) in enumerate(_values(block)):
            key, stamps = keys[number], block.stamp_array
            if (
                state.ttl_ms
                and stamps is not None
                and stamps[number] + state.ttl_ms <= self._now_ms
            ):
                continue
            if map_key is not None:
                assert map_key not in cells.setdefault(key, {})
                cells[key][map_key] = value
            elif state.is_in_one:
                assert key not in cells
                cells[key] = value
            else:
                cells.setdefault(key, []).append(value)

    def _add_timers(self, keys: Sequence[int], block: Block) -> None:
        assert block.namespaces is not None
        assert block.map_keys is not None
        places = decode_keys(self._places, block.namespaces, block.count)
        moments = decode_keys(key_codec_for(int), block.map_keys, block.count)
        for key, place, moment in zip(keys, places, moments, strict=True):
            at = (moment, place.number)
            assert at not in self.timers.setdefault(key, set())
            self.timers[key].add(at)


def _values(block: Block) -> Iterator[tuple[str | None, Any]]:
    map_keys: list[Any] = [None] * block.count
    if block.map_keys is not None:
        map_keys = decode_keys(key_codec_for(str), block.map_keys, block.count)
    values = map(unpickled, msgspec.msgpack.decode(block.values))
    yield from zip(map_keys, values, strict=True)
