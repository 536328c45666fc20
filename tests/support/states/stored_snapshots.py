"""Snapshots of jobs, stored as a job's coordinator stores them, for tests that take them as given.

An operator `op/1` has keyed state of every kind, timers and time to live, and state without keys of
every mode; a source has a position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from holdfast.backends import (
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateBackend,
    SnapshotForm,
    StateBackend,
    key_groups_of_slots,
    load_backend,
)
from holdfast.backends.operator_state.restores import of_all_slots
from holdfast.savepoints import StoredSnapshot, find_snapshot
from holdfast.storage import (
    CheckpointMetadata,
    FileHandle,
    JobStorage,
    ManualClock,
    OperatorState,
    SavepointFolder,
    StateFolder,
    StateSnapshot,
)
from support.states.fleets import WAIT_S, Fleet, fill
from support.storages.tried_storages import CheckpointPlace

__all__ = ["START_MS", "UID", "content_of", "parts_in", "stored", "unkeyed_content"]

START_MS = 1_700_000_000_000
UID = "op/1"
JOB = "clicks by user"
SLOTS = 3
SOURCE = "clicks"
_NUMBERS = ListStateDescriptor("numbers", int)
_UNION = ListStateDescriptor("union", tuple[str, int])
_RULES = MapStateDescriptor("rules", str, dict[str, float])


def parts_in(
    backend: StateBackend,
    folder: StateFolder,
    form: SnapshotForm,
    slots: int = SLOTS,
    silent: Collection[int] = (),
    complete: Callable[[int, Sequence[StateSnapshot]], None] | None = None,
) -> tuple[StateSnapshot, ...]:
    """What the operator's slots leave in a folder for checkpoint 2.

    With `complete` there is one before, which is completed by it, and on which that builds.
    Slots that are silent have never asked for state without keys, and leave none.
    """
    target: Any = folder
    parts: list[StateSnapshot] = []
    with ExitStack() as stack:
        fleet = Fleet(
            [
                stack.enter_context(
                    backend.open(
                        uid=UID,
                        key_groups=key_groups,
                        max_parallelism=128,
                        key_type=str,
                        clock=ManualClock(START_MS),
                    )
                )
                for key_groups in key_groups_of_slots(slots, 128)
            ]
        )
        fill(fleet, 1)
        if complete is not None:
            complete(1, fleet.snapshots(1, target, form))
            for slot in fleet.slots:
                slot.notify_checkpoint_complete(1)
        fill(fleet, 7)
        parts += fleet.snapshots(2, target, form)
        for number in sorted({*range(slots)} - {*silent}):
            with OperatorStateBackend.open(uid=UID, slot=number, parallelism=slots) as state:
                state.get_list_state(_NUMBERS).update([number, number + 10, 7])
                state.get_union_list_state(_UNION).update([("slot", number)])
                state.get_broadcast_state(_RULES).put("half", {"a": 0.5})
                parts.append(state.snapshot(2, target, form=form).result(WAIT_S))
    return tuple(parts)


def stored(
    root: Path | CheckpointPlace,
    backend: StateBackend,
    kind: str,
    form: SnapshotForm,
    slots: int = SLOTS,
    silent: Collection[int] = (),
) -> StoredSnapshot:
    """A checkpoint or a savepoint below a folder, or at a place in any storage."""
    place = root if isinstance(root, CheckpointPlace) else CheckpointPlace(str(root))
    storage = place.storage()
    if kind == "savepoint":
        folder = SavepointFolder.begin(storage, JOB)
        parts = parts_in(backend, folder, form, slots, silent)
        folder.commit(_metadata(folder, 2, kind, slots, parts))
        return find_snapshot(folder.url, place.open)
    job = storage.job(JOB)
    owner = job.take_over()

    def complete(number: int, parts: Sequence[StateSnapshot]) -> None:
        owner.commit(_metadata(job, number, kind, slots, parts))

    complete(2, parts_in(backend, job, form, slots, silent, complete))
    return find_snapshot(f"{job.url}/chk-{2:020d}", place.open)


def _metadata(
    folder: JobStorage | SavepointFolder,
    number: int,
    kind: str,
    slots: int,
    parts: Sequence[StateSnapshot],
) -> CheckpointMetadata:
    with folder.segments(number, "source") as writer:
        position = writer.add(b"to the last row" * 4000)
    assert isinstance(position, FileHandle)
    return CheckpointMetadata(
        job_id=JOB,
        checkpoint_id=number,
        kind=kind,
        triggered_ms=START_MS,
        completed_ms=START_MS + 1,
        operators={UID: OperatorState(parallelism=slots, max_parallelism=128, parts=tuple(parts))},
        sources={SOURCE: StateSnapshot(kind="position", handles={"log": position})},
        properties={"trigger": "periodic", "format": "own"},
    )


def content_of(
    snapshot: StoredSnapshot, backend: StateBackend | None = None, slots: int = 2
) -> dict[Any, Any]:
    """All keyed state and timers, as a job finds them that goes on from a snapshot."""
    left = snapshot.metadata.operators[UID]
    keyed = [part for part in left.parts if part.key_groups is not None]
    with ExitStack() as stack:
        fleet = Fleet(
            [
                stack.enter_context(
                    (backend or load_backend("hashmap")).open(
                        uid=UID,
                        key_groups=key_groups,
                        max_parallelism=left.max_parallelism,
                        key_type=str,
                        restore=keyed,
                        storage=snapshot.folder,
                        clock=ManualClock(START_MS),
                    )
                )
                for key_groups in key_groups_of_slots(slots, left.max_parallelism)
            ]
        )
        return fleet.content()


def unkeyed_content(snapshot: StoredSnapshot, slots: int = 2) -> dict[str, Any]:
    """All state without keys, likewise."""
    parts: Sequence[StateSnapshot] = snapshot.metadata.operators[UID].parts
    own = of_all_slots([part for part in parts if part.key_groups is None])
    numbers: Counter[int] = Counter()
    found: dict[str, Any] = {}
    for slot in range(slots):
        with OperatorStateBackend.open(
            uid=UID, slot=slot, parallelism=slots, restore=own, storage=snapshot.folder
        ) as state:
            numbers.update(state.get_list_state(_NUMBERS).get())
            found[f"union {slot}"] = sorted(state.get_union_list_state(_UNION).get())
            found[f"rules {slot}"] = dict(state.get_broadcast_state(_RULES).items())
    return found | {"numbers": dict(numbers)}
