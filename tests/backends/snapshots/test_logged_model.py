"""A restored base with a replayed log equals a dict, after any changes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from holdfast.backends import KeyGroupRange, StateBackend, load_backend
from holdfast.storage import JobManagerCheckpointStorage
from support.states.logged_snapshots import logged, logs_of
from support.states.logged_steps import (
    ALL,
    STATES,
    TIMERS,
    Step,
    apply,
    content,
    group_of,
    modelled,
    opened,
    step,
)
from support.states.tried_backends import backend_named, share
from support.storages.quick_places import quick_place

WAIT_S = 30
EXAMPLES = 60
_STEPS = st.lists(
    st.builds(
        step,
        st.sampled_from((*STATES, TIMERS)),
        st.integers(0, 14),
        st.integers(0, 3),
        st.integers(0, 50),
    ),
    max_size=40,
)
_RUNS = st.lists(_STEPS, min_size=2, max_size=4)
"""What came before the base, then what each log has: the next one begins after a restart."""


def replayed(
    backend: StateBackend,
    other: StateBackend,
    runs: list[list[Step]],
    *,
    sets: int,
    rows: int,
    carries: bool,
    key_groups: KeyGroupRange,
) -> None:
    """Restore the base of one backend and its logs into the other, maybe by way of a carrier."""
    job = JobManagerCheckpointStorage(max_state_bytes=1 << 30).job("job")
    before, *later = runs
    with opened(other) as state:
        apply(state, before)
        base = state.snapshot(1, job).result(WAIT_S)
    every = [
        log
        for number, each in enumerate(later)
        for log in logs_of(each, log=f"log {number}", rows=rows)
    ]
    snapshot = logged(job, 2, base, every, sets=sets)
    if carries:
        with opened(backend, snapshot, job=job) as state:
            snapshot = state.snapshot(3, job).result(WAIT_S)
    expected = modelled([each for run in runs for each in run])
    mine = {at: value for at, value in expected.items() if group_of(at[1]) in key_groups}
    with opened(backend, snapshot, job=job, key_groups=key_groups) as state:
        assert content(state) == mine
    event(f"{len(mine) // 5 * 5} or some more entries")


@pytest.mark.slow
def test_a_base_and_its_log_behave_like_a_dict(backend_name: str) -> None:
    """Every backend, over bases of its own, and of the one that needs no files."""

    @settings(
        max_examples=share(EXAMPLES, backend_name),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        runs=_RUNS,
        sets=st.integers(1, 9),
        rows=st.integers(1, 9),
        carries=st.booleans(),
        is_own=st.booleans(),
        key_groups=st.sampled_from((ALL, KeyGroupRange(0, 63), KeyGroupRange(64, 127))),
    )
    def search(
        runs: list[list[Step]],
        *,
        sets: int,
        rows: int,
        carries: bool,
        is_own: bool,
        key_groups: KeyGroupRange,
    ) -> None:
        with TemporaryDirectory(prefix="holdfast-test-", dir=quick_place()) as folder:
            backend = backend_named(backend_name, Path(folder))
            other = backend if is_own else load_backend("hashmap")
            replayed(
                backend,
                other,
                runs,
                sets=sets,
                rows=rows,
                carries=carries,
                key_groups=key_groups,
            )

    search()
