"""Conversion of any snapshot into a savepoint of another form, or for another backend.

Imports `finding`, `reading` and `writing`. Public names are imported on first use: other commands
start without them. Who does what:

    plan           decides which operators are converted, in which pieces
    journal        notes the plan and finished pieces in the destination
    exclusive_run  admits one run at a time to the destination
    pieces         reads and writes one piece, in bounded memory
    runners        run pieces in this process or in several
    copying        copies what is not cut into pieces: positions of sources, state without keys
    destination    checks, begins and completes the folder that becomes the savepoint
    conversion     runs all of these in order
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
