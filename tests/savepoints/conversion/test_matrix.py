"""Jobs that are moved: whatever they were, whatever they become, they answer what they would have.

Each backend, with a changelog and without, and each kind of snapshot, to each backend: by a
conversion, and directly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.backends import SnapshotForm, load_backend
from holdfast.runtime.protocol.checkpoints import SavepointFormat
from holdfast.savepoints import StoredSnapshot, find_snapshot
from holdfast.savepoints.conversion import Conversion, ConversionOptions, InProcess
from holdfast.storage import SavepointFolder, load_storage
from support.jobs.moved_job import TTL_MS, Row, clock_after, steps_of
from support.jobs.moved_model import Model, answer_to
from support.jobs.moved_runs import MovedRun
from support.states.tried_backends import LOGGED, PLAIN, TRIED, backend_named
from support.storages.quick_places import quick_place

FIRST, SECOND = steps_of(0)
MIDDLE = len(SECOND) // 2
TOLD_BEFORE = answer_to(FIRST)
EXPECTED = answer_to(FIRST, SECOND)
CHECKPOINT, CANONICAL = "checkpoint", SavepointFormat.CANONICAL.value
FORMS = (CHECKPOINT, *(each.value for each in SavepointFormat))
CELLS = [(before, form, to) for before in TRIED for form in FORMS for to in PLAIN]
QUICK = {("hashmap", CHECKPOINT, "rocksdb"), *(("hashmap", form, "hashmap") for form in FORMS)}
PARAMETERS = [
    pytest.param(*each, id=" ".join(each), marks=() if each in QUICK else pytest.mark.slow)
    for each in CELLS
]
LeftBy = Callable[[str, str], StoredSnapshot]


def dealt(number: int) -> int:
    """One of three for a cell: each with each backend before, each form, each backend after."""
    return (number + number // 3 + number // 9) % 3


def slots_for(number: int, to: str) -> int:
    """Another number than before; seldom more where databases take long to open."""
    third = (number // 3 + 2 * (number // 9)) % 3
    return (3, 1, 1)[third] if to == "rocksdb" else (3, 1)[number % 2]


@pytest.fixture(scope="module")
def left_by() -> Iterator[LeftBy]:
    """The state of the job halfway, by backend and kind; tests must not change it."""
    with TemporaryDirectory(prefix="holdfast-moved-", dir=quick_place()) as folder:

        @cache
        def left(name: str, form: str) -> StoredSnapshot:
            root = Path(folder) / f"{name} {form}"
            return first_half(root, name, form)

        yield left


def first_half(root: Path, name: str, form: str) -> StoredSnapshot:
    """The job takes a checkpoint on its way, on which that of the end may build."""
    job = load_storage(str(root / "from")).job("job")
    with MovedRun(job, backend_named(name, root / "state"), 2) as run:
        told = run.answer(FIRST[: len(FIRST) // 2])
        run.checkpoint()
        if name.startswith(LOGGED):
            run.until_materialized()
        told = told + run.answer(FIRST[len(FIRST) // 2 :])
        assert told == TOLD_BEFORE
        return run.checkpoint() if form == CHECKPOINT else run.savepoint(SnapshotForm(form))


def second_half(
    root: Path,
    snapshot: StoredSnapshot,
    name: str,
    parallelism: int,
    max_parallelism: int = 128,
    *restarts: int,
) -> Counter[Row]:
    """What the job answers that goes on from a snapshot, with a restart before these steps."""
    job = load_storage(str(root / f"to {name}")).job("job")
    backend = backend_named(name, root / "state")
    told: Counter[Row] = Counter()
    for begin, end in pairwise((0, *restarts, len(SECOND))):
        now_ms = clock_after((*FIRST, *SECOND[:begin]))
        with MovedRun(
            job, backend, parallelism, snapshot, max_parallelism=max_parallelism, now_ms=now_ms
        ) as run:
            told = told + run.answer(SECOND[begin:end])
            snapshot = run.checkpoint()
    return told


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_that_is_not_moved_matches_the_model(parallelism: int, quick_path: Path) -> None:
    job = load_storage(str(quick_path)).job("job")
    with MovedRun(job, load_backend("hashmap"), parallelism) as run:
        assert run.answer((*FIRST, *SECOND)) == EXPECTED


@pytest.mark.parametrize("state", sorted({*vars(Model())} - {"now"}))
def test_lost_state_changes_later_answers(state: str) -> None:
    model = Model()
    model.answer(FIRST)
    getattr(model, state).clear()
    assert TOLD_BEFORE + model.answer(SECOND) != EXPECTED


@pytest.mark.parametrize("age_ms", [0, TTL_MS])
@pytest.mark.parametrize("state", ["recent", "visits", "seen"])
def test_lost_times_of_last_use_change_later_answers(state: str, age_ms: int) -> None:
    model = Model()
    model.answer(FIRST)
    model.restamp(state, model.now - age_ms)
    assert TOLD_BEFORE + model.answer(SECOND) != EXPECTED


@pytest.mark.dealt("before", "form", "to")
@pytest.mark.parametrize(("before", "form", "to"), PARAMETERS)
def test_a_converted_job_matches_the_model(
    before: str, form: str, to: str, left_by: LeftBy, quick_path: Path
) -> None:
    number = CELLS.index((before, form, to))
    parallelism, max_parallelism = slots_for(number, to), (128, 60, 200)[dealt(number)]
    folder = SavepointFolder(load_storage(str(quick_path / "moved")), "")
    Conversion(
        source=left_by(before, form),
        destination=folder,
        options=ConversionOptions(
            backend=to,
            is_canonical=False,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
        ),
        backend=backend_named(to, quick_path / "work"),
        runner=InProcess(),
    ).run()
    after, name = find_snapshot(folder.url), f"{LOGGED}-{to}" if number % 4 < 2 else to
    restarts = (MIDDLE,) if dealt(number) == 1 else ()
    found = second_half(quick_path, after, name, parallelism, max_parallelism, *restarts)
    assert TOLD_BEFORE + found == EXPECTED


@pytest.mark.dealt("before", "form", "to")
@pytest.mark.parametrize(
    ("before", "form", "to"),
    [each for each in PARAMETERS if not str(each.values[0]).endswith(str(each.values[2]))],
)
def test_a_job_restored_with_another_backend_matches_the_model(
    before: str, form: str, to: str, left_by: LeftBy, quick_path: Path
) -> None:
    """Only keys of Parquet come to other key groups by that."""
    number = CELLS.index((before, form, to))
    source, name = left_by(before, form), to if number % 4 < 2 else f"{LOGGED}-{to}"
    max_parallelism = (128, 60, 200)[dealt(number)] if form == CANONICAL else 128
    found = second_half(quick_path, source, name, slots_for(number + 3, to), max_parallelism)
    assert TOLD_BEFORE + found == EXPECTED
