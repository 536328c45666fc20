"""Operator state of one operator in one slot: state without keys, redistributed on a rescale.

It is small, so it is in memory with every backend. A snapshot copies references at the barrier.

State that the job does not declare is passed on: each slot writes its part of it, also of a union
list. If every slot wrote the whole union, as in Flink, each restart would multiply it; a slot that
loads a union and keeps all of it does multiply it, as in Flink. It is passed on in the types that
it was written in, so slots that have declared a state and slots that have not can be restored
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from holdfast.backends.operator_state.forms import OperatorForm
from holdfast.backends.operator_state.redistribution import Mode
from holdfast.backends.operator_state.restores import PendingState, read_operator_snapshots
from holdfast.backends.operator_state.snapshots import OperatorSlot, OperatorWriter, StateToWrite
from holdfast.backends.operator_state.states import BroadcastState, OperatorListState
from holdfast.backends.snapshots.migration import Reading
from holdfast.backends.snapshots.neutral import SnapshotForm, SnapshotFuture, SnapshotTarget
from holdfast.backends.snapshots.workers import SnapshotWorker
from holdfast.backends.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
)
from holdfast.backends.state.from_descriptors import shape_of
from holdfast.backends.state.one_thread import OwnedByOneThread
from holdfast.backends.tables.metrics import StateMetrics
from holdfast.storage import Invalid, StateFolder, StateSnapshot

__all__ = ["OperatorStateBackend"]


@dataclass(frozen=True, slots=True)
class _Registered:
    """A state that the job has declared. `cells` are the ones that the state object changes."""

    descriptor: StateDescriptor
    form: OperatorForm
    cells: list[Any] | dict[Any, Any]
    state: Any

    def frozen(self) -> StateToWrite:
        """The state as it is now: a copy of references, which is encoded when it is written."""
        if isinstance(self.cells, dict):
            blocks = self.form.blocks(list(self.cells), list(self.cells.values()))
        else:
            blocks = self.form.blocks(None, list(self.cells))
        return StateToWrite(self.form.table, blocks, self.form.values)


class OperatorStateBackend(OwnedByOneThread):
    """Live operator state of one operator in one slot; from `open`.

    Methods raise `Invalid` in a thread other than the one that opened it, and after `close`.
    """

    def __init__(
        self, place: OperatorSlot, pending: dict[str, PendingState], *, allow_pickle: bool
    ) -> None:
        super().__init__(str(place))
        self._place = place
        self._pending = pending
        self._allow_pickle = allow_pickle
        self._states: dict[str, _Registered] = {}
        self._worker = SnapshotWorker(place.uid)

    @classmethod
    def open(
        cls,
        *,
        uid: str,
        slot: int,
        parallelism: int,
        restore: Sequence[StateSnapshot] = (),
        storage: StateFolder | None = None,
        allow_pickle: bool = False,
    ) -> Self:
        """Open operator state, empty or with a slot's part of the state in snapshots.

        Slots are numbered from 0. `restore` has the snapshots of *all* slots of one checkpoint,
        whatever the parallelism was, and needs the `storage` that they were written to.
        `allow_pickle` allows values that are pickles, which can run any code when they are read.

        Raises:
            Invalid: the slot is out of range; or the snapshots are of another uid or kind, or not
                those of all slots.
            Corrupt: what the snapshots say of themselves is damaged.
        """
        place = OperatorSlot(uid, slot, parallelism)
        pending = read_operator_snapshots(restore, storage, place)
        return cls(place, pending, allow_pickle=allow_pickle)

    @property
    def uid(self) -> str:
        return self._place.uid

    def get_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState[Any]:
        """The list state of a descriptor: the same object for the same descriptor.

        Raises:
            Invalid: there is a state of this name and another descriptor or kind; the descriptor
                has a time to live; a type is not supported; or what the snapshots have of this
                name cannot be read as declared.
            Corrupt: a file of a snapshot is missing or damaged; names it.
            Unavailable: the storage did not answer.
        """
        state: OperatorListState[Any] = self._state(descriptor, Mode.LIST)
        return state

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState[Any]:
        """The union list state of a descriptor; else as `get_list_state`."""
        state: OperatorListState[Any] = self._state(descriptor, Mode.UNION_LIST)
        return state

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """The broadcast state of a descriptor; else as `get_list_state`."""
        state: BroadcastState[Any, Any] = self._state(descriptor, Mode.BROADCAST)
        return state

    def snapshot(
        self,
        checkpoint_id: int,
        target: SnapshotTarget,
        *,
        compression: str = "",
        form: SnapshotForm = SnapshotForm.OWN,
    ) -> SnapshotFuture:
        """Begin a snapshot, as `KeyedStateBackend.snapshot` does.

        All forms but the canonical one are the same.
        """
        self.check_thread()
        # Once this checkpoint is completed, files of the restored one may be deleted.
        for pending in self._pending.values():
            pending.hold()
        states = [each.frozen() for each in self._states.values()]
        states += [state for each in self._pending.values() for state in each.passed_on()]
        writer = OperatorWriter(
            self._place,
            target,
            checkpoint_id,
            is_canonical=form is SnapshotForm.CANONICAL,
            compression=compression,
        )
        is_savepoint = form is not SnapshotForm.OWN
        return self._worker.submit(partial(writer.write, states), is_savepoint=is_savepoint)

    def metrics(self) -> StateMetrics:
        """How many entries each state has: elements of a list, or entries of a map."""
        self.check_thread()
        return StateMetrics(
            states={
                name: {"entries": float(len(each.cells))} for name, each in self._states.items()
            }
        )

    def _release(self) -> None:
        self._worker.close()
        self._states.clear()
        self._pending.clear()

    def _state(self, descriptor: StateDescriptor, mode: Mode) -> Any:
        self.check_thread()
        there = self._states.get(descriptor.name)
        if there is not None:
            if (there.descriptor, there.form.mode) != (descriptor, mode):
                raise Invalid(
                    f"state {descriptor.name!r} is declared twice, differently",
                    where=self._where,
                    expected=f"{there.form.mode} of {there.descriptor}",
                    found=f"{mode} of {descriptor}",
                )
            return there.state
        form = self._form(descriptor, mode)
        names = self._pending_names(descriptor, mode)
        registered = self._loaded(descriptor, form, names)
        for name in names:
            del self._pending[name]
        self._states[descriptor.name] = registered
        return registered.state

    def _form(self, descriptor: StateDescriptor, mode: Mode) -> OperatorForm:
        wanted = MapStateDescriptor if mode is Mode.BROADCAST else ListStateDescriptor
        if not isinstance(descriptor, wanted):
            raise Invalid(
                f"{mode} state {descriptor.name!r} has a descriptor of another kind",
                where=self._where,
                expected=f"a {wanted.__name__}",
                found=repr(descriptor),
            )
        if descriptor.ttl is not None:
            raise Invalid(
                f"operator state {descriptor.name!r} has a time to live",
                where=self._where,
                expected="none: only keyed state can have one",
                found=str(descriptor.ttl.ttl),
                fix="Leave out ttl=, and remove yourself what is too old",
            )
        shape = shape_of(descriptor, allow_pickle=self._allow_pickle)
        return OperatorForm(descriptor.name, mode, shape.values, shape.map_keys, self._where)

    def _pending_names(self, descriptor: StateDescriptor, mode: Mode) -> list[str]:
        """The names under which the snapshots have the state.

        Elements may be under the new name and an old one at once, if only some slots had declared
        the state by its new name. For a map one copy is enough.
        """
        names = dict.fromkeys((descriptor.name, *descriptor.aliases))
        found = [name for name in names if name in self._pending]
        return found[:1] if mode is Mode.BROADCAST else found

    def _loaded(
        self, descriptor: StateDescriptor, form: OperatorForm, names: Sequence[str]
    ) -> _Registered:
        """The state with what is pending under these names; a failure changes nothing."""
        map_keys: list[Any] = []
        cells: list[Any] = []
        for name in names:
            pending = self._pending[name]
            reading = Reading(form.name, self._where, self._allow_pickle)
            for piece in pending.pieces:
                table = piece.table
                keys = {"the map keys": (table.map_keys, form.map_keys)}
                reading.check((table.mode, form.mode), keys, (table.values, form.values))
            for piece, blocks in pending.loaded():
                migrate = reading.migration(piece.table.values, form.values)
                for block in blocks:
                    with piece.naming():
                        more_keys, more_cells = form.rows(migrate(block))
                    map_keys += more_keys
                    cells += more_cells
        if form.map_keys is None:
            state = OperatorListState[Any](form, cells, self.check_thread)
            return _Registered(descriptor, form, cells, state)
        entries = dict(zip(map_keys, cells, strict=True))
        broadcast = BroadcastState[Any, Any](form, entries, self.check_thread)
        return _Registered(descriptor, form, entries, broadcast)
