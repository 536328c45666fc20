"""Checkpoints and savepoints as anybody finds and reads them, without the job that they are of.

Nothing is imported before it is asked for: commands, and tasks of Spark, need little of it.
"""

from typing import TYPE_CHECKING

from holdfast.savepoints.lazy_exports import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from holdfast.savepoints.comparing.comparison import ComparedSnapshots, ComparedState, compare
    from holdfast.savepoints.finding import StoredSnapshot, find_snapshot
    from holdfast.savepoints.history import stored_history
    from holdfast.savepoints.showing.inspecting import (
        InspectedOperator,
        InspectedSnapshot,
        InspectedState,
        Skew,
        inspect,
        type_of,
    )
    from holdfast.savepoints.showing.rows import rows_of, the_operator, the_state
    from holdfast.savepoints.showing.state_reader import read_state, state_of, timers_name
    from holdfast.savepoints.validating import Finding, Validated, validate
else:
    __getattr__ = _lazy_exports(
        __name__,
        {
            "ComparedSnapshots": "holdfast.savepoints.comparing.comparison",
            "ComparedState": "holdfast.savepoints.comparing.comparison",
            "compare": "holdfast.savepoints.comparing.comparison",
            "StoredSnapshot": "holdfast.savepoints.finding",
            "find_snapshot": "holdfast.savepoints.finding",
            "stored_history": "holdfast.savepoints.history",
            "InspectedOperator": "holdfast.savepoints.showing.inspecting",
            "InspectedSnapshot": "holdfast.savepoints.showing.inspecting",
            "InspectedState": "holdfast.savepoints.showing.inspecting",
            "Skew": "holdfast.savepoints.showing.inspecting",
            "inspect": "holdfast.savepoints.showing.inspecting",
            "type_of": "holdfast.savepoints.showing.inspecting",
            "rows_of": "holdfast.savepoints.showing.rows",
            "the_operator": "holdfast.savepoints.showing.rows",
            "the_state": "holdfast.savepoints.showing.rows",
            "read_state": "holdfast.savepoints.showing.state_reader",
            "state_of": "holdfast.savepoints.showing.state_reader",
            "timers_name": "holdfast.savepoints.showing.state_reader",
            "Finding": "holdfast.savepoints.validating",
            "Validated": "holdfast.savepoints.validating",
            "validate": "holdfast.savepoints.validating",
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
