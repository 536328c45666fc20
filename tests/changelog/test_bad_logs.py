"""A log that is not as it was written is refused by name; an older checkpoint is still there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.changelog import ChangelogStateBackend
from holdfast.storage import (
    CheckpointMetadata,
    Corrupt,
    FileHandle,
    Handle,
    JobStorage,
    StateSnapshot,
    load_storage,
)
from support.jobs.logged_jobs import LoggedRun, lasting, log_of, parts_of
from support.states.logged_steps import STATES, UID, content, modelled
from support.states.tried_backends import BUSY_LOG, PLAIN, backend_named

ROUNDS = [lasting(200, seed=31 + number) for number in range(5)]
EXPECTED = modelled([step for each in ROUNDS for step in each])


@pytest.fixture
def job(quick_path: Path) -> JobStorage:
    return load_storage(str(quick_path / "storage"), inline_limit_bytes=0).job("job")


@pytest.fixture(
    params=[
        pytest.param(name, marks=[] if name == "hashmap" else pytest.mark.slow) for name in PLAIN
    ]
)
def logged(request: pytest.FixtureRequest, quick_path: Path) -> ChangelogStateBackend:
    return ChangelogStateBackend(backend_named(request.param, quick_path / "state"), BUSY_LOG)


def several(job: JobStorage, logged: ChangelogStateBackend) -> list[CheckpointMetadata]:
    """A materialization, and behind it a checkpoint for each round."""
    with LoggedRun(job, logged, retained=10) as run:
        run.change(ROUNDS[0])
        run.tend_until(lambda: run.numbers("materializations") >= [1])
        checkpoints = []
        for each in ROUNDS[1:]:
            run.change(each, passes_s=0)
            checkpoints.append(run.checkpoint())
        return checkpoints


def pieces_of(part: StateSnapshot, table: str = "list") -> list[str]:
    """The names of the handles of a table's log, in their order."""
    return [
        segment.handle
        for log in log_of(part).logs
        if log.info.name == table
        for segment in log.segments
    ]


def refuses(
    job: JobStorage, logged: ChangelogStateBackend, damaged: CheckpointMetadata, told: str
) -> None:
    """The state with that log is refused, each time that it is asked for."""
    with LoggedRun(job, logged, restored=damaged) as run:
        (slot,) = run.slots
        for _ in range(2):
            with pytest.raises(Corrupt, match=told) as caught:
                slot.get_state(STATES["list"][0], namespace_type=STATES["list"][1])
            assert "state 'list' of operator 'op' cannot be restored" in str(caught.value)


@pytest.mark.parametrize("how", ["missing", "truncated", "flipped"])
def test_a_damaged_file_is_named(
    job: JobStorage, logged: ChangelogStateBackend, quick_path: Path, how: str
) -> None:
    *_, before, newest = several(job, logged)
    handle = parts_of(newest)[0].handles[pieces_of(parts_of(newest)[0])[-1]]
    assert isinstance(handle, FileHandle)
    path = quick_path / "storage" / "job" / handle.file
    data = bytearray(path.read_bytes())
    middle = handle.offset + handle.length // 2
    data[middle] ^= 1
    match how:
        case "missing":
            path.unlink()
        case "truncated":
            path.write_bytes(data[:middle])
        case _:
            path.write_bytes(data)
    refuses(job, logged, newest, handle.file)
    with LoggedRun(job, logged, restored=before) as run:
        assert run.content() == modelled([step for each in ROUNDS[:-1] for step in each])


def with_handles(whole: CheckpointMetadata, **handles: Handle) -> CheckpointMetadata:
    """The checkpoint with some handles of its one part replaced."""
    (part,) = parts_of(whole)
    part = msgspec.structs.replace(part, handles={**part.handles, **handles})
    state = msgspec.structs.replace(whole.operators[UID], parts=(part,))
    return msgspec.structs.replace(whole, operators={UID: state})


def test_pieces_in_another_order_are_refused(
    job: JobStorage, logged: ChangelogStateBackend
) -> None:
    *_, newest = several(job, logged)
    handles = parts_of(newest)[0].handles
    first, *_, last = pieces_of(parts_of(newest)[0])
    damaged = with_handles(newest, **{first: handles[last], last: handles[first]})
    refuses(job, logged, damaged, "log of changes does not have what its checkpoint says.*'list'")


def test_a_piece_of_another_table_is_refused(
    job: JobStorage, logged: ChangelogStateBackend
) -> None:
    *_, newest = several(job, logged)
    handles = parts_of(newest)[0].handles
    mine, others = pieces_of(parts_of(newest)[0]), pieces_of(parts_of(newest)[0], "records")
    damaged = with_handles(newest, **{mine[-1]: handles[others[-1]]})
    refuses(job, logged, damaged, "log of changes does not have what its checkpoint says.*'list'")


def test_a_piece_of_another_attempt_is_refused(
    job: JobStorage, logged: ChangelogStateBackend
) -> None:
    """Two attempts that have done the same behind one checkpoint do not have the same log."""
    *_, before, newest = several(job, logged)
    with LoggedRun(job, logged, restored=before, retained=10) as run:
        run.change(ROUNDS[-1], passes_s=0)
        again = run.checkpoint()
    (mine, theirs) = (parts_of(each)[0] for each in (newest, again))
    damaged = with_handles(newest, **{pieces_of(mine)[-1]: theirs.handles[pieces_of(theirs)[-1]]})
    refuses(job, logged, damaged, "log of changes does not have what its checkpoint says.*'list'")
    for whole in (newest, again):
        with LoggedRun(job, logged, restored=whole) as run:
            assert content(run.slots[0]) == EXPECTED


def test_a_missing_piece_is_an_error(job: JobStorage, logged: ChangelogStateBackend) -> None:
    *_, newest = several(job, logged)
    (part,) = parts_of(newest)
    attributes = log_of(part)
    logs = tuple(
        msgspec.structs.replace(log, segments=(*log.segments[:1], *log.segments[2:]))
        if log.info.name == "list"
        else log
        for log in attributes.logs
    )
    fewer = msgspec.structs.replace(attributes, logs=logs)
    part = msgspec.structs.replace(part, attributes=msgspec.to_builtins(fewer))
    state = msgspec.structs.replace(newest.operators[UID], parts=(part,))
    damaged = msgspec.structs.replace(newest, operators={UID: state})
    with pytest.raises(Corrupt, match=r"pieces of a log do not follow one another.*'list'"):
        LoggedRun(job, logged, restored=damaged)
