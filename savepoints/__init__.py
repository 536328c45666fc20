"""Stored state without its job: find, read, show, compare, validate, write and convert snapshots.

A snapshot is a completed checkpoint or a savepoint. This room imports changelog, backends and
storage, and nothing of a running job. Folders, from the top:

    conversion/   a snapshot into a savepoint of another form, or for another backend
    writing/      tables into a savepoint
    comparing/    two snapshots side by side
    validating    whether a snapshot can be restored as a whole
    history       the completed checkpoints of jobs, as a table
    showing/      what a snapshot has, and the rows of a state
    finding       the snapshot at a path or URL
    reading/      the tables of a snapshot

Public names are imported on first use: a command, or a task of Spark, needs few of them.
"""

from typing import TYPE_CHECKING

from holdfast.savepoints.lazy_exports import lazy_exports as _lazy_exports

if TYPE_CHECKING:
    from holdfast.savepoints.comparing.comparison import ComparedSnapshots, ComparedState, compare
    from holdfast.savepoints.finding import StoredSnapshot, find_snapshot
    from holdfast.savepoints.history import stored_history
    from holdfast.savepoints.showing.inspecting import (
        InspectedInFlight,
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
    "InspectedInFlight",
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
