"""Each clause of the suite rejects a backend that violates just this clause."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.backends import HashMapStateBackend, StateBackend
from holdfast.backends.testing import Place, StateBackendConformance
from holdfast.storage import HoldfastError
from support.broken.backends import BROKEN
from support.broken.register import Broken, clauses_of

Opener = Callable[[str], StateBackend]
CLAUSES = clauses_of(StateBackendConformance)


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN.values(), ids=lambda broken: broken.clause)
def test_the_clause_rejects_what_breaks_it(broken: Broken[Opener], tmp_path: Path) -> None:
    root = tmp_path / "place"
    (tmp_path / "file").write_bytes(b"")
    place = Place(
        open=lambda: broken.open(str(root)),
        count=lambda: sum(path.is_file() for path in root.rglob("*")),
        unusable=lambda: broken.open(str(tmp_path / "file" / "place")),
    )
    clause = getattr(StateBackendConformance(), broken.clause)
    with pytest.raises((AssertionError, HoldfastError), match=broken.says):
        clause(place)


def test_every_clause_has_a_backend_that_breaks_it() -> None:
    assert sorted(BROKEN) == CLAUSES


@pytest.mark.parametrize("clause", CLAUSES)
def test_every_clause_says_what_is_owed(clause: str) -> None:
    assert (getattr(StateBackendConformance, clause).__doc__ or "").strip()


def test_undeclared_capabilities_are_skipped_with_their_reason() -> None:
    place = Place(open=HashMapStateBackend)
    suite = StateBackendConformance()
    with pytest.raises(pytest.skip.Exception, match="keeps files while a store is open"):
        suite.test_no_file_is_left_after_close(place)
    with pytest.raises(pytest.skip.Exception, match="offers no backend that cannot work"):
        suite.test_only_holdfast_errors_are_raised(place)
