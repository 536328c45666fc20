"""The state of one operator in one slot, and the context by which a function uses it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from holdfast.backends import (
    AggregatingState,
    AggregatingStateDescriptor,
    BroadcastState,
    EarlyFiles,
    KeyedStateBackend,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    OperatorListState,
    OperatorStateBackend,
    ReducingState,
    ReducingStateDescriptor,
    SnapshotForm,
    SnapshotTarget,
    StateDescriptor,
    StateMetrics,
    ValueState,
    ValueStateDescriptor,
)
from holdfast.backends.operator_state.restores import of_all_slots
from holdfast.backends.operator_state.snapshots import OPERATOR_KINDS
from holdfast.backends.snapshots.restores import has_some_of
from holdfast.runtime.protocol.checkpoints import SavepointFormat
from holdfast.runtime.protocol.metrics import OperatorMetrics
from holdfast.runtime.protocol.operator import OperatorContext
from holdfast.storage import Invalid, StateSnapshot

__all__ = ["FunctionContext", "FunctionState", "form_of"]

_D = TypeVar("_D", bound=StateDescriptor)
_ASKED_BY: dict[type, str] = {
    ValueStateDescriptor: "get_state",
    ListStateDescriptor: "get_list_state",
    MapStateDescriptor: "get_map_state",
    ReducingStateDescriptor: "get_reducing_state",
    AggregatingStateDescriptor: "get_aggregating_state",
}


def form_of(savepoint: SavepointFormat | None) -> SnapshotForm:
    """In which form a snapshot is taken, for a checkpoint or a savepoint."""
    return SnapshotForm.OWN if savepoint is None else SnapshotForm(savepoint.value)


class FunctionState:
    """Keyed state, if the operator has keys, and operator state. Close it in any case."""

    def __init__(self, context: OperatorContext, key_type: Any = None) -> None:
        """Restore what the snapshots hold.

        Raises:
            Invalid: they do not fit the operator as it is now.
            Corrupt: a file of them is missing or damaged; names it.
            Unavailable: the storage did not answer.
        """
        keyed = [part for part in context.restored if part.key_groups is not None]
        other = [part for part in context.restored if part.key_groups is None]
        self._is_operator_state_used = bool(other)
        self.keyed: KeyedStateBackend | None = None
        _check_kinds(context.uid, keyed, other, has_keys=key_type is not None)
        self._operator = OperatorStateBackend.open(
            uid=context.uid,
            slot=context.slot,
            parallelism=context.parallelism,
            restore=of_all_slots(other),
            storage=context.restored_storage,
            allow_pickle=context.allow_pickle,
        )
        if key_type is not None:
            mine = [
                part
                for part in keyed
                if has_some_of(part, context.key_groups, context.max_parallelism)
            ]
            self.keyed = context.backend.open(
                uid=context.uid,
                key_groups=context.key_groups,
                max_parallelism=context.max_parallelism,
                key_type=key_type,
                restore=mine or keyed,  # if all parts are of other slots, the backend refuses them
                storage=context.restored_storage,
                clock=context.clock,
                allow_pickle=context.allow_pickle,
                early=EarlyFiles(context.job, context.first_checkpoint_id, context.compression),
            )
            if context.is_restored_from_own:
                self.keyed.build_on_restored()

    @property
    def operator(self) -> OperatorStateBackend:
        """Operator state; from now on it is part of every snapshot."""
        self._is_operator_state_used = True
        return self._operator

    def snapshot(
        self,
        checkpoint_id: int,
        target: SnapshotTarget,
        *,
        savepoint: SavepointFormat | None = None,
    ) -> Sequence[Future[StateSnapshot]]:
        """Begin snapshots of both, of operator state only if there may be any."""
        form = form_of(savepoint)
        futures: list[Future[StateSnapshot]] = []
        if self.keyed is not None:
            futures.append(self.keyed.snapshot(checkpoint_id, target, form=form))
        if self._is_operator_state_used:
            futures.append(self._operator.snapshot(checkpoint_id, target, form=form))
        return futures

    def tend(self) -> bool:
        """Do what is due between checkpoints; whether state may be changed further."""
        return self.keyed is None or self.keyed.tend()

    def completed(self, checkpoint_id: int) -> None:
        """The checkpoint is complete."""
        if self.keyed is not None:
            self.keyed.notify_checkpoint_complete(checkpoint_id)

    def aborted(self, checkpoint_id: int) -> None:
        """The checkpoint will not be completed."""
        if self.keyed is not None:
            self.keyed.notify_checkpoint_aborted(checkpoint_id)

    def metrics(self) -> OperatorMetrics:
        """Numbers about both."""
        keyed = StateMetrics() if self.keyed is None else self.keyed.metrics()
        return OperatorMetrics(
            store=keyed.store,
            states=keyed.states,
            operator_states=self._operator.metrics().states,
        )

    def close(self) -> None:
        """Close all state."""
        try:
            if self.keyed is not None:
                self.keyed.close()
        finally:
            self._operator.close()


def _check_kinds(
    uid: str, keyed: Sequence[StateSnapshot], other: Sequence[StateSnapshot], *, has_keys: bool
) -> None:
    strange = sorted({part.kind for part in other} - {*OPERATOR_KINDS})
    if strange or (keyed and not has_keys):
        raise Invalid(
            f"operator {uid!r} cannot take the state that the checkpoint has for it",
            expected="operator state, or keyed state" if has_keys else "operator state",
            found=", ".join(strange) or "keyed state, of an operator that has no keys now",
            fix="Give the operator another uid, or make it again what it was",
        )


class FunctionContext:
    """What a function is opened with; see `RuntimeContext`."""

    def __init__(self, context: OperatorContext, state: FunctionState) -> None:
        self._context = context
        self._state = state

    @property
    def uid(self) -> str:
        return self._context.uid

    @property
    def slot(self) -> int:
        return self._context.slot

    @property
    def parallelism(self) -> int:
        return self._context.parallelism

    @property
    def attempt(self) -> int:
        return self._context.attempt

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState[Any]:
        state: ValueState[Any] = self._keyed(descriptor, ValueStateDescriptor)
        return state

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        state: ListState[Any] = self._keyed(descriptor, ListStateDescriptor)
        return state

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState[Any]:
        state: MapState[Any] = self._keyed(descriptor, MapStateDescriptor)
        return state

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        state: ReducingState[Any] = self._keyed(descriptor, ReducingStateDescriptor)
        return state

    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any]:
        state: AggregatingState[Any] = self._keyed(descriptor, AggregatingStateDescriptor)
        return state

    def get_operator_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState[Any]:
        return self._state.operator.get_list_state(descriptor)

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState[Any]:
        return self._state.operator.get_union_list_state(descriptor)

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return self._state.operator.get_broadcast_state(descriptor)

    def _keyed(self, descriptor: _D, expected: type[_D]) -> Any:
        where = f"operator {self.uid!r}"
        if not isinstance(descriptor, expected):
            raise Invalid(
                "this is a descriptor of another kind of state",
                where=where,
                expected=f"a {expected.__name__}",
                found=repr(descriptor),
                fix=f"Pass it to {_ASKED_BY[type(descriptor)]}"
                if type(descriptor) in _ASKED_BY
                else "",
            )
        if self._state.keyed is None:
            raise Invalid(
                f"there is no keyed state {descriptor.name!r} without keys",
                where=where,
                expected="a keyed stream",
                fix="Call key_by first, or ask for operator state",
            )
        return self._state.keyed.get_state(descriptor)
