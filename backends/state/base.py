"""The base of all types of keyed state, which are written once over tables.

State is used by the row, under the current key, as in Flink; and by the batch, over columns of
keys.

Null, empty and absent are the same: setting a value to None, or a list or map to an empty one,
clears it. Values that a state returns belong to the caller: changing one does not change state; put
it back to do so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from holdfast.backends.state.descriptors import StateDescriptor
from holdfast.backends.tables.contract import NO_NAMESPACE, CellForm, Table, TableSpec, TableStore
from holdfast.backends.values.codec import misfit_in
from holdfast.storage.errors import Invalid

__all__ = ["KeyContext", "State"]

_V = TypeVar("_V")


class KeyContext(Protocol):
    """The part of its backend that a state needs."""

    key: Any
    """The current key, canonical; an object whose hash raises when there is none."""
    store: TableStore

    @property
    def uid(self) -> str:
        """The operator's uid."""
        ...

    def keys_of(self, keys: Any) -> Sequence[Any]:
        """Canonical keys of a column or of a sequence, of this backend's key groups."""
        ...

    def check_thread(self) -> None:
        """Refuse the call of another thread, and any call after the backend was closed."""
        ...


class State(Generic[_V]):
    """Base of all states: a table in a backend, and a current namespace.

    All methods must be called by the thread that opened the backend.
    """

    def __init__(
        self, context: KeyContext, descriptor: StateDescriptor, spec: TableSpec, table: Table
    ) -> None:
        self._context = context
        self._descriptor = descriptor
        self._spec = spec
        self._table: Any = table
        self.namespace: Any = NO_NAMESPACE
        """The current namespace, canonical."""
        self._form: CellForm = context.store.form(spec)
        self._last: tuple[Any, Any, Any] = (self, self, None)

    @property
    def name(self) -> str:
        """The name in the descriptor."""
        return self._descriptor.name

    def set_current_namespace(self, namespace: Any) -> None:
        """Choose the namespace for the calls that follow.

        Raises:
            Invalid: the state has no namespaces, or the namespace does not fit their type.
        """
        if self._spec.namespaces is None:
            raise Invalid(
                f"state {self.name!r} has no namespaces", fix="Pass namespace_type to get_state"
            )
        try:
            self.namespace = self._spec.namespaces.canonical(namespace)
        except Invalid as error:
            raise self._misfit("a namespace", error) from None

    def clear(self) -> None:
        """Remove the state of the current key and namespace."""
        self._table.remove(self._address())

    def _address(self) -> Any:
        self._context.check_thread()
        key, namespace = self._context.key, self.namespace
        last_key, last_namespace, address = self._last
        if key is last_key and namespace is last_namespace:  # a write often follows a read
            return address
        hash(key)  # raises when there is no current key
        if namespace is NO_NAMESPACE and self._spec.namespaces is not None:
            raise self._no_namespace()
        address = self._context.store.address(self._spec, key, namespace)
        self._last = (key, namespace, address)
        return address

    def _addresses(self, keys: Any) -> Sequence[Any]:
        if self.namespace is NO_NAMESPACE and self._spec.namespaces is not None:
            raise self._no_namespace()
        canonical = self._context.keys_of(keys)
        return self._context.store.addresses(self._spec, canonical, self.namespace)

    def _no_namespace(self) -> Invalid:
        return Invalid(
            f"state {self.name!r} has no current namespace", fix="Call set_current_namespace first"
        )

    def _wrong(self, error: Invalid) -> Invalid:
        """The error of a value that does not fit, with the state's name."""
        return self._misfit("a value", error)

    def _misfit(self, what: str, error: Invalid) -> Invalid:
        place = f"operator {self._context.uid!r}"
        return misfit_in(f"{what} does not fit state {self.name!r}", place, error)

    def _encode(self, value: Any) -> Any:
        try:
            return self._form.encode(value)
        except Invalid as error:
            raise self._wrong(error) from None

    def _encode_many(self, values: Sequence[Any]) -> list[Any]:
        try:
            return self._form.encode_many(values)
        except Invalid as error:
            raise self._wrong(error) from None
