"""Changelog storages: where logs are written between checkpoints. Plug-ins can add others.

A changelog storage begins the files for pieces of logs. A restore reads them through the job's
checkpoint storage, so that the handles must refer to the job's folder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.metadata import EntryPoint

from holdfast.backends import Segments
from holdfast.storage import JobStorage, plugins

__all__ = [
    "CHANGELOG_STORAGE_GROUP",
    "CheckpointFolder",
    "StateChangelogStorage",
    "load_changelog_storage",
    "registered_changelog_storages",
]

CHANGELOG_STORAGE_GROUP = "holdfast.changelog_storages"
_WHAT = "changelog storage"


class StateChangelogStorage(ABC):
    """Begins files of logs. Light and picklable.

    Batching, retries, second attempts and the memory bound are done by the caller.
    """

    @abstractmethod
    def begin(self, job: JobStorage, number: int, *, compression: str) -> Segments:
        """Begin one file whose name has `number`; see `JobStorage`.

        After a normal exit its handles are readable in the job's folder from any machine, also
        after a crash. After an exit by an exception nothing of it is left. May be called from any
        thread, and concurrently.

        Raises:
            Unavailable: the file cannot be written now; the caller tries again.
            HoldfastError: any other failure.
        """


class CheckpointFolder(StateChangelogStorage):
    """Writes logs into the job's folder, beside its checkpoints."""

    def begin(self, job: JobStorage, number: int, *, compression: str) -> Segments:
        return job.shared_segments(number, "log", compression=compression)


def load_changelog_storage(name: str) -> StateChangelogStorage:
    """The changelog storage that is registered under the name.

    Raises:
        Invalid: an unknown name, two plug-ins of one name, or a missing extra.
    """
    registered = registered_changelog_storages()
    if name not in registered:
        raise plugins.unknown_name(name, registered, CHANGELOG_STORAGE_GROUP, _WHAT)
    storage: StateChangelogStorage = plugins.load(registered[name], _WHAT)()
    return storage


def registered_changelog_storages() -> dict[str, EntryPoint]:
    """Every registered name with its entry point.

    Raises:
        Invalid: two distributions register one name.
    """
    return plugins.registered(CHANGELOG_STORAGE_GROUP, _WHAT)
