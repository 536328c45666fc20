"""From a snapshot of any kind to a savepoint of another form, or for another backend.

Nothing is imported before it is asked for: the command that is none of these starts without.
"""

from typing import TYPE_CHECKING

from holdfast.savepoints.lazy_exports import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from holdfast.backends.interface import usual_backend
    from holdfast.savepoints.conversion.conversion import (
        Conversion,
        Converted,
        OperatorResult,
        Progress,
    )
    from holdfast.savepoints.conversion.destination import DestinationState, destination_state
    from holdfast.savepoints.conversion.journal import PieceResult
    from holdfast.savepoints.conversion.pieces import PiecePhase, PieceTask, PieceWorker
    from holdfast.savepoints.conversion.plan import ConversionOptions
    from holdfast.savepoints.conversion.runners import (
        InProcess,
        Runner,
        WorkerProcesses,
        usual_workers,
    )
else:
    __getattr__ = _lazy_exports(__name__)

__all__ = [
    "Conversion",
    "ConversionOptions",
    "Converted",
    "DestinationState",
    "InProcess",
    "OperatorResult",
    "PiecePhase",
    "PieceResult",
    "PieceTask",
    "PieceWorker",
    "Progress",
    "Runner",
    "WorkerProcesses",
    "destination_state",
    "usual_backend",
    "usual_workers",
]
