"""The context by which a user's function uses the state of its operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.backends import (
    AggregatingState,
    AggregatingStateDescriptor,
    BroadcastState,
    KeyedStateBackend,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    OperatorListState,
    OperatorStateBackend,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from holdfast.runtime.protocol.operator import OperatorContext
from holdfast.storage import Invalid

__all__ = ["FunctionContext"]

_D = TypeVar("_D", bound=StateDescriptor)
_ASKED_BY: dict[type, str] = {
    ValueStateDescriptor: "get_state",
    ListStateDescriptor: "get_list_state",
    MapStateDescriptor: "get_map_state",
    ReducingStateDescriptor: "get_reducing_state",
    AggregatingStateDescriptor: "get_aggregating_state",
}


class FunctionContext:
    """What a function is opened with; see `RuntimeContext`."""

    def __init__(
        self,
        context: OperatorContext,
        keyed: KeyedStateBackend | None,
        operator_state: Callable[[], OperatorStateBackend],
    ) -> None:
        self._context = context
        self._keyed_state = keyed
        self._operator_state = operator_state

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
        return self._operator_state().get_list_state(descriptor)

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState[Any]:
        return self._operator_state().get_union_list_state(descriptor)

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return self._operator_state().get_broadcast_state(descriptor)

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
        if self._keyed_state is None:
            raise Invalid(
                f"there is no keyed state {descriptor.name!r} without keys",
                where=where,
                expected="a keyed stream",
                fix="Call key_by first, or ask for operator state",
            )
        return self._keyed_state.get_state(descriptor)
