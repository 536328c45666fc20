"""Storages that create wrongly."""

from __future__ import annotations

import threading

from holdfast.storage import Buffer, NotFound, SystemClock
from support.broken.storages.register import Local, breaks

_lock = threading.Lock()


def _pause() -> None:
    SystemClock().sleep_s(0.01)  # long enough for others to come between, also on a busy machine


@breaks("create_makes_an_absent_object", says="the answer of the first create")
class AnswersWithItsOwn(Local):
    def create(self, name: str, data: Buffer) -> bytes | None:
        super().create(name, data)
        return self.read(name)


@breaks("create_keeps_an_existing_object", says="after creating it again")
class CreatesOverWhatIsThere(Local):
    def create(self, name: str, data: Buffer) -> bytes | None:
        existing = super().create(name, data)
        self.write(name, data)
        return existing


@breaks("create_tells_empty_from_missing", says="creating an empty object again")
class TakesEmptyForMissing(Local):
    def create(self, name: str, data: Buffer) -> bytes | None:
        return super().create(name, data) or None


@breaks("create_after_delete_makes_it_again", says="creating what was deleted")
class RemembersWhatItCreated(Local):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.created: dict[str, bytes] = {}

    def create(self, name: str, data: Buffer) -> bytes | None:
        if name not in self.created:
            self.created[name] = bytes(data)
            return super().create(name, data)
        return self.created[name]


@breaks("an_unfinished_write_does_not_count", says="creating beside an unfinished write")
class CountsUnfinishedWrites(Local):
    def create(self, name: str, data: Buffer) -> bytes | None:
        return b"" if any(self.unfinished(name)) else super().create(name, data)


@breaks("create_leaves_nothing_behind", says="unfinished writes after creating")
class LeavesWhatItDidNotCreate(Local):
    def create(self, name: str, data: Buffer) -> bytes | None:
        existing = super().create(name, data)
        if existing is not None:
            self.writer(name).write(data)
        return existing


@breaks("create_can_be_repeated", says="creating the same again")
@breaks("an_ambiguous_commit_is_repeated", says="exists already")
class HidesWhoseItIs(Local):
    def create(self, name: str, data: Buffer) -> bytes | None:
        existing = super().create(name, data)
        return existing and b"something is there"


@breaks("one_of_sixteen_threads_creates", says="winners among 16 threads: expected 1")
@breaks("of_many_threads_one_owns_the_job", says="epochs")
class LooksThenWrites(Local):
    def create(self, name: str, data: Buffer) -> bytes | None:
        try:
            return self.read(name)
        except NotFound:
            _pause()
            self.write(name, data)
            return None


@breaks("equal_creates_have_one_winner", says="winners among 16 threads with equal bytes")
class TakesEqualForItsOwn(Local):
    def create(self, name: str, data: Buffer) -> bytes | None:
        existing = super().create(name, data)
        return None if existing == bytes(data) else existing


@breaks("one_of_several_processes_creates", says="processes that created")
@breaks("commits_of_several_processes_are_kept", says="acknowledged")
class LocksItsProcess(LooksThenWrites):
    def create(self, name: str, data: Buffer) -> bytes | None:
        with _lock:
            return super().create(name, data)


@breaks(
    "an_object_can_be_created_while_it_is_deleted", says="create beside a delete owes an answer"
)
class ReadsWhatItSaw(Local):
    def create(self, name: str, data: Buffer) -> bytes | None:
        if any(self.list(name)):
            _pause()
            return self.read(name)
        return super().create(name, data)
