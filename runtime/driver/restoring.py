"""What a job may be restored from, and whether that fits the job as it is now."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from holdfast.runtime.plan import JobPlan
from holdfast.storage import CheckpointMetadata, Invalid, JobStorage, StateSnapshot

__all__ = ["RestorePoint", "check_fit"]


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """A completed checkpoint, and the folder that it is in."""

    metadata: CheckpointMetadata
    job: JobStorage

    def __str__(self) -> str:
        return f"checkpoint {self.metadata.checkpoint_id} at {self.job.url}"

    def operators(self, plan: JobPlan) -> dict[str, tuple[StateSnapshot, ...]]:
        """What the job's operators have left, by uid."""
        there = self.metadata.operators
        return {uid: there[uid].parts for uid in plan.operator_uids if uid in there}

    def source(self, uid: str) -> StateSnapshot | None:
        """Where a source was; None if the job had no such source."""
        return self.metadata.sources.get(uid)


def check_fit(
    point: RestorePoint, plan: JobPlan, sources: Collection[str], *, allow_dropped_state: bool
) -> None:
    """Make sure that nothing of a checkpoint would be lost, or put in the wrong place.

    Raises:
        Invalid: it has state or a position of somebody whom the job does not have any more, or
            another max parallelism.
    """
    metadata = point.metadata
    with_state = {uid for uid, left in metadata.operators.items() if left.parts}
    lost = sorted(with_state - set(plan.operator_uids)) + sorted(
        metadata.sources.keys() - set(sources)
    )
    if lost and not allow_dropped_state:
        raise Invalid(
            f"{point} has state of {', '.join(map(repr, lost))}, which the job does not have",
            expected=f"operators and sources with these uids: {', '.join(map(repr, lost))}",
            found=", ".join(map(repr, (*sources, *plan.operator_uids))),
            fix="Give them back their uids, or pass allow_dropped_state=True to do without",
        )
    for uid, left in sorted(metadata.operators.items()):
        if left.max_parallelism != plan.max_parallelism and uid in plan.operator_uids:
            raise Invalid(
                f"the max parallelism of operator {uid!r} is not that of {point}",
                expected=str(left.max_parallelism),
                found=str(plan.max_parallelism),
                fix=f"Pass max_parallelism={left.max_parallelism}: it says where keys are kept",
            )
