"""What a job may be restored from, and whether that fits the job as it is now."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import msgspec

from holdfast.backends import state_names
from holdfast.backends.snapshots.in_flight import InFlightPart, in_flight_parts
from holdfast.backends.snapshots.restores import can_be_regrouped
from holdfast.runtime.columns.types import listed
from holdfast.runtime.planning.job_plan import EdgeKind, EdgePlan, JobPlan
from holdfast.storage import CheckpointMetadata, Invalid, JobStorage, load_storage
from holdfast.storage.jobs.metadata import IN_FLIGHT_KIND
from holdfast.storage.registry import OpenStorage, storage_at
from holdfast.storage.restore_points import (
    RestorePoint,
    checkpoint_at,
    checkpoint_of_job,
    savepoint_folder,
)

__all__ = [
    "LATEST",
    "check_fit",
    "find_restore_point",
    "with_restored_groups",
    "without_in_flight",
]

LATEST = "latest"
_NOT_NULL = " not null"
"""As `listed` shows it of a column, or of a part of its values."""


def find_restore_point(
    job: JobStorage, restore: str | None, open_storage: OpenStorage = load_storage
) -> RestorePoint | None:
    """The checkpoint or savepoint that is meant; None to begin anew.

    `open_storage` is as for `storage_at`.

    Raises:
        Invalid: nothing is meant, though the job has left checkpoints; or this is no checkpoint's
            folder, and no savepoint's.
        NotFound: there is none.
        Corrupt: it is damaged; names the file.
    """
    if restore is None:
        completed = job.completed()
        if completed:
            raise Invalid(
                f"job {job.job_id!r} has left checkpoints, and was not told what to do with them",
                where=job.url,
                expected="none, or an argument restore",
                found=f"checkpoint {completed[-1]}",
                fix='If it has stopped, pass restore="latest" to go on from it (a run that lives '
                "is fenced then); or begin under another name",
            )
        return None
    if restore == LATEST:
        latest = job.latest()
        return None if latest is None else checkpoint_of_job(latest, job, open_storage)
    point = checkpoint_at(
        restore, lambda root: storage_at(root, job.storage, open_storage), open_storage
    )
    return point or _savepoint(restore, job, open_storage)


def check_fit(
    point: RestorePoint,
    plan: JobPlan,
    sources: Collection[str],
    *,
    allow_non_restored_state: bool,
) -> None:
    """Make sure that nothing of a checkpoint would be lost, or put in the wrong place.

    Raises:
        Invalid: it has state of an operator or a position of a source that the job no longer
            has, or another max parallelism; or rows in flight that no operator can take, or not
            by the way they came.
        Corrupt: what it says of rows in flight cannot be read.
    """
    _check_in_flight(point, plan, may_drop=allow_non_restored_state)
    metadata = point.metadata
    with_state = {uid for uid, left in metadata.operators.items() if left.parts}
    operators = sorted(with_state - set(plan.operator_uids))
    positions = sorted(metadata.sources.keys() - set(sources))
    if (operators or positions) and not allow_non_restored_state:
        lost = ", ".join(map(repr, (*operators, *positions)))
        left = [_left_by(uid, metadata) for uid in operators]
        left += [f"the position of source {uid!r}" for uid in positions]
        raise Invalid(
            f"{point} has state of {lost}, which the job does not have: {', '.join(left)}",
            expected=f"operators and sources with these uids: {lost}",
            found=", ".join(map(repr, (*sources, *plan.operator_uids))),
            fix="Give them back their uids, or pass allow_non_restored_state=True to do without",
        )
    for uid, state in sorted(metadata.operators.items()):
        if state.max_parallelism == plan.max_parallelism or uid not in plan.operator_uids:
            continue
        if not all(map(can_be_regrouped, state.parts)):
            raise Invalid(
                f"the max parallelism of operator {uid!r} is not that of {point}",
                expected=str(state.max_parallelism),
                found=str(plan.max_parallelism),
                fix=f"Pass max_parallelism={state.max_parallelism}: it says where keys are kept",
            )


def without_in_flight(point: RestorePoint, number: int | None) -> RestorePoint:
    """The restore point without rows in flight, if it is the checkpoint of this number."""
    metadata = point.metadata
    if metadata.checkpoint_id != number:
        return point
    parts = {name: each for name, each in metadata.parts.items() if each.kind != IN_FLIGHT_KIND}
    return replace(point, metadata=msgspec.structs.replace(metadata, parts=parts))


def _check_in_flight(point: RestorePoint, plan: JobPlan, *, may_drop: bool) -> None:
    """Make sure that each row that was on the way has an operator before which it can wait."""
    edges = {edge.edge_id: edge for edge in plan.edges}
    fix = "Stop the job with a savepoint before you change it: a savepoint has no rows in flight"
    number = point.metadata.checkpoint_id
    losing = f"pass ignore_in_flight_of={number} to lose those rows"
    for each in in_flight_parts(point.in_flight):
        edge = edges.get(each.about.edge)
        if edge is None and not may_drop:
            operator, _, place = each.about.edge.rpartition("/")
            raise Invalid(
                f"{point} has {each.rows} rows in flight to input {place} of operator "
                f"{operator!r}, which the job does not have",
                expected=f"one of {', '.join(sorted(edges))}",
                found=each.about.edge,
                fix=f"{fix}; or {losing}",
            )
        if edge is None:
            continue
        if not _have_room(listed(edge.schema), each.about.columns):
            raise Invalid(
                f"{point} has rows in flight to operator {edge.target!r} with other columns than "
                "it reads now",
                expected=listed(edge.schema),
                found=each.about.columns,
                fix=f"{fix}; or {losing}",
            )
        if not _came_as_now(each, edge):
            about, was_keyed = each.about, each.part.key_groups is not None
            was = _way("rows", ("keys",) if was_keyed else ())
            if about.key_columns is not None:
                was = _way(_ROWS_BY_KIND.get(about.kind, about.kind), about.key_columns)
            _, _, place = about.edge.rpartition("/")
            raise Invalid(
                f"{point} has {each.rows} rows in flight to input {place} of operator "
                f"{edge.target!r}, which now gets its rows in another way",
                expected=_way(_ROWS_BY_KIND[edge.kind.value], edge.key_columns),
                found=was,
                fix=f"{fix}; or {losing}",
            )


def _have_room(columns: str, stored: str) -> bool:
    """Whether they are the columns that are stored, except that more of them may be null."""
    first, *others = stored.split(_NOT_NULL)
    if not columns.startswith(first):
        return False
    left = columns.removeprefix(first)
    for piece in others:
        left = left.removeprefix(_NOT_NULL)
        if not left.startswith(piece):
            return False
        left = left.removeprefix(piece)
    return not left


def _came_as_now(each: InFlightPart, edge: EdgePlan) -> bool:
    """Whether rows come by this edge as they did, so that they are right where they waited."""
    about = each.about
    if about.key_columns is None:  # not stored; but slots with keyed rows had key groups
        return (each.part.key_groups is not None) == bool(edge.key_columns)
    return (about.kind, about.key_columns) == (edge.kind.value, edge.key_columns)


_ROWS_BY_KIND = {
    EdgeKind.SOURCE.value: "rows of a source",
    EdgeKind.HASH.value: "rows of an operator",
    EdgeKind.FORWARD.value: "rows of an operator",
}


def _way(rows: str, keys: Sequence[str]) -> str:
    return f"{rows}, by {', '.join(keys)}" if keys else f"{rows}, without keys"


def with_restored_groups(plan: JobPlan, point: RestorePoint) -> JobPlan:
    """The plan with as many key groups as the state has that is restored, as in Flink.

    For a job whose max parallelism was not set: what follows from its parallelism today may differ
    from what followed when the state was written. State that can be regrouped takes any number.

    Raises:
        Invalid: the state has fewer key groups than the job has slots.
    """
    found = {
        state.max_parallelism
        for uid, state in point.metadata.operators.items()
        if uid in plan.operator_uids and not all(map(can_be_regrouped, state.parts))
    }
    if len(found) != 1:  # no such state, or `check_fit` names what differs
        return plan
    (number,) = found
    if plan.parallelism > number:
        raise Invalid(
            f"the job has more slots than the state of {point} has key groups",
            expected=f"a parallelism of at most {number}, the max parallelism of that state",
            found=str(plan.parallelism),
            fix="Lower the parallelism; or convert it to a canonical savepoint, which can be "
            "restored with another max_parallelism",
        )
    return replace(plan, max_parallelism=number)


def _left_by(uid: str, metadata: CheckpointMetadata) -> str:
    parts = metadata.operators[uid].parts
    found = dict.fromkeys(name for part in parts for name in state_names(part))
    states = f"state {', '.join(map(repr, found))}" if found else "state"
    return f"{states} of operator {uid!r}"


def _savepoint(restore: str, job: JobStorage, open_storage: OpenStorage) -> RestorePoint:
    path = restore.rstrip("/").removesuffix("/_metadata")
    if "/" not in path:
        raise Invalid(
            "this is not a checkpoint or savepoint to restore from",
            expected=f"{LATEST!r}, the folder of a checkpoint: …/job/chk-00000000000000000042, or "
            "that of a savepoint: …/savepoint-0123ab-0123456789ab",
            found=repr(restore),
        )
    folder = savepoint_folder(path, job.storage, open_storage)
    return RestorePoint(folder.load(), folder)
