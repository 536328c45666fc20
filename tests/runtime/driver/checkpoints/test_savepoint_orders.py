"""Orders of savepoints: where they go, and which attempt takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.runtime.checkpoint.savepoint_orders import SavepointPurpose
from holdfast.runtime.driver.checkpoints.savepoint_requests import SavepointOrders, SavepointPlaces
from holdfast.runtime.driver.events import EventQueue, SavepointWanted
from holdfast.storage import CheckpointStorage, Invalid, Unavailable
from support.jobs.attempt_with_played_slots import an_order, error_of

KEEP, CANCEL, STOP, _ = SavepointPurpose


def test_where_savepoints_go(storage: CheckpointStorage, tmp_path: Path) -> None:
    job = storage.job("job")
    places = SavepointPlaces(default=str(tmp_path / "usual"))
    usual = places.order(job, None, "native", KEEP)
    assert usual.folder.url.startswith(f"file://{tmp_path}/usual/savepoint-")
    named = places.order(job, str(tmp_path / "other"), "native", STOP)
    assert named.folder.url.startswith(f"file://{tmp_path}/other/savepoint-")
    assert named.ends_job
    with pytest.raises(Invalid, match="no directory is given"):
        SavepointPlaces().order(job, None, "native", KEEP)
    with pytest.raises(Invalid, match="format is not one of the choices"):
        places.order(job, None, "avro", KEEP)


def test_orders_without_a_running_attempt_fail_at_once(storage: CheckpointStorage) -> None:
    orders = SavepointOrders()
    events = EventQueue()
    before, during, after = (an_order(storage) for _ in range(3))
    orders.add(before)
    assert "starting, restarting or has ended" in error_of(before)
    orders.begin(lambda order: events.put(SavepointWanted(order)))
    orders.add(during)
    assert events.next(0) == SavepointWanted(during)
    assert orders.end() == [during]
    orders.add(after)
    assert isinstance(after.outcome.exception(0), Unavailable)
    assert not during.is_decided


def test_orders_are_kept_while_the_end_of_the_job_means_something_to_them(
    storage: CheckpointStorage,
) -> None:
    orders = SavepointOrders()
    orders.begin(lambda _: None)
    failed, stored, stopped, cancelled, under_way = given = [
        an_order(storage, purpose) for purpose in (STOP, KEEP, STOP, CANCEL, KEEP)
    ]
    for each in given:
        orders.add(each)
    failed.fail(Unavailable("the disk is full"))
    for each in (stored, stopped, cancelled):
        each.complete()
    orders.add(last := an_order(storage))
    assert orders.end() == [stopped, cancelled, under_way, last]
