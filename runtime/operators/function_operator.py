"""The common life cycle of operators that run a function with state, with keys or without."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from holdfast.backends import (
    EarlyFiles,
    KeyedStateBackend,
    OperatorStateBackend,
    SnapshotForm,
    SnapshotTarget,
    StateMetrics,
)
from holdfast.backends.operator_state.restores import of_all_slots
from holdfast.backends.operator_state.snapshots import OPERATOR_KINDS
from holdfast.backends.snapshots.restores import has_some_of
from holdfast.backends.state.timers import USER_TIMERS
from holdfast.runtime.operators.contexts import Timers
from holdfast.runtime.operators.function_context import FunctionContext
from holdfast.runtime.operators.key_columns import KeyColumns, key_type_of
from holdfast.runtime.operators.user_code import USER_ERRORS, UserCode, UserFunctionSpec
from holdfast.runtime.protocol.metrics import OperatorMetrics
from holdfast.runtime.protocol.operator import Operator, OperatorContext
from holdfast.storage import HoldfastError, Invalid, StateSnapshot

__all__ = ["FunctionOperator", "KeyedFunctionOperator", "KeyedFunctionSpec"]


class FunctionOperator(Operator):
    """Opens state, then the function; closes them in reverse order."""

    def __init__(self, code: UserCode, key_type: Any = None) -> None:
        self.code = code
        self.keyed: KeyedStateBackend | None = None
        self._key_type = key_type
        self._operator_state: OperatorStateBackend | None = None
        self._is_operator_state_used = False
        self._is_function_open = False

    def open(self, context: OperatorContext) -> None:
        """Restore what the snapshots hold, and open the function.

        Raises:
            Invalid: they do not fit the operator as it is now.
            Corrupt: a file of them is missing or damaged; names it.
            Unavailable: the storage did not answer.
            UserCodeFailed: the function has failed.
        """
        self._open_state(context)
        self._get_ready(context)
        self._is_function_open = True
        try:
            self.code.function.open(FunctionContext(context, self.keyed, self._use_operator_state))
        except HoldfastError:
            raise  # about state that does not fit, or cannot be read
        except USER_ERRORS as error:
            raise self.code.failure(error, "open", "") from error

    def _open_state(self, context: OperatorContext) -> None:
        keyed = [part for part in context.restored if part.key_groups is not None]
        other = [part for part in context.restored if part.key_groups is None]
        self._is_operator_state_used = bool(other)
        _check_kinds(context.uid, keyed, other, has_keys=self._key_type is not None)
        self._operator_state = OperatorStateBackend.open(
            uid=context.uid,
            slot=context.slot,
            parallelism=context.parallelism,
            restore=of_all_slots(other),
            storage=context.restored_storage,
            allow_pickle=context.allow_pickle,
        )
        if self._key_type is None:
            return
        mine = [
            part for part in keyed if has_some_of(part, context.key_groups, context.max_parallelism)
        ]
        self.keyed = context.backend.open(
            uid=context.uid,
            key_groups=context.key_groups,
            max_parallelism=context.max_parallelism,
            key_type=self._key_type,
            restore=mine or keyed,  # if all parts are of other slots, the backend refuses them
            storage=context.restored_storage,
            clock=context.clock,
            allow_pickle=context.allow_pickle,
            early=EarlyFiles(context.job, context.first_checkpoint_id, context.compression),
        )
        if context.is_restored_from_own:
            self.keyed.build_on_restored()

    def _use_operator_state(self) -> OperatorStateBackend:
        """Operator state; from now on it is part of every snapshot."""
        self._is_operator_state_used = True
        return self._opened_state()

    @abstractmethod
    def _get_ready(self, context: OperatorContext) -> None:
        """Prepare what processing needs; state is open, the function is not."""

    def tend(self) -> bool:
        return self.keyed is None or self.keyed.tend()

    def snapshot(
        self,
        checkpoint_id: int,
        target: SnapshotTarget,
        *,
        form: SnapshotForm = SnapshotForm.OWN,
    ) -> Sequence[Future[StateSnapshot]]:
        """See `Operator`; operator state is written only if there may be any."""
        futures: list[Future[StateSnapshot]] = []
        if self.keyed is not None:
            futures.append(self.keyed.snapshot(checkpoint_id, target, form=form))
        if self._is_operator_state_used:
            futures.append(self._opened_state().snapshot(checkpoint_id, target, form=form))
        return futures

    def completed(self, checkpoint_id: int) -> None:
        if self.keyed is not None:
            self.keyed.notify_checkpoint_complete(checkpoint_id)

    def aborted(self, checkpoint_id: int) -> None:
        if self.keyed is not None:
            self.keyed.notify_checkpoint_aborted(checkpoint_id)

    def metrics(self) -> OperatorMetrics:
        keyed = StateMetrics() if self.keyed is None else self.keyed.metrics()
        return OperatorMetrics(
            store=keyed.store,
            states=keyed.states,
            operator_states=self._opened_state().metrics().states,
        )

    def close(self) -> None:
        try:
            if self._is_function_open:
                self._is_function_open = False
                self._close_function()
        finally:
            self._close_state()

    def _close_function(self) -> None:
        try:
            self.code.function.close()
        except USER_ERRORS as error:
            raise self.code.failure(error, "close", "") from error

    def _close_state(self) -> None:
        try:
            if self.keyed is not None:
                self.keyed.close()
        finally:
            if self._operator_state is not None:
                self._operator_state.close()

    def _opened_state(self) -> OperatorStateBackend:
        assert self._operator_state is not None, "the chain opens an operator first"
        return self._operator_state


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


@dataclass(frozen=True, kw_only=True)
class KeyedFunctionSpec(UserFunctionSpec):
    """Runs a function over a keyed stream; the key is the value of the key columns."""

    key_columns: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        key_type_of(self.input_schema, self.key_columns, self.uid)


class KeyedFunctionOperator(FunctionOperator):
    """Has keyed state, and timers of users."""

    _timers: Timers

    def __init__(self, spec: KeyedFunctionSpec, code: UserCode) -> None:
        self._keys = KeyColumns(spec.input_schema, spec.key_columns, spec.uid)
        super().__init__(code, self._keys.key_type)
        self._spec = spec

    def _get_ready(self, context: OperatorContext) -> None:
        assert self.keyed is not None, "an operator with keys has keyed state"
        self._timers = Timers(
            self.keyed.timers(USER_TIMERS),
            context.clock,
            context.uid,
            has_event_time=self._spec.has_event_time,
        )
        self._prepare_keyed(context, self.keyed)

    @abstractmethod
    def _prepare_keyed(self, context: OperatorContext, keyed: KeyedStateBackend) -> None:
        """Prepare what processing needs besides; timers are there."""

    def next_tick_ms(self) -> int | None:
        return self._timers.service.next_processing_time()
