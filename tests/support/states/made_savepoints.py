"""Savepoints that tests put together by hand, of parts that they have written."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.storage import CheckpointMetadata, OperatorState, SavepointFolder

__all__ = ["complete"]


def complete(folder: SavepointFolder, operators: Mapping[str, OperatorState]) -> None:
    """Make a folder a savepoint with the state of these operators."""
    folder.commit(
        CheckpointMetadata(
            job_id="job",
            checkpoint_id=1,
            kind="savepoint",
            triggered_ms=1,
            completed_ms=2,
            operators=dict(operators),
        )
    )
