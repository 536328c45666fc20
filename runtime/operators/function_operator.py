"""The common life cycle of operators that run a function with state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from holdfast.backends import SnapshotTarget
from holdfast.runtime.operators.function_state import FunctionContext, FunctionState
from holdfast.runtime.operators.user_code import USER_ERRORS, UserCode
from holdfast.runtime.protocol.checkpoints import SavepointFormat
from holdfast.runtime.protocol.metrics import OperatorMetrics
from holdfast.runtime.protocol.operator import Operator, OperatorContext
from holdfast.storage import HoldfastError, StateSnapshot

__all__ = ["FunctionOperator"]


class FunctionOperator(Operator):
    """Opens state, then the function; closes them in reverse order."""

    def __init__(self, code: UserCode, key_type: Any = None) -> None:
        self.code = code
        self._key_type = key_type
        self._state: FunctionState | None = None
        self._is_function_open = False

    @property
    def state(self) -> FunctionState:
        """The state of the operator, once it is open."""
        if self._state is None:
            raise AssertionError("the operator is not open")
        return self._state

    def open(self, context: OperatorContext) -> None:
        self._state = FunctionState(context, self._key_type)
        self._get_ready(context)
        self._is_function_open = True
        try:
            self.code.function.open(FunctionContext(context, self._state))
        except HoldfastError:
            raise  # about state that does not fit, or cannot be read
        except USER_ERRORS as error:
            raise self.code.failure(error, "open", "") from error

    @abstractmethod
    def _get_ready(self, context: OperatorContext) -> None:
        """Prepare what processing needs; state is open, the function is not."""

    def tend(self) -> bool:
        return self.state.tend()

    def snapshot(
        self,
        checkpoint_id: int,
        target: SnapshotTarget,
        *,
        savepoint: SavepointFormat | None = None,
    ) -> Sequence[Future[StateSnapshot]]:
        return self.state.snapshot(checkpoint_id, target, savepoint=savepoint)

    def completed(self, checkpoint_id: int) -> None:
        self.state.completed(checkpoint_id)

    def aborted(self, checkpoint_id: int) -> None:
        self.state.aborted(checkpoint_id)

    def metrics(self) -> OperatorMetrics:
        return self.state.metrics()

    def close(self) -> None:
        try:
            if self._is_function_open:
                self._is_function_open = False
                self._close_function()
        finally:
            if self._state is not None:
                self._state.close()

    def _close_function(self) -> None:
        try:
            self.code.function.close()
        except USER_ERRORS as error:
            raise self.code.failure(error, "close", "") from error
