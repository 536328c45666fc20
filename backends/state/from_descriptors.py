"""Making the table spec and the state object of a descriptor."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Optional

from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.state.base import KeyContext, State
from holdfast.backends.state.collection_states import ListState, MapState
from holdfast.backends.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from holdfast.backends.state.ttl import TtlListTable, TtlMapTable, TtlValueTable
from holdfast.backends.state.value_states import (
    AggregatingState,
    DirectValueState,
    ReducingState,
    ValueState,
)
from holdfast.backends.tables.contract import (
    ListTable,
    MapTable,
    StateKind,
    Table,
    TableSpec,
    ValueTable,
)
from holdfast.backends.values.codec import ValueCodec, misfit_in, value_codec_for
from holdfast.storage import Clock, Invalid

__all__ = ["Shape", "check_descriptor", "is_same_state", "make_state", "shape_of", "with_ttl"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The kind of state, the kind of its table, and its types, from a descriptor."""

    kind: str
    table: StateKind
    values: ValueCodec[Any]
    map_keys: KeyCodec[Any] | None = None


def shape_of(descriptor: StateDescriptor, *, allow_pickle: bool) -> Shape:
    """The shape of a descriptor's state.

    Raises:
        Invalid: a type is not supported, or it is no descriptor of ours.
    """
    if descriptor.pickle and not allow_pickle:
        raise Invalid(
            f"state {descriptor.name!r} is kept as pickles, which may not be read here",
            expected="allow_pickle=True where state is opened: reading pickles can run any code",
            found="pickle=True in its descriptor",
            fix="Allow it, or declare a type that has a typed encoding",
        )

    def codec(annotation: Any) -> ValueCodec[Any]:
        return value_codec_for(annotation, pickle=descriptor.pickle, allow_pickle=allow_pickle)

    match descriptor:
        case ValueStateDescriptor(value_type=annotation, default=default):
            values = codec(annotation)
            _check_default(descriptor, default, values)
            return Shape("value", StateKind.VALUE, values)
        case ListStateDescriptor(element_type=annotation):
            return Shape("list", StateKind.LIST, codec(annotation))
        case MapStateDescriptor(key_type=key, value_type=annotation):
            values = codec(annotation if descriptor.pickle else _or_none(annotation))
            return Shape("map", StateKind.MAP, values, key_codec_for(key))
        case ReducingStateDescriptor(value_type=annotation):
            return Shape("reducing", StateKind.VALUE, codec(annotation))
        case AggregatingStateDescriptor(accumulator_type=annotation):
            return Shape("aggregating", StateKind.VALUE, codec(annotation))
    raise _no_descriptor(descriptor)


def is_same_state(first: StateDescriptor, second: StateDescriptor) -> bool:
    """Whether two descriptors of one name mean the same state.

    Functions and defaults are not compared: each evaluation of a lambda makes another object.
    """

    def meant(descriptor: StateDescriptor) -> list[Any]:
        names = sorted(each.name for each in fields(descriptor))
        return [getattr(descriptor, name) for name in names if name not in _NOT_COMPARED]

    return type(first) is type(second) and meant(first) == meant(second)


_NOT_COMPARED = ("default", "function", "reduce")


def _or_none(annotation: Any) -> Any:
    return Optional[annotation]  # noqa: UP045 - None, or a name in quotes, has no |


def _check_default(descriptor: StateDescriptor, default: Any, values: ValueCodec[Any]) -> None:
    if default is not None:
        try:
            values.check(default)
        except Invalid as error:
            what = f"the default of state {descriptor.name!r} does not fit its type"
            raise misfit_in(what, "", error) from None


def check_descriptor(descriptor: object) -> None:
    """Refuse what is no descriptor.

    Raises:
        Invalid: it is none.
    """
    if not isinstance(descriptor, StateDescriptor):
        raise _no_descriptor(descriptor)


def _no_descriptor(found: object) -> Invalid:
    return Invalid(
        "this is no descriptor of state",
        expected="a Value-, List-, Map-, Reducing- or AggregatingStateDescriptor",
        found=repr(found),
    )


def with_ttl(table: Table, form: Any, ttl: StateTtlConfig | None, clock: Clock) -> Table:
    """The table, decorated with time to live if there is one."""
    if ttl is None:
        return table
    match table:
        case ValueTable():
            return TtlValueTable(table, form, ttl, clock)
        case ListTable():
            return TtlListTable(table, form, ttl, clock)
        case MapTable():
            return TtlMapTable(table, form, ttl, clock)
    raise AssertionError(f"{table} is of no kind")


def make_state(
    context: KeyContext, descriptor: StateDescriptor, spec: TableSpec, table: Table
) -> State[Any]:
    """The state object of a descriptor."""
    match descriptor, table:
        case ValueStateDescriptor(), ValueTable(direct=entries) if (
            entries is not None
            and spec.namespaces is None
            and context.store.form(spec).exact is not None
        ):
            return DirectValueState(context, descriptor, spec, table, entries)
        case ValueStateDescriptor(), ValueTable():
            return ValueState(context, descriptor, spec, table)
        case ListStateDescriptor(), ListTable():
            return ListState(context, descriptor, spec, table)
        case MapStateDescriptor(), MapTable():
            return MapState(context, descriptor, spec, table)
        case ReducingStateDescriptor(), ValueTable():
            return ReducingState(context, descriptor, spec, table)
        case AggregatingStateDescriptor(), ValueTable():
            return AggregatingState(context, descriptor, spec, table)
    raise AssertionError("a table is of the kind that its descriptor asks for")
