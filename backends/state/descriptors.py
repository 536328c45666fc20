"""Descriptors: a user's declaration of a state, with its name, types and time to live.

The names are PyFlink's. A descriptor is plain data (and, for reducing and aggregating state, the
user's function); the backend makes the state from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, TypeVar

from holdfast.backends.values.normalizing import has_surrogates
from holdfast.storage.errors import Invalid

__all__ = [
    "AggregateFunction",
    "AggregatingStateDescriptor",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "ReducingStateDescriptor",
    "StateDescriptor",
    "StateTtlConfig",
    "StateVisibility",
    "TtlUpdateType",
    "ValueStateDescriptor",
]

_In = TypeVar("_In")
_Acc = TypeVar("_Acc")
_Out = TypeVar("_Out")


class TtlUpdateType(Enum):
    """What starts the time to live anew."""

    ON_CREATE_AND_WRITE = "on-create-and-write"
    ON_READ_AND_WRITE = "on-read-and-write"


class StateVisibility(Enum):
    """Whether an entry past its time may still be read while it has not been removed."""

    NEVER_RETURN_EXPIRED = "never-return-expired"
    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "return-expired-if-not-cleaned-up"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTtlConfig:
    """How long an entry lives, in processing time: per value, list element or map entry.

    It is no part of a snapshot: a restored job's own configuration applies to what it restored.
    Expired entries are removed when they are read, are left out of snapshots if
    `cleanup_in_snapshot` (but of those that are files of a backend: they go as they are), and
    `cleanup_entries` of them are looked at in the background with each access to the state (0:
    none).
    """

    ttl: timedelta
    update_type: TtlUpdateType = TtlUpdateType.ON_CREATE_AND_WRITE
    visibility: StateVisibility = StateVisibility.NEVER_RETURN_EXPIRED
    cleanup_in_snapshot: bool = True
    cleanup_entries: int = 5

    def __post_init__(self) -> None:
        ttl: object = self.ttl
        if not isinstance(ttl, timedelta):
            raise Invalid(
                "a time to live is no timedelta",
                expected="a timedelta, such as timedelta(hours=1)",
                found=repr(ttl),
            )
        if self.ttl_ms <= 0:
            raise Invalid(
                "a time to live is out of range",
                expected="at least a millisecond",
                found=str(self.ttl),
            )
        if self.cleanup_entries < 0:
            raise Invalid(
                "cleanup_entries is out of range",
                expected="0 or more",
                found=str(self.cleanup_entries),
            )

        # These are compared by identity later, so other values would be silently ignored.
        choices: tuple[tuple[str, object, type[Enum]], ...] = (
            ("update_type", self.update_type, TtlUpdateType),
            ("visibility", self.visibility, StateVisibility),
        )
        for name, value, kind in choices:
            if not isinstance(value, kind):
                raise Invalid(
                    f"{name} of a time to live is not one of the choices",
                    expected=" or ".join(f"{kind.__name__}.{each.name}" for each in kind),
                    found=repr(value),
                )

    @property
    def ttl_ms(self) -> int:
        return self.ttl // timedelta(milliseconds=1)


class AggregateFunction(ABC, Generic[_In, _Acc, _Out]):
    """How an aggregating state takes values in and gives its result out."""

    @abstractmethod
    def create_accumulator(self) -> _Acc:
        """An accumulator of nothing."""

    @abstractmethod
    def add(self, value: _In, accumulator: _Acc) -> _Acc:
        """The accumulator with one value more; may change and return the one given."""

    @abstractmethod
    def get_result(self, accumulator: _Acc) -> _Out:
        """What the accumulator stands for."""

    def merge(self, first: _Acc, second: _Acc) -> _Acc:
        """Both accumulators in one; needed where namespaces are merged (session windows)."""
        raise Invalid(
            f"{type(self).__name__} cannot merge accumulators", fix="Define its method merge"
        )


@dataclass(frozen=True, kw_only=True)
class StateDescriptor:
    """What all descriptors have.

    `aliases` are names under which earlier versions of the job kept this state. What snapshots have
    under the name and its aliases is put together; the name counts first, then the first alias.
    `pickle` keeps values of types that have no typed encoding, at the price that only a reader
    which allows it can restore them.
    """

    name: str = field(kw_only=False)
    ttl: StateTtlConfig | None = None
    aliases: tuple[str, ...] = ()
    pickle: bool = False

    def __post_init__(self) -> None:
        aliases: object = self.aliases
        # Each letter of a text would be an alias.
        if isinstance(aliases, str) or not isinstance(aliases, Sequence):
            raise Invalid(
                f"the aliases of state {self.name!r} are not legal",
                expected="a tuple of names",
                found=repr(aliases),
            )
        names: tuple[object, ...] = (self.name, *self.aliases)
        for name in names:
            if not isinstance(name, str) or not name or name[0] == "_" or has_surrogates(name):
                raise Invalid(
                    "the name of a state is not legal",
                    expected="text that does not begin with an underscore, and that UTF-8 can hold",
                    found=repr(name),
                )
        ttl: object = self.ttl
        if ttl is not None and not isinstance(ttl, StateTtlConfig):
            raise Invalid(
                f"the time to live of state {self.name!r} is of another kind",
                expected="a StateTtlConfig, or None",
                found=repr(ttl),
                fix="Write ttl=StateTtlConfig(ttl=timedelta(…))",
            )


@dataclass(frozen=True)
class ValueStateDescriptor(StateDescriptor):
    """One value for each key. `default` is what an absent value reads as; it is never stored."""

    value_type: Any = Any
    default: Any = field(default=None, kw_only=True)


@dataclass(frozen=True)
class ListStateDescriptor(StateDescriptor):
    """A list of elements for each key."""

    element_type: Any = Any


@dataclass(frozen=True)
class MapStateDescriptor(StateDescriptor):
    """A map for each key. The type of its keys is one that keys of state may have."""

    key_type: Any = str
    value_type: Any = Any


@dataclass(frozen=True)
class ReducingStateDescriptor(StateDescriptor):
    """One value for each key, to which each added value is reduced.

    `reduce` takes the value there is and the one added, and must be associative: batches are
    reduced before what is there. The builtins `operator.add`, `min` and
    `max` are also computed by the batch.
    """

    reduce: Callable[[Any, Any], Any]
    value_type: Any = Any

    def __post_init__(self) -> None:
        super().__post_init__()
        reduce: object = self.reduce
        is_a_type = isinstance(reduce, type)  # which was meant to be the value_type
        if is_a_type or not callable(reduce):
            raise Invalid(
                f"state {self.name!r} is not reduced by a function",
                expected="a function of the value there is and the one added, such as "
                "operator.add; then the type of values",
                found=repr(reduce),
            )


@dataclass(frozen=True)
class AggregatingStateDescriptor(StateDescriptor):
    """An accumulator for each key, as its `AggregateFunction` has it."""

    function: AggregateFunction[Any, Any, Any]
    accumulator_type: Any = Any

    def __post_init__(self) -> None:
        super().__post_init__()
        function: object = self.function
        if not isinstance(function, AggregateFunction):
            is_class = isinstance(function, type) and issubclass(function, AggregateFunction)
            raise Invalid(
                f"state {self.name!r} is not aggregated by an AggregateFunction",
                expected="an object of a class below AggregateFunction",
                found=repr(function),
                fix=f"Make an object of it: {function.__name__}()"  # type: ignore[attr-defined]
                if is_class
                else "",
            )
