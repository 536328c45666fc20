"""Each clause of the suite can fail: a storage that is broken in just this way is rejected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.storage import CheckpointStorage, HoldfastError, JobManagerCheckpointStorage
from holdfast.storage.testing import CheckpointStorageConformance, Place
from support.broken.register import Broken, clauses_of
from support.broken.storages import BROKEN

Opener = Callable[[str], CheckpointStorage]
CLAUSES = clauses_of(CheckpointStorageConformance)


@pytest.mark.parametrize("broken", BROKEN.values(), ids=lambda broken: broken.clause)
def test_the_clause_rejects_what_breaks_it(broken: Broken[Opener], quick_path: Path) -> None:
    root = quick_path / "place"
    (quick_path / "file").write_bytes(b"")
    place = Place(
        open=lambda: broken.open(str(root)),
        count=lambda: sum(path.is_file() for path in root.rglob("*")),
        unusable=lambda: broken.open(str(quick_path / "file" / "place")),
    )
    clause = getattr(CheckpointStorageConformance(), broken.clause)
    with pytest.raises((AssertionError, HoldfastError), match=broken.says):
        clause(place)


def test_every_clause_has_a_storage_that_breaks_it() -> None:
    assert sorted(BROKEN) == CLAUSES


@pytest.mark.parametrize("clause", CLAUSES)
def test_every_clause_says_what_is_owed(clause: str) -> None:
    assert (getattr(CheckpointStorageConformance, clause).__doc__ or "").strip()


def test_undeclared_capabilities_are_skipped_with_their_reason() -> None:
    place = Place(open=JobManagerCheckpointStorage)
    suite = CheckpointStorageConformance()
    with pytest.raises(pytest.skip.Exception, match="keeps no segment files"):
        suite.test_a_slot_writes_one_file(place)
    with pytest.raises(pytest.skip.Exception, match="does not declare that processes share it"):
        suite.test_another_process_sees_every_write(place)
    with pytest.raises(pytest.skip.Exception, match="offers no storage that cannot work"):
        suite.test_only_holdfast_errors_are_raised(place)
