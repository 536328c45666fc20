"""A job that runs is not begun anew: its driver is found where commands find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.runtime.control import lookup
from holdfast.runtime.control.registry import FoundRun, Registration, Runs
from holdfast.storage import Invalid, SystemClock

STORAGE = "file:///place/orders"
RUNNING = Registration(
    job="orders",
    run="abcdefgh-1",
    pid=4711,
    host="here",
    token="t",
    storage=STORAGE,
    started_ms=0,
    holdfast_version="0",
)


def test_a_job_that_runs_is_not_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs((FoundRun(RUNNING, Path("socket")),), ())
    monkeypatch.setattr(lookup, "find_runs", lambda *_, **__: runs)

    def check(job: str, storage: str) -> None:
        lookup.check_not_running(job, storage, (), SystemClock())

    with pytest.raises(Invalid) as caught:
        check("orders", STORAGE)
    told = str(caught.value)
    assert "job 'orders' runs already [file:///place/orders]" in told
    assert "found run abcdefgh in process 4711 on here" in told
    assert "holdfast stop abcdefgh, or holdfast cancel abcdefgh" in told, "of whatever name"
    assert "latest" not in told, "which would fence it"
    check("bills", STORAGE)
    check("orders", "file:///another/orders")
    check("orders", "memory://orders")


def test_a_take_over_warns_that_the_job_runs_already(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs = Runs((FoundRun(RUNNING, Path("socket")),), ())
    monkeypatch.setattr(lookup, "find_runs", lambda *_, **__: runs)
    lookup.check_not_running("bills", STORAGE, (), SystemClock(), takes_over=True)
    assert not caplog.messages
    lookup.check_not_running("orders", STORAGE, (), SystemClock(), takes_over=True)
    (told,) = caplog.messages
    assert "job 'orders' runs already" in told
    assert "in process 4711 on here: this start takes it over" in told


def test_a_run_that_has_ended_and_is_found_still_is_no_hindrance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = Runs((FoundRun(RUNNING, Path("socket")),), ())
    monkeypatch.setattr(lookup, "find_runs", lambda *_, **__: runs)
    lookup.check_not_running("orders", STORAGE, (), SystemClock(), ended={RUNNING.run})
    with pytest.raises(Invalid, match="runs already"):
        lookup.check_not_running("orders", STORAGE, (), SystemClock(), ended={"another"})
