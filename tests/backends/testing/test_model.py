"""Whole backends compared with a model of dicts; and the machine finds planted losses."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.backends import StateBackend
from holdfast.backends.testing.machine import StateBackendMachine
from support.broken.lossy_backends import LOSSES, LossyBackend
from support.states.tried_backends import TRIED, backend_named, share


@pytest.fixture(autouse=True)
def quick_machine(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(quick_path))
    # The state of a machine is small: files of such a size are shared by checkpoints here.
    monkeypatch.setattr("holdfast.backends.snapshots.file_uploads._SHARED_FROM_BYTES", 1)


USUAL = settings(
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # to shrink takes minutes: `make soak` does it
)


def run_machine(backend: StateBackend, chosen: settings) -> None:
    class Machine(StateBackendMachine):
        def open_backend(self) -> StateBackend:
            return backend

    run_state_machine_as_test(Machine, settings=chosen)


def test_a_backend_behaves_like_a_dict_that_survives_restores(quick_path: Path) -> None:
    run_machine(backend_named(TRIED[0], quick_path), settings(USUAL, max_examples=12))


@pytest.mark.slow
@pytest.mark.dealt("backend_name", take=2)
def test_a_backend_behaves_like_a_dict_that_survives_restores_in_many_runs(
    backend: StateBackend, backend_name: str
) -> None:
    run_machine(backend, settings(USUAL, max_examples=share(60, backend_name)))


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_a_backend_behaves_like_a_dict_that_survives_restores_all_night(
    backend: StateBackend,
) -> None:
    soaking = settings(
        USUAL,
        max_examples=1000,
        derandomize=False,
        print_blob=True,
        phases=[Phase.generate, Phase.shrink],
    )
    run_machine(backend, soaking)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_the_machine_finds_a_loss(loss: str) -> None:
    searching = settings(USUAL, max_examples=200)
    with pytest.raises(AssertionError):
        run_machine(LossyBackend(loss), searching)
