"""All clauses together: the class that the tests of a storage inherit from."""

from __future__ import annotations

from holdfast.storage.testing.clauses.commits import CommitClauses
from holdfast.storage.testing.clauses.creates import CreateClauses
from holdfast.storage.testing.clauses.damage import DamageClauses
from holdfast.storage.testing.clauses.deletes import DeleteClauses, UnfinishedClauses
from holdfast.storage.testing.clauses.late_creates import ReappearanceClauses
from holdfast.storage.testing.clauses.listings import ListClauses
from holdfast.storage.testing.clauses.locations import LocationClauses
from holdfast.storage.testing.clauses.names import NameClauses
from holdfast.storage.testing.clauses.owners import OwnerClauses
from holdfast.storage.testing.clauses.reads import ReadingClauses
from holdfast.storage.testing.clauses.results import EndClauses
from holdfast.storage.testing.clauses.retention import RetentionClauses
from holdfast.storage.testing.clauses.segments import SegmentClauses
from holdfast.storage.testing.clauses.shared_files import SharedFileClauses
from holdfast.storage.testing.clauses.sharing import SharingClauses
from holdfast.storage.testing.clauses.visibility import VisibilityClauses
from holdfast.storage.testing.clauses.writes import WritingClauses

__all__ = ["CheckpointStorageConformance", "JobClauses", "ObjectClauses"]


class ObjectClauses(
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
):
    """What a storage owes for each object."""


class JobClauses(
    SegmentClauses,
    CommitClauses,
    OwnerClauses,
    RetentionClauses,
    ReappearanceClauses,
    SharedFileClauses,
    EndClauses,
    DamageClauses,
):
    """What Holdfast's files and commit protocol owe on a storage that keeps its objects so."""


class CheckpointStorageConformance(ObjectClauses, JobClauses):
    """Inherit, and define the fixture `place`, which answers a `Place`; nothing else is needed."""
