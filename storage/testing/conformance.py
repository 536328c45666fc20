"""All clauses together: the class that the tests of a storage inherit from."""

from __future__ import annotations

from holdfast.storage.testing.building import SharedFileClauses
from holdfast.storage.testing.committing import CommitClauses
from holdfast.storage.testing.creating import CreateClauses
from holdfast.storage.testing.damaging import DamageClauses
from holdfast.storage.testing.deleting import DeleteClauses, UnfinishedClauses
from holdfast.storage.testing.ending import EndClauses
from holdfast.storage.testing.listing import ListClauses
from holdfast.storage.testing.locating import LocationClauses
from holdfast.storage.testing.naming import NameClauses
from holdfast.storage.testing.owning import OwnerClauses
from holdfast.storage.testing.reading import ReadingClauses
from holdfast.storage.testing.reappearing import ReappearanceClauses
from holdfast.storage.testing.retaining import RetentionClauses
from holdfast.storage.testing.segmenting import SegmentClauses
from holdfast.storage.testing.sharing import SharingClauses
from holdfast.storage.testing.visibility import VisibilityClauses
from holdfast.storage.testing.writing import WritingClauses

__all__ = ["CheckpointStorageConformance"]


class CheckpointStorageConformance(
    ReadingClauses,
    WritingClauses,
    VisibilityClauses,
    CreateClauses,
    NameClauses,
    ListClauses,
    DeleteClauses,
    UnfinishedClauses,
    SharingClauses,
    LocationClauses,
    SegmentClauses,
    CommitClauses,
    OwnerClauses,
    RetentionClauses,
    ReappearanceClauses,
    SharedFileClauses,
    EndClauses,
    DamageClauses,
):
    """Inherit, and define the fixture `place`, which answers a `Place`; nothing else is needed."""
