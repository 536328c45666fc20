"""From a snapshot of any kind to a savepoint of another form, or for another backend.

Nothing is imported before it is asked for: the command that is none of these starts without.
"""

from typing import TYPE_CHECKING

from holdfast.runtime.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from holdfast.backends.registry import usual_backend
    from holdfast.runtime.conversion.conversion import (
        Conversion,
        Converted,
        OperatorResult,
        Progress,
    )
    from holdfast.runtime.conversion.destination import Standing, standing
    from holdfast.runtime.conversion.plan import ConversionOptions
    from holdfast.runtime.conversion.pool import Here, Processes, Runner, usual_workers
    from holdfast.runtime.conversion.results import PieceResult
    from holdfast.runtime.conversion.work import Phase, Task, Work
else:
    __getattr__ = _lazy_exports(
        __name__,
        {
            "usual_backend": "holdfast.backends.registry",
            "Conversion": "holdfast.runtime.conversion.conversion",
            "Converted": "holdfast.runtime.conversion.conversion",
            "OperatorResult": "holdfast.runtime.conversion.conversion",
            "Progress": "holdfast.runtime.conversion.conversion",
            "Standing": "holdfast.runtime.conversion.destination",
            "standing": "holdfast.runtime.conversion.destination",
            "ConversionOptions": "holdfast.runtime.conversion.plan",
            "Here": "holdfast.runtime.conversion.pool",
            "Processes": "holdfast.runtime.conversion.pool",
            "Runner": "holdfast.runtime.conversion.pool",
            "usual_workers": "holdfast.runtime.conversion.pool",
            "PieceResult": "holdfast.runtime.conversion.results",
            "Phase": "holdfast.runtime.conversion.work",
            "Task": "holdfast.runtime.conversion.work",
            "Work": "holdfast.runtime.conversion.work",
        },
    )

__all__ = [
    "Conversion",
    "ConversionOptions",
    "Converted",
    "Here",
    "OperatorResult",
    "Phase",
    "PieceResult",
    "Processes",
    "Progress",
    "Runner",
    "Standing",
    "Task",
    "Work",
    "standing",
    "usual_backend",
    "usual_workers",
]
