"""Whether a checkpoint fits the job that is to be restored from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from holdfast.backends.operator_state.snapshots import OPERATOR_KIND
from holdfast.backends.snapshots.in_flight import InFlight
from holdfast.backends.snapshots.neutral import PARQUET_KIND
from holdfast.runtime.columns.types import listed
from holdfast.runtime.driver.restoring import (
    check_fit,
    find_restore_point,
    with_restored_groups,
    without_in_flight,
)
from holdfast.runtime.driver.startup.take_over import Beginning, ignoring_rows_in_flight
from holdfast.runtime.options.environment_options import Restoring
from holdfast.runtime.planning.job_plan import JobPlan
from holdfast.storage import (
    CheckpointMetadata,
    InlineHandle,
    Invalid,
    JobManagerCheckpointStorage,
    JobStorage,
    NotFound,
    OperatorState,
    StateSnapshot,
    load_storage,
)
from holdfast.storage.jobs.metadata import IN_FLIGHT_KIND
from holdfast.storage.restore_points import RestorePoint
from support.simulations.jobs import MAX_PARALLELISM, SOURCES, Shelf, job_plan
from support.simulations.world import World

PART = StateSnapshot(kind="test/1", key_groups=(0, 1))


def plan() -> JobPlan:
    return job_plan(Shelf(World(0), lambda _uid, _part: None), 2)


def point(
    *,
    sources: tuple[str, ...] = SOURCES,
    max_parallelism: int = MAX_PARALLELISM,
    part: StateSnapshot = PART,
    **parts: int,
) -> RestorePoint:
    operators = {
        uid: OperatorState(parallelism=3, max_parallelism=max_parallelism, parts=(part,) * count)
        for uid, count in parts.items()
    }
    metadata = CheckpointMetadata(
        job_id="job",
        checkpoint_id=5,
        triggered_ms=0,
        completed_ms=0,
        operators=operators,
        sources=dict.fromkeys(sources, PART),
    )
    return RestorePoint(metadata, load_storage("memory://fit").job("job"))


def test_matching_state_is_found_by_uid() -> None:
    found = point(spend=2, towns=1)
    check_fit(found, plan(), SOURCES, allow_non_restored_state=False)
    assert found.operators(plan().operator_uids) == {"spend": (PART, PART), "towns": (PART,)}
    assert found.source("web") == PART
    assert found.source("kiosk") is None
    assert str(found) == "checkpoint 5 at memory://fit/job"


def test_state_without_an_operator_is_refused_unless_it_may_be_dropped() -> None:
    lost = point(spend=2, gone=1, empty=0, sources=("web", "kiosk"))
    with pytest.raises(Invalid, match="has state of 'gone', 'kiosk', which the job does not have"):
        check_fit(lost, plan(), SOURCES, allow_non_restored_state=False)
    check_fit(lost, plan(), SOURCES, allow_non_restored_state=True)
    assert {*lost.operators(plan().operator_uids)} == {"spend"}


def in_flight(
    edge: str = "spend/0",
    columns: str | None = None,
    kind: str = "source",
    key_columns: tuple[str, ...] | None = ("user",),
    key_groups: tuple[int, int] | None = (8, 15),
) -> RestorePoint:
    """A checkpoint with rows on the way to an operator."""
    found = point(spend=2)
    about = InFlight(
        edge=edge,
        columns=listed(plan().edge("spend/0").schema) if columns is None else columns,
        parallelism=2,
        max_parallelism=MAX_PARALLELISM,
        rows={"0": 7},
        kind=kind,
        key_columns=key_columns,
    )
    rows = StateSnapshot(
        kind=IN_FLIGHT_KIND,
        handles={"0": InlineHandle(b"")},
        attributes=msgspec.to_builtins(about),
        slot=1,
        key_groups=key_groups,
    )
    metadata = msgspec.structs.replace(found.metadata, parts={"in-flight": rows})
    return RestorePoint(metadata, found.folder)


def test_rows_in_flight_need_the_input_before_which_they_waited() -> None:
    check_fit(in_flight(), plan(), SOURCES, allow_non_restored_state=False)
    gone = in_flight(edge="gone/1")
    with pytest.raises(Invalid, match="has 7 rows in flight to input 1 of operator 'gone'"):
        check_fit(gone, plan(), SOURCES, allow_non_restored_state=False)
    check_fit(gone, plan(), SOURCES, allow_non_restored_state=True)


@pytest.mark.parametrize("may_drop", [False, True])
def test_rows_in_flight_need_the_columns_that_they_have(may_drop: bool) -> None:  # noqa: FBT001
    with pytest.raises(Invalid, match=r"other columns.*Stop the job with a savepoint") as caught:
        check_fit(
            in_flight(columns="user: int64"),
            plan(),
            SOURCES,
            allow_non_restored_state=may_drop,
        )
    assert caught.value.found == "user: int64"


COLUMNS = listed(plan().edge("spend/0").schema)
STRICT = ", ".join(f"{column} not null" for column in COLUMNS.split(", "))


def test_columns_may_be_null_now_that_were_not() -> None:
    """But not the other way: of those that were, some may be."""
    assert " not null" not in COLUMNS
    for columns in (STRICT, STRICT.replace(" not null", "", 1)):
        check_fit(in_flight(columns=columns), plan(), SOURCES, allow_non_restored_state=False)
    (edge,) = (each for each in plan().edges if each.edge_id == "spend/0")
    strict = pa.schema([field.with_nullable(False) for field in edge.schema])
    now = replace(plan(), edges=(replace(edge, schema=strict),))
    check_fit(in_flight(columns=STRICT), now, SOURCES, allow_non_restored_state=True)
    for columns in (COLUMNS, STRICT.replace(" not null", "", 1), f"{STRICT}, more: int64", ""):
        with pytest.raises(Invalid, match="other columns"):
            check_fit(in_flight(columns=columns), now, SOURCES, allow_non_restored_state=True)


@pytest.mark.parametrize(
    ("was", "found"),
    [
        ({"key_columns": ()}, "rows of a source, without keys"),
        ({"key_columns": ("user", "town")}, "rows of a source, by user, town"),
        ({"kind": "hash"}, "rows of an operator, by user"),
        ({"kind": "forward", "key_columns": ()}, "rows of an operator, without keys"),
        ({"kind": "", "key_columns": None, "key_groups": None}, "rows, without keys"),
    ],
)
@pytest.mark.parametrize("may_drop", [False, True])
def test_rows_in_flight_need_the_way_that_they_came_by(
    was: dict[str, Any],
    found: str,
    may_drop: bool,  # noqa: FBT001
) -> None:
    """By another one they would be in wrong slots, or miss an operator."""
    with pytest.raises(Invalid, match=r"7 rows in flight to input 0 of operator 'spend'") as caught:
        check_fit(in_flight(**was), plan(), SOURCES, allow_non_restored_state=may_drop)
    assert (caught.value.expected, caught.value.found) == ("rows of a source, by user", found)
    assert "ignore_in_flight_of=5" in caught.value.fix


def test_rows_in_flight_that_do_not_say_how_they_came_fit_by_their_keys() -> None:
    """As those that were written before they said so."""
    unknown = in_flight(kind="", key_columns=None)
    check_fit(unknown, plan(), SOURCES, allow_non_restored_state=False)


def test_rows_in_flight_of_one_checkpoint_may_be_ignored() -> None:
    gone = in_flight(edge="gone/1")
    assert without_in_flight(gone, None) == without_in_flight(gone, 6) == gone
    without = without_in_flight(gone, 5)
    check_fit(without, plan(), SOURCES, allow_non_restored_state=False)
    assert without.in_flight == ()
    assert without.metadata.operators == gone.metadata.operators
    assert without.folder == gone.folder


def test_what_is_lost_by_ignoring_them_is_said(tmp_path: Path) -> None:
    owner = load_storage(f"file://{tmp_path}").job("job").take_over()
    found = in_flight()
    ignoring = ignoring_rows_in_flight(Beginning(owner, found), 5, plan())
    assert isinstance(ignoring, Beginning)
    assert ignoring.point == without_in_flight(found, 5)
    assert ignoring.losses == (
        f"7 rows in flight of {found} are lost, as ignore_in_flight_of=5 says",
    )
    for point, restored in ((found, f"{found} is restored"), (None, "nothing is restored")):
        other = ignoring_rows_in_flight(Beginning(owner, point), 4, plan())
        assert isinstance(other, Beginning)
        assert other.point == point
        assert other.losses == (f"ignore_in_flight_of=4 has no effect: {restored}",)
    beginning = Beginning(owner, found)
    assert ignoring_rows_in_flight(beginning, None, plan()) == beginning


def test_rows_to_an_input_that_is_gone_are_said_to_be_lost(tmp_path: Path) -> None:
    """The job has allowed it, but how many they were it cannot know."""
    owner = load_storage(f"file://{tmp_path}").job("job").take_over()
    gone = in_flight(edge="gone/1")
    beginning = ignoring_rows_in_flight(Beginning(owner, gone), None, plan())
    assert isinstance(beginning, Beginning)
    (note,) = beginning.losses
    assert note.startswith(f"7 rows in flight of {gone} to input 1 of operator 'gone'")
    assert note.endswith("are lost, as allow_non_restored_state=True says")
    ignoring = ignoring_rows_in_flight(Beginning(owner, gone), 5, plan())
    assert isinstance(ignoring, Beginning)
    assert len(ignoring.losses) == 1


@pytest.mark.parametrize("number", [0, -1, "7", 7.0, True])
def test_only_a_number_of_a_checkpoint_names_one(number: Any) -> None:
    with pytest.raises(Invalid, match="ignore_in_flight_of"):
        Restoring(ignore_in_flight_of=number)


def test_an_operator_that_left_nothing_is_not_missed() -> None:
    check_fit(point(spend=2, gone=0), plan(), SOURCES, allow_non_restored_state=False)


def test_new_sources_and_operators_may_come() -> None:
    check_fit(point(sources=()), plan(), SOURCES, allow_non_restored_state=False)


@pytest.mark.parametrize("allow_non_restored_state", [False, True])
def test_the_max_parallelism_must_stay(allow_non_restored_state: bool) -> None:  # noqa: FBT001
    with pytest.raises(Invalid, match="max parallelism of operator 'spend'") as caught:
        check_fit(
            point(spend=1, max_parallelism=64),
            plan(),
            SOURCES,
            allow_non_restored_state=allow_non_restored_state,
        )
    assert "Pass max_parallelism=64" in caught.value.fix


@pytest.mark.parametrize(
    "part",
    [
        StateSnapshot(kind=PARQUET_KIND, key_groups=(0, 63)),
        StateSnapshot(kind=OPERATOR_KIND, slot=0),
    ],
    ids=["canonical", "without keys"],
)
def test_redistributable_state_may_have_another_max_parallelism(part: StateSnapshot) -> None:
    left = point(spend=1, max_parallelism=64, part=part)
    check_fit(left, plan(), SOURCES, allow_non_restored_state=False)


@pytest.mark.parametrize("number", [2, MAX_PARALLELISM, 64])
def test_a_max_parallelism_that_was_not_set_follows_the_state(number: int) -> None:
    left = point(spend=1, towns=2, max_parallelism=number)
    planned = plan()
    follows = with_restored_groups(planned, left)
    assert follows == replace(planned, max_parallelism=number)
    check_fit(left, follows, SOURCES, allow_non_restored_state=False)


def test_a_max_parallelism_below_the_parallelism_is_refused() -> None:
    with pytest.raises(Invalid, match="more slots than the state of checkpoint 5") as caught:
        with_restored_groups(plan(), point(spend=1, max_parallelism=1))
    assert (caught.value.found, "at most 1" in caught.value.expected) == ("2", True)


def test_only_state_that_cannot_be_regrouped_says_how_many_groups_there_are() -> None:
    canonical = StateSnapshot(kind=PARQUET_KIND, key_groups=(0, 63))
    for left in (
        point(spend=1, max_parallelism=64, part=canonical),
        point(gone=1, max_parallelism=64),
        point(max_parallelism=64),
    ):
        planned = plan()
        assert with_restored_groups(planned, left) is planned


def test_a_checkpoint_is_named_by_its_folder() -> None:
    job = load_storage("memory://folders").job("a job")
    job.take_over().commit(
        CheckpointMetadata(job_id="a job", checkpoint_id=5, triggered_ms=0, completed_ms=0)
    )
    other = load_storage("memory://").job("other")
    folder = f"{job.url}/chk-{5:020}"
    for path in (folder, f"{folder}/", f"{folder}/_metadata"):
        found = find_restore_point(other, path)
        assert found is not None
        assert (found.metadata.checkpoint_id, found.folder.url) == (5, job.url)
    with pytest.raises(NotFound, match=r"there is no checkpoint 6 .* expected one of 5"):
        find_restore_point(other, f"{job.url}/chk-{6:020}")
    with pytest.raises(Invalid, match="this is not a checkpoint or savepoint to restore from"):
        find_restore_point(other, "lastest")
    with pytest.raises(NotFound, match=r"no whole savepoint .*such as a~20job/chk-"):
        find_restore_point(job, "memory://folders")


def test_a_checkpoint_with_shared_files_is_restored_by_its_own_job_only() -> None:
    """Its files are named within its folder, and nowhere else."""
    storage = load_storage("memory://")
    found = point()
    assert found.number_in(load_storage("memory://fit").job("job")) == 5
    assert found.number_in(load_storage("memory://fit").job("other")) is None
    assert found.number_in(storage.job("job")) is None


class Secretive(JobManagerCheckpointStorage):
    """A storage whose URL alone does not tell how to get there."""

    url = "secret://place/"


def test_the_jobs_own_storage_reads_what_lies_in_it() -> None:
    job = Secretive().job("job")
    job.take_over().commit(
        CheckpointMetadata(job_id="job", checkpoint_id=5, triggered_ms=0, completed_ms=0)
    )
    for path in (f"secret://place/job/chk-{5:020}", f"{job.url}/chk-{5:020}"):
        found = find_restore_point(JobStorage(job.storage, "other"), path)
        assert found is not None
        assert found.folder.storage is job.storage


def test_the_jobs_own_storage_is_known_by_other_spellings(tmp_path: Path) -> None:
    mine = load_storage(str(tmp_path))
    job = mine.job("job")
    job.take_over().commit(
        CheckpointMetadata(job_id="job", checkpoint_id=5, triggered_ms=0, completed_ms=0)
    )
    for root in (f"{tmp_path}/../{tmp_path.name}", f"file://{tmp_path}", f"{tmp_path}/"):
        found = find_restore_point(job, f"{root}/job/chk-{5:020}")
        assert found is not None
        assert found.folder.storage is mine
