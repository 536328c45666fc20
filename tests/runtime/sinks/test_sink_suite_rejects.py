"""For clauses of the suite of sinks, a broken sink that they must reject."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime.sinks import FileSink, TwoPhaseCommitSink, WriterContext
from holdfast.runtime.sinks.files.committables import FileCommittable, hidden_folder
from holdfast.runtime.sinks.files.local_folder import LocalOutputFolder
from holdfast.runtime.sinks.testing.conformance import SinkConformance, Stage
from holdfast.runtime.sinks.testing.sink_jobs import (
    crash_after_acknowledgement,
    crash_after_metadata,
    crash_between_notifications,
)
from holdfast.storage import HoldfastError
from support.jobs.sink_files import files_in
from support.kills.sink_writers import hidden_in, seen_in

Committables = Sequence[FileCommittable]


class CommitsAtOnce(FileSink):
    """Does not wait until the checkpoint is complete."""

    def open_writer(self, context: WriterContext) -> Any:
        writer = super().open_writer(context)
        prepare = writer.prepare

        def hasty(checkpoint_id: int) -> Committables:
            committables = prepare(checkpoint_id)
            self.commit(committables, context)
            return committables

        writer.prepare = hasty  # type: ignore[method-assign]
        return writer


class CommitsOnce(FileSink):
    """Expects every file to be where it was prepared."""

    def commit(self, committables: Committables, context: WriterContext) -> None:
        place = LocalOutputFolder(self.url)
        for each in committables:
            place.move(each.hidden, each.final)


class CommitsOne(FileSink):
    """Takes it that there is one file a checkpoint."""

    def commit(self, committables: Committables, context: WriterContext) -> None:
        super().commit(committables[:1], context)


class KeepsNothing(FileSink):
    """Removes what the checkpoint lists, too."""

    def clean(self, keep: Committables, context: WriterContext) -> None:
        super().clean([], context)


class KeepsEverything(FileSink):
    """Never cleans up."""

    def clean(self, keep: Committables, context: WriterContext) -> None:
        """Nothing."""


class CleansOthers(FileSink):
    """Assumes that there is no other writer."""

    def clean(self, keep: Committables, context: WriterContext) -> None:
        folder = hidden_folder(context.job_id, context.uid)
        place = LocalOutputFolder(self.url)
        for file in place.listed(folder):
            if f"{folder}/{file}" not in {each.hidden for each in keep}:
                place.remove(f"{folder}/{file}")


class BrokenStage(Stage):
    def __init__(self, place: Path, kind: type[FileSink]) -> None:
        super().__init__()
        self.place = place
        self.kind = kind

    def sink(self) -> TwoPhaseCommitSink[Any]:
        return self.kind(str(self.place), max_rows=2)

    def seen(self) -> list[int]:
        return seen_in(self.place, "parquet")

    def hidden(self) -> list[str]:
        return hidden_in(self.place)


Clause = Callable[[SinkConformance, Stage], None]


def a_crash(step: Any) -> Clause:
    return lambda suite, stage: suite.test_a_crash_loses_nothing_and_shows_nothing_twice(
        stage, step, 3
    )


def any_interleaving(suite: SinkConformance, stage: Stage) -> None:
    suite.test_any_interleaving_gives_the_same_rows(stage, 2)


BROKEN: list[tuple[type[FileSink], Clause]] = [
    (
        CommitsAtOnce,
        SinkConformance.test_rows_are_seen_when_their_checkpoint_is_complete_and_not_before,
    ),
    (CommitsAtOnce, SinkConformance.test_rows_of_an_aborted_checkpoint_come_with_the_next),
    (CommitsAtOnce, any_interleaving),
    (CommitsOnce, SinkConformance.test_a_commit_may_be_repeated_by_any_process),
    (CommitsOnce, SinkConformance.test_an_old_attempt_that_commits_late_changes_nothing),
    (CommitsOnce, a_crash(crash_between_notifications)),
    (
        CommitsOne,
        SinkConformance.test_rows_are_seen_when_their_checkpoint_is_complete_and_not_before,
    ),
    (CommitsOne, any_interleaving),
    (KeepsNothing, a_crash(crash_after_metadata)),
    (KeepsEverything, a_crash(crash_after_acknowledgement)),
    (KeepsEverything, SinkConformance.test_an_old_attempt_that_still_writes_is_not_seen),
    (
        CleansOthers,
        SinkConformance.test_an_old_attempt_that_cleans_late_spares_what_newer_ones_wrote,
    ),
]


@pytest.mark.parametrize(("kind", "clause"), BROKEN)
def test_a_broken_sink_is_rejected(tmp_path: Path, kind: type[FileSink], clause: Clause) -> None:
    stage = BrokenStage(tmp_path, kind)
    try:
        with pytest.raises((AssertionError, HoldfastError, FileNotFoundError)):
            clause(SinkConformance(), stage)
    finally:
        for attempt in stage.attempts:
            attempt.close()
    whole = BrokenStage(tmp_path / "whole", FileSink)
    whole.place.mkdir()
    clause(SinkConformance(), whole)
    for attempt in whole.attempts:
        attempt.close()
    assert files_in(whole.place)
