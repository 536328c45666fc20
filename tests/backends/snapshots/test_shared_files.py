"""Checkpoints that share files, through seeded sequences of events.

Every retained checkpoint is complete at every moment, no unneeded file is left in the end, and each
planted bug is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from holdfast.backends.byte_tables.store import ByteTableFiles
from holdfast.backends.snapshots.file_uploads import ConfirmedFiles
from holdfast.backends.tables.files import SourceFiles
from holdfast.storage import Handle, HoldfastError
from support.simulations.file_campaign import Campaign, Rules

STEPS = 80
_SIZES = (1, 1_200)
"""From what size on files are shared: all of them, or those that are not very small."""


@pytest.fixture
def patch() -> Iterable[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def go_through(
    folder: Path, numbers: Iterable[int], patch: pytest.MonkeyPatch, rules: Rules | None = None
) -> Counter[str]:
    """What was in these sequences."""
    tally: Counter[str] = Counter()
    for number in numbers:
        size = _SIZES[number % len(_SIZES)]
        patch.setattr("holdfast.backends.snapshots.file_uploads._SHARED_FROM_BYTES", size)
        its_folder = folder / str(number)
        campaign = Campaign(its_folder, number, rules or Rules())
        try:
            campaign.run(STEPS)
        except BaseException as error:
            error.add_note(f"in sequence {number}")
            raise
        tally += campaign.tally
        rmtree(its_folder)
    return tally


def check(tally: Counter[str], sequences: int) -> None:
    """The sequences had in them what they are for."""
    assert tally["completed"] > 5 * sequences
    assert tally["building"] > 0.3 * tally["native"], "too few snapshots refer to earlier files"
    assert tally["crashed"] > sequences
    for what in ("begun before", "begun long before"):
        assert tally[what] > sequences, what
    for what in ("rescaled", "neutral", "dropped", "compared", "lost", "orphans"):
        assert tally[what] > 0.5 * sequences, what
    for what in ("rewound", "subsumed", "expired", "declined"):
        assert tally[what] > 0.05 * sequences, what


def test_shared_files_exist_while_a_snapshot_needs_them(
    quick_path: Path, patch: pytest.MonkeyPatch
) -> None:
    go_through(quick_path, range(4), patch)


@pytest.mark.slow
def test_shared_files_exist_while_a_snapshot_needs_them_in_many_sequences(
    quick_path: Path, patch: pytest.MonkeyPatch
) -> None:
    check(go_through(quick_path, range(20), patch), 20)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_shared_files_exist_while_a_snapshot_needs_them_all_night(
    quick_path: Path, patch: pytest.MonkeyPatch
) -> None:
    check(go_through(quick_path, range(20, 10_000), patch), 9_980)


class BuildsOnWhatIsWritten(ConfirmedFiles):
    """Though it is not known whether it is completed."""

    def written(self, checkpoint_id: int, files: Mapping[str, Handle]) -> None:
        super().written(checkpoint_id, files)
        self._base = files


class KeepsAnOldBase(ConfirmedFiles):
    """A file that a newer checkpoint wrote again is taken from the older one."""

    def completed(self, checkpoint_id: int) -> None:
        before = self._base
        super().completed(checkpoint_id)
        self._base = {**self._base, **before}


class ForgetsWhatIsAborted(ConfirmedFiles):
    """What an aborted one wrote first, and the completed one again, is taken from the aborted."""

    def aborted(self, checkpoint_id: int) -> None:
        pass

    def completed(self, checkpoint_id: int) -> None:
        earlier = [files for number, files in self._written.items() if number < checkpoint_id]
        super().completed(checkpoint_id)
        for files in earlier:
            self._base = {**self._base, **files}


def taken_from_another_slot(
    files: ByteTableFiles, sources: Sequence[SourceFiles]
) -> SourceFiles | None:
    """Says that the database goes on with the files of another source than it does."""
    taken_over = restore(files, sources)
    return next((source for source in sources if source is not taken_over), taken_over)


restore = ByteTableFiles.restore


@dataclass(frozen=True)
class Broken:
    """What replaces what, or which rule the driver breaks, and which check finds it."""

    target: str = ""
    value: Any = None
    rules: Rules = field(default_factory=Rules)
    found_by: int = 1_000
    """The first sequence that does; where the house has changed, name the one that does now."""


_CONFIRMED = "holdfast.backends.snapshots.snapshotter.ConfirmedFiles"
BROKEN = {
    "builds on what is not completed": Broken(_CONFIRMED, BuildsOnWhatIsWritten, found_by=1_006),
    "keeps an old base": Broken(_CONFIRMED, KeepsAnOldBase, found_by=1_027),
    "forgets what is aborted": Broken(_CONFIRMED, ForgetsWhatIsAborted),
    "restored from another slot": Broken(
        "holdfast.backends.byte_tables.store.ByteTableFiles.restore", taken_from_another_slot
    ),
    "retention does not wait": Broken(rules=Rules(retains_since=False)),
    "barriers do not tell": Broken(rules=Rules(barriers_tell=False), found_by=1_013),
    "cleaning spares nothing": Broken(rules=Rules(spares_under_way=False)),
    "cleaning takes what was begun": Broken(rules=Rules(spares_begun=False)),
    "the driver does not report what was begun": Broken(
        "support.storages.early_files.EarlyWriter.begun_from", None
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_found(
    quick_path: Path, patch: pytest.MonkeyPatch, broken: Broken
) -> None:
    if broken.target:
        patch.setattr(broken.target, broken.value)
    with pytest.raises((AssertionError, HoldfastError)):
        go_through(quick_path, range(broken.found_by, broken.found_by + 100), patch, broken.rules)
