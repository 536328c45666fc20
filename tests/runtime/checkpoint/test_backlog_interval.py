"""The interval of checkpoints while a source reads what had gathered before it."""

from __future__ import annotations

import pytest

from holdfast.runtime.checkpoint.commands import Trigger
from support.simulations.coordinator_driver import Driver, begin, brief


def driver(during_backlog: str | None) -> Driver:
    return Driver(sources=["old", "new"], interval_during_backlog=during_backlog, max_concurrent=9)


def backlog(played: Driver, uid: str, *, is_read: bool) -> list[tuple[object, ...]]:
    return brief(played.coordinator.source_backlog(played.now_ms, uid=uid, is_read=is_read))


def test_checkpoints_are_rarer_while_any_source_reads_its_backlog() -> None:
    played = driver("5s")
    for uid in ("old", "new"):
        assert backlog(played, uid, is_read=True) == []
    assert played.after(4_999) == []
    assert brief(played.after(1)) == [begin(1)]
    assert backlog(played, "new", is_read=False) == []
    assert played.after(4_999) == []
    assert brief(played.after(1)) == [begin(2)]
    assert backlog(played, "old", is_read=False) == []
    assert played.after(999) == []
    assert brief(played.after(1)) == [begin(3)]


def test_the_end_of_the_backlog_may_be_the_time_of_a_checkpoint() -> None:
    played = driver("5s")
    backlog(played, "old", is_read=True)
    played.after(3_000)
    assert backlog(played, "old", is_read=False) == [begin(1)]


def test_checkpoints_may_be_off_during_a_backlog_but_those_that_are_asked_for() -> None:
    played = driver("0s")
    backlog(played, "old", is_read=True)
    assert played.coordinator.next_tick_ms() is None
    assert played.after(3_600_000) == []
    assert brief(played.request()) == [begin(1, Trigger.REQUESTED)]
    assert backlog(played, "old", is_read=False) == []
    assert brief(played.after(1_000)) == [begin(2)]


@pytest.mark.parametrize("is_read", [True, False])
def test_without_the_setting_a_backlog_makes_no_difference(*, is_read: bool) -> None:
    played = driver(None)
    backlog(played, "old", is_read=is_read)
    assert brief(played.after(1_000)) == [begin(1)]
