"""What a changelog tells of itself is what docs/metrics.md has, and is so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.backends import load_backend
from holdfast.changelog import ChangelogStateBackend
from holdfast.storage import load_storage
from support.documents.told_metrics import documented
from support.jobs.logged_jobs import LoggedRun, lasting, log_of, parts_of
from support.states.tried_backends import BUSY_LOG, backend_named


def test_the_numbers_are_those_that_are_documented(quick_path: Path) -> None:
    job = load_storage(str(quick_path), inline_limit_bytes=0).job("job")
    options = replace(BUSY_LOG, materialization_interval_s=None, least_log_bytes=1 << 30)
    with LoggedRun(job, ChangelogStateBackend(load_backend("hashmap"), options)) as run:
        (slot,), (backend,) = run.slots, run.backends
        run.change(lasting(400, seed=1))
        run.tend_until(lambda: backend.metrics()["log_uploads"] >= 1)
        run.change(lasting(20, seed=2), passes_s=0)
        checkpoint = run.checkpoint()
        store, shared = slot.metrics().store, backend.metrics()
        assert {*store, *shared} == documented("Of a changelog")
        assert {*store}.isdisjoint(shared)
        (part,) = parts_of(checkpoint)
        segments = [segment for log in log_of(part).logs for segment in log.segments]
        assert store["log_pieces"] == len(segments)
        assert store["log_rows"] == sum(segment.rows for segment in segments)
        assert store["log_written_bytes"] == store["log_bytes"]
        assert store["log_bytes"] == sum(part.handles[each.handle].size_bytes for each in segments)
        assert store["log_waiting_bytes"] == store["materializations"] == store["base_bytes"] == 0
        assert 0 < shared["log_uploaded_bytes"] <= store["log_bytes"]
        latencies_s = [shared[f"log_upload_p{percent}_s"] for percent in (50, 95, 99)]
        assert latencies_s == sorted(latencies_s)


@pytest.mark.slow
def test_metrics_of_the_inner_backend_are_included(quick_path: Path) -> None:
    job = load_storage(str(quick_path / "storage")).job("job")
    rocksdb = backend_named("rocksdb", quick_path / "state")
    with LoggedRun(job, ChangelogStateBackend(rocksdb, BUSY_LOG)) as run:
        (slot,), (backend,) = run.slots, run.backends
        run.change(lasting(100, seed=1))
        run.tend_until(lambda: slot.metrics().store["materializations"] >= 1)
        store = slot.metrics().store
        assert {*store, *backend.metrics()} >= documented("`store`") | documented("`backend`")
        assert store["base_bytes"] > 0
        assert store["materialization_s"] > 0
