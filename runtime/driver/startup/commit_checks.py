"""Whether the sinks of a job get to commit what is written to them: asked before it starts."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.operators.sink_operator import SinkSpec
from holdfast.runtime.planning.job_plan import JobPlan
from holdfast.storage import Invalid

__all__ = ["check_commits"]


def check_commits(plan: JobPlan, endless: Sequence[str], config: CheckpointConfig) -> None:
    """Refuse a job whose sinks would not commit all rows; `endless` are its sources without end.

    Raises:
        Invalid: there is a sink, and no checkpoint after which it would commit the rows.
    """
    operators = [spec for chain in plan.chains for spec in chain.operators]
    sinks = [spec.uid for spec in operators if isinstance(spec, SinkSpec)]
    if not sinks:
        return
    if endless and config.interval is None:
        raise Invalid(
            f"sink {sinks[0]!r} would never commit a row",
            where=f"source {endless[0]!r} does not end, and no checkpoints are taken",
            expected="checkpoints: sinks commit when one is complete",
            fix='Pass checkpointing="5s", or another interval, to the environment',
        )
    if not endless and not config.final_checkpoint:
        raise Invalid(
            f"sink {sinks[0]!r} would lose the last rows",
            where="all sources end, and no checkpoint is taken after that",
            expected="a final checkpoint: sinks commit when one is complete",
            found="final_checkpoint=False",
            fix="Leave final_checkpoint out (on a command line, "
            "execution.checkpointing.checkpoints-after-tasks-finish)",
        )
