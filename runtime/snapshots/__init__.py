"""Checkpoints and savepoints as anybody finds and reads them, without the job that they are of.

Nothing is imported before it is asked for: commands, and tasks of Spark, need little of it.
"""

from typing import TYPE_CHECKING

from holdfast.runtime.lazy import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from holdfast.runtime.snapshots.comparing import ComparedSnapshots, ComparedState, compare
    from holdfast.runtime.snapshots.finding import StoredSnapshot, find_snapshot
    from holdfast.runtime.snapshots.history import stored_history
    from holdfast.runtime.snapshots.inspecting import (
        InspectedOperator,
        InspectedSnapshot,
        InspectedState,
        Skew,
        inspect,
        type_of,
    )
    from holdfast.runtime.snapshots.showing import rows_of, the_operator, the_state
    from holdfast.runtime.snapshots.states import read_state, state_of, timers_name
    from holdfast.runtime.snapshots.validating import Finding, Validated, validate
else:
    __getattr__ = _lazy_exports(
        __name__,
        {
            "ComparedSnapshots": "holdfast.runtime.snapshots.comparing",
            "ComparedState": "holdfast.runtime.snapshots.comparing",
            "compare": "holdfast.runtime.snapshots.comparing",
            "StoredSnapshot": "holdfast.runtime.snapshots.finding",
            "find_snapshot": "holdfast.runtime.snapshots.finding",
            "stored_history": "holdfast.runtime.snapshots.history",
            "InspectedOperator": "holdfast.runtime.snapshots.inspecting",
            "InspectedSnapshot": "holdfast.runtime.snapshots.inspecting",
            "InspectedState": "holdfast.runtime.snapshots.inspecting",
            "Skew": "holdfast.runtime.snapshots.inspecting",
            "inspect": "holdfast.runtime.snapshots.inspecting",
            "type_of": "holdfast.runtime.snapshots.inspecting",
            "rows_of": "holdfast.runtime.snapshots.showing",
            "the_operator": "holdfast.runtime.snapshots.showing",
            "the_state": "holdfast.runtime.snapshots.showing",
            "read_state": "holdfast.runtime.snapshots.states",
            "state_of": "holdfast.runtime.snapshots.states",
            "timers_name": "holdfast.runtime.snapshots.states",
            "Finding": "holdfast.runtime.snapshots.validating",
            "Validated": "holdfast.runtime.snapshots.validating",
            "validate": "holdfast.runtime.snapshots.validating",
        },
    )

__all__ = [
    "ComparedSnapshots",
    "ComparedState",
    "Finding",
    "InspectedOperator",
    "InspectedSnapshot",
    "InspectedState",
    "Skew",
    "StoredSnapshot",
    "Validated",
    "compare",
    "find_snapshot",
    "inspect",
    "read_state",
    "rows_of",
    "state_of",
    "stored_history",
    "the_operator",
    "the_state",
    "timers_name",
    "type_of",
    "validate",
]
