"""Where logs are written between checkpoints, and the plug-ins that know another way.

A changelog storage begins the files that pieces of logs are written into. Whoever restores reads
them through the job's checkpoint storage, so the handles that come back must be of its folder.
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
    """A light, picklable way to write files of logs.

    Batches, retries, second attempts and the bound on what waits are not its business.
    """

    @abstractmethod
    def begin(self, job: JobStorage, number: int, *, compression: str) -> Segments:
        """Begin one file, of a name that tells that it is `number`'s; see `JobStorage`.

        Its handles count after a normal exit, from then on for whoever reads the job's folder on
        any machine, also after a crash. After another exit nothing of it is left. Any thread,
        several at once; what is raised is of `HoldfastError`, and `Unavailable` is tried again.
        """


class CheckpointFolder(StateChangelogStorage):
    """Writes them where the checkpoints are."""

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
