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
    from holdfast.savepoints.showing.rows import choose_operator, choose_state, rows_of
    from holdfast.savepoints.showing.state_reader import read_state, state_of, timers_name
    from holdfast.savepoints.validating import Finding, Validated, validate
else:
    __getattr__ = _lazy_exports(__name__)

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
    "choose_operator",
    "choose_state",
    "compare",
    "find_snapshot",
    "inspect",
    "read_state",
    "rows_of",
    "state_of",
    "stored_history",
    "timers_name",
    "type_of",
    "validate",
]
