"""The slots of one operator: backends side by side, each with its key groups.

Takes the same calls as the model, sends each to the slot that has the key, and answers in a form
that can be compared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.backends.interface import StateBackend
from holdfast.backends.keyed.backend import EarlyFiles, KeyedStateBackend
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_group, key_groups_of_slots
from holdfast.backends.snapshots.neutral import SnapshotForm, SnapshotFuture, SnapshotTarget
from holdfast.backends.state.timers import TimerService
from holdfast.backends.tables.contract import NO_NAMESPACE
from holdfast.backends.testing.model.model import ModelTimer
from holdfast.backends.testing.model.subjects import Account, Action, KeyKind, Subject
from holdfast.storage import Clock, JobStorage, StateSnapshot

__all__ = ["UID", "Fleet", "Settings", "comparable"]

UID = "tested"
_TIMERS = "user"
_COLUMN_TYPES = {int, str, bytes, type(None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one operator that stay the same through all restores."""

    backend: StateBackend
    key_kind: KeyKind
    max_parallelism: int
    clock: Clock
    job: JobStorage
    declares_keys: bool = True


class Fleet:
    """An operator's slots, restored from snapshots if there are any."""

    def __init__(
        self,
        settings: Settings,
        subjects: Mapping[str, Subject],
        parallelism: int,
        restore: Sequence[StateSnapshot] = (),
        *,
        builds_on_restored: bool = False,
        first_checkpoint_id: int | None = None,
    ) -> None:
        """With `first_checkpoint_id`, files may be written before a snapshot is asked for."""
        early = None
        if first_checkpoint_id is not None:
            early = EarlyFiles(settings.job, first_checkpoint_id)
        self._subjects = subjects
        self._max_parallelism = settings.max_parallelism
        self._codec = key_codec_for(settings.key_kind.annotation)
        self._has_column = settings.key_kind.has_column
        declares = settings.declares_keys or not settings.key_kind.is_inferred
        self._ranges = key_groups_of_slots(parallelism, settings.max_parallelism)
        self.slots: list[KeyedStateBackend] = []
        for key_groups in self._ranges:
            self.slots.append(
                settings.backend.open(
                    uid=UID,
                    key_groups=key_groups,
                    max_parallelism=settings.max_parallelism,
                    key_type=settings.key_kind.annotation if declares else None,
                    restore=restore,
                    storage=settings.job,
                    clock=settings.clock,
                    allow_pickle=True,
                    early=early,
                )
            )
            if builds_on_restored:
                self.slots[-1].build_on_restored()

    def declare(self, name: str) -> None:
        for slot in self.slots:
            self._state(slot, name)

    def do(self, action: Action) -> Any:
        """What the state answers. What went in and came out is spoilt: it must not matter."""
        if action.is_batch:
            return self._do_batch(action)
        slot = self._slot_of(action.key)
        slot.set_current_key(action.key)
        arguments = copy.deepcopy(action.arguments)
        state = self._state(slot, action.state, action.namespace)
        answer = comparable(action.verb, getattr(state, action.verb)(*arguments))
        _spoil(arguments)
        kept = copy.deepcopy(answer)
        _spoil(answer)
        return kept

    def keys(self, name: str, namespace: Any) -> list[Any]:
        """The keys that the slots show in a scan; a slot must show its own only."""
        found = []
        for slot in self.slots:
            listed = list(slot.keys(name, namespace))
            for key in listed:
                assert self._slot_of(key) is slot, f"key {key!r} is in another slot's scan"
            found += listed
        return found

    def apply_to_all_keys(
        self, name: str, namespace: Any, function: Callable[[Any, Any], None]
    ) -> None:
        subject = self._subjects[name]
        for slot in self.slots:
            slot.apply_to_all_keys(
                subject.descriptor,
                function,
                namespace=namespace,
                namespace_type=subject.namespace_type,
            )

    def begin(
        self, checkpoint_id: int, target: SnapshotTarget, *, compression: str, form: SnapshotForm
    ) -> list[SnapshotFuture]:
        return [
            slot.snapshot(checkpoint_id, target, compression=compression, form=form)
            for slot in self.slots
        ]

    def tend(self) -> None:
        for slot in self.slots:
            slot.tend()

    def completed(self, checkpoint_id: int) -> None:
        for slot in self.slots:
            slot.notify_checkpoint_complete(checkpoint_id)

    def aborted(self, checkpoint_id: int) -> None:
        for slot in self.slots:
            slot.notify_checkpoint_aborted(checkpoint_id)

    def load_timers(self) -> None:
        for slot in self.slots:
            self._timers(slot)

    def register(self, timer: ModelTimer) -> None:
        self._change("register", timer)

    def delete(self, timer: ModelTimer) -> None:
        self._change("delete", timer)

    def fire(self, domain: str, until: int, again: int) -> list[ModelTimer]:
        """The timers that are due, which must come in order of time in each slot.

        Those at even moments are registered again, `again` later, while the others still fire.
        """
        fired = []
        for slot in self.slots:
            last = None
            for timer in getattr(self._timers(slot), f"due_{domain}_time")(until):
                assert last is None or last <= timer.timestamp, "timers fire out of order"
                last = timer.timestamp
                fired.append(ModelTimer(domain, timer.timestamp, timer.key, timer.namespace))
                if again and timer.timestamp % 2 == 0:
                    later = timer.timestamp + again
                    self.register(ModelTimer(domain, later, timer.key, timer.namespace))
        return fired

    def next_timer(self, domain: str) -> int | None:
        """When the first timer of all slots is due."""
        moments = [getattr(self._timers(each), f"next_{domain}_time")() for each in self.slots]
        return min((moment for moment in moments if moment is not None), default=None)

    def close(self) -> None:
        for slot in self.slots:
            slot.close()

    def _do_batch(self, action: Action) -> list[Any] | None:
        keys, *others = action.arguments
        answers: list[Any] = [None] * len(keys)
        has_answers = action.verb == "get_many"
        for slot in self.slots:
            mine = [place for place, key in enumerate(keys) if self._slot_of(key) is slot]
            if not mine:
                continue
            columns = [[column[place] for place in mine] for column in (keys, *others)]
            columns = copy.deepcopy(columns)
            state = self._state(slot, action.state, action.namespace)
            passed = map(_column, columns) if action.as_column and self._has_column else columns
            found = getattr(state, action.verb)(*passed)
            _spoil(columns)
            if has_answers:
                for place, answer in zip(mine, comparable(action.verb, found), strict=True):
                    answers[place] = copy.deepcopy(answer)
                    _spoil(answer)
        return answers if has_answers else None

    def _slot_of(self, key: Any) -> KeyedStateBackend:
        group = key_group(self._codec.hash(self._codec.canonical(key)), self._max_parallelism)
        return next(slot for slot in self.slots if group in slot.key_groups)

    def _state(self, slot: KeyedStateBackend, name: str, namespace: Any = NO_NAMESPACE) -> Any:
        subject = self._subjects[name]
        state = slot.get_state(subject.descriptor, namespace_type=subject.namespace_type)
        if namespace is not NO_NAMESPACE:
            state.set_current_namespace(namespace)
        return state

    def _timers(self, slot: KeyedStateBackend) -> TimerService:
        return slot.timers(_TIMERS, namespace_type=str)

    def _change(self, verb: str, timer: ModelTimer) -> None:
        slot = self._slot_of(timer.key)
        slot.set_current_key(timer.key)
        change = getattr(self._timers(slot), f"{verb}_{timer.domain}_time_timer")
        change(timer.timestamp, timer.namespace)


def comparable(verb: str, answer: Any) -> Any:
    """An answer of a state or of the model without what is left open: the order of a map."""
    if isinstance(answer, pa.Array):
        return answer.to_pylist()
    if verb == "items":
        pairs = list(answer.items() if isinstance(answer, dict) else answer)
        assert len(dict(pairs)) == len(pairs), "a map key comes twice"
        return dict(pairs)
    if verb in ("keys", "values"):
        return sorted(answer, key=repr)
    return answer


def _column(values: list[Any]) -> Any:
    """An Arrow array, if the values are of types that Arrow answers as they are."""
    return pa.array(values) if set(map(type, values)) <= _COLUMN_TYPES else values


def _spoil(value: Any) -> None:
    """Change whatever can be changed in it."""
    if isinstance(value, Account):
        value.amounts.append(666)
        value.owner = "spoilt"
    elif isinstance(value, set):
        value.add("spoilt")
    elif isinstance(value, dict):
        for each in value.values():
            _spoil(each)
        value.clear()
    elif isinstance(value, list | tuple):
        for each in value:
            _spoil(each)
        if isinstance(value, list):
            value.clear()
