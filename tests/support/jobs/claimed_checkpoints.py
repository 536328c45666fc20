"""A job whose checkpoints are claimed, and the runs of one that claims them."""

from __future__ import annotations

from contextlib import suppress

from holdfast.runtime.checkpoint.commands import Store, Trigger
from holdfast.runtime.driver.checkpoints.checkpoint_keeper import CheckpointKeeper
from holdfast.runtime.driver.events import CheckpointStored, EventQueue
from holdfast.runtime.driver.startup.take_over import Beginning, begin
from holdfast.storage import (
    CheckpointMetadata,
    CheckpointStorage,
    FileHandle,
    FileSystemCheckpointStorage,
    JobOwner,
    JobStorage,
    StateSnapshot,
    SystemClock,
    Unavailable,
    load_storage,
    names,
)
from holdfast.storage.registry import OpenStorage
from holdfast.storage.restore_points import RestorePoint
from holdfast.storage.testing.watched_storage import Call

__all__ = ["Other", "Refuses", "RefusesFiles", "Run", "Unaware", "fits", "own", "shared"]


def fits(_point: RestorePoint) -> None:
    """Whatever it is."""


def shared(number: int) -> str:
    return names.shared_file(number, "slot", "aa")


def own(number: int) -> str:
    return names.exclusive_file(number, "slot", "aa")


class Other:
    """A job with checkpoints 3, 4 and 5, which all need a file of 3."""

    def __init__(self, storage: CheckpointStorage) -> None:
        self.job = storage.job("other")
        self.owner: JobOwner = self.job.take_over()
        for number in (3, 4, 5):
            self.commit(number)

    def commit(self, number: int) -> None:
        files = {own(number), shared(number), shared(3)}
        for name in files - ({shared(3)} if number > 3 else set()):
            self.job.storage.write(f"other/{name}", b"x")
        handles = {name: FileHandle(name, 0, 1, "00") for name in files}
        self.owner.commit(
            CheckpointMetadata(
                job_id="other",
                checkpoint_id=number,
                triggered_ms=0,
                completed_ms=0,
                parts={"all": StateSnapshot(kind="t/1", handles={**handles})},
            )
        )

    def path(self, number: int) -> str:
        return f"{self.job.url}/{names.checkpoint_folder(number)}"

    def left(self) -> set[str]:
        found = (info.name.partition("/")[2] for info in self.job.storage.list("other/"))
        return {name for name in found if names.parse_owner(name) is None}

    def files_of(self, *numbers: int) -> set[str]:
        """All that these need."""
        found = {shared(3)} if numbers else set()
        for number in numbers:
            found |= {names.metadata(number), own(number), shared(number)}
        return found


class Unaware(FileSystemCheckpointStorage):
    """A storage that cannot know that another path leads to it, such as another name of a host."""

    @property
    def identity(self) -> str:
        return self.url

    def at(self, url: str) -> FileSystemCheckpointStorage | None:
        return None


class Refuses:
    """A hook by which nothing of this job is deleted, until it is told otherwise."""

    def __init__(self, job_id: str) -> None:
        self.prefix = f"{job_id}/"
        self.is_on = True

    def __call__(self, call: Call) -> None:
        if self.is_on and call.verb == "delete" and call.name.startswith(self.prefix):
            raise Unavailable("the storage is slow", where=call.name)


class RefusesFiles(Refuses):
    """Deletes commit points of this job and not their files, as if a kill came between."""

    def __call__(self, call: Call) -> None:
        if not call.name.endswith("/_metadata"):
            super().__call__(call)


class Run:
    """A run of the job, from its beginning on."""

    def __init__(
        self,
        job: JobStorage,
        restore: str | None,
        claim_mode: str | None,
        *,
        retained: int = 1,
        open_storage: OpenStorage = load_storage,
    ) -> None:
        beginning = begin(job, restore, fits, claim_mode=claim_mode, open_storage=open_storage)
        assert isinstance(beginning, Beginning)
        self.beginning = beginning
        self.events = EventQueue()
        self.keeper = CheckpointKeeper(
            job,
            beginning.owner,
            retained=retained,
            parallelism=1,
            max_parallelism=8,
            clock=SystemClock(),
            claimed=beginning.claimed,
        )

    def complete(self) -> CheckpointMetadata:
        told = self.store()
        self.keeper.retain(told.checkpoint_id)
        self.keeper.finish_deleting()
        return told

    def complete_and_leave(self) -> CheckpointMetadata:
        """Complete one, and have deleted what can be."""
        told = self.store()
        self.keeper.retain(told.checkpoint_id)
        with suppress(Unavailable):
            self.keeper.finish_deleting()
        return told

    def store(self) -> CheckpointMetadata:
        number = self.keeper.next_checkpoint_id
        store = Store(
            checkpoint_id=number,
            triggered_ms=0,
            trigger=Trigger.PERIODIC,
            operators={},
            sources={},
        )
        self.keeper.store(store, self.events)
        told = self.events.next(30)
        assert isinstance(told, CheckpointStored)
        return told.metadata
