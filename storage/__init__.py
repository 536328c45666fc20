"""The room of finished checkpoints: handles, metadata, commit, and the places that keep them.

Useful alone, as a library; knows nothing of state backends or of Spark, and imports no other room.
Its layers, each of which imports those below it only (pyproject.toml has the contract):

    testing              the suite that every storage passes
    restore_points       checkpoints and savepoints found by path or URL
    registry             `load_storage`: a URL or a registered name to its storage
    places               local directories, memory, S3, HDFS, fsspec
    checkpoint_storage   the base class of storages: the verbs, and `job`
    jobs                 metadata, commit, ownership, deletion, cleaning; savepoints' folders
    segments             pieces of state, many to a file
    interface            the verbs of a storage: the contract
    names, retries, …    object names, backoff, plug-ins, options; below them clock, entropy, errors
"""

from holdfast.storage.checkpoint_storage import CheckpointStorage
from holdfast.storage.clock import Clock, ManualClock, SystemClock
from holdfast.storage.entropy import Entropy, SeededEntropy, SystemEntropy
from holdfast.storage.errors import (
    Corrupt,
    Fenced,
    HoldfastError,
    Invalid,
    NotFound,
    Taken,
    TooLarge,
    Unavailable,
)
from holdfast.storage.interface import (
    Buffer,
    Capabilities,
    ObjectInfo,
    ObjectStorage,
    ObjectWriter,
    UnfinishedWrite,
)
from holdfast.storage.jobs.job import JobStorage
from holdfast.storage.jobs.metadata import CheckpointMetadata, OperatorState
from holdfast.storage.jobs.owner import JobOwner
from holdfast.storage.jobs.owner_records import JobResult
from holdfast.storage.jobs.savepoint import SavepointFolder
from holdfast.storage.places.filesystem import FileSystemCheckpointStorage
from holdfast.storage.places.memory import JobManagerCheckpointStorage
from holdfast.storage.places.s3.hadoop_settings import s3a_options
from holdfast.storage.places.s3.storage import S3CheckpointStorage
from holdfast.storage.registry import load_storage, registered_storages
from holdfast.storage.segments.handles import FileHandle, Handle, InlineHandle, StateSnapshot
from holdfast.storage.segments.reader import StateFolder
from holdfast.storage.segments.writer import SegmentStream, SegmentWriter

__all__ = [
    "Buffer",
    "Capabilities",
    "CheckpointMetadata",
    "CheckpointStorage",
    "Clock",
    "Corrupt",
    "Entropy",
    "Fenced",
    "FileHandle",
    "FileSystemCheckpointStorage",
    "Handle",
    "HoldfastError",
    "InlineHandle",
    "Invalid",
    "JobManagerCheckpointStorage",
    "JobOwner",
    "JobResult",
    "JobStorage",
    "ManualClock",
    "NotFound",
    "ObjectInfo",
    "ObjectStorage",
    "ObjectWriter",
    "OperatorState",
    "S3CheckpointStorage",
    "SavepointFolder",
    "SeededEntropy",
    "SegmentStream",
    "SegmentWriter",
    "StateFolder",
    "StateSnapshot",
    "SystemClock",
    "SystemEntropy",
    "Taken",
    "TooLarge",
    "Unavailable",
    "UnfinishedWrite",
    "load_storage",
    "registered_storages",
    "s3a_options",
]
