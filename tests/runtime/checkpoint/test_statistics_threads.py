"""A history that one thread writes while others look."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from holdfast.runtime.checkpoint.commands import Abort, AbortReason, Begin, Trigger
from holdfast.runtime.checkpoint.statistics import CheckpointHistory


def write(history: CheckpointHistory, numbers: range) -> None:
    for number in numbers:
        history.begun(
            Begin(checkpoint_id=number, triggered_ms=5, trigger=Trigger.PERIODIC, base=None)
        )
        history.answered(number, size_bytes=number, written_bytes=1, slots={})
        history.storing(number)
        if number % 2:
            history.completed(number, 6)
        else:
            history.aborted(Abort(checkpoint_id=number, reason=AbortReason.IO, detail=""), 6)


def test_the_history_may_be_read_at_any_time() -> None:
    """Without its lock a look meets a dict that changes its size, or counts that do not add up."""
    history = CheckpointHistory()
    with ThreadPoolExecutor(1) as writing:
        done = writing.submit(write, history, range(3_000))
        while not done.done():
            overview = history.overview()
            assert 0 <= overview.counts.in_progress <= 1
            assert len(overview.recent) <= 11
        done.result()
    plain = CheckpointHistory()
    write(plain, range(3_000))
    assert history.overview() == plain.overview()
