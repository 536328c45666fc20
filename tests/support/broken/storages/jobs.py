"""Storages on which the commit protocol cannot keep what it promises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.storage import Buffer, Invalid, JobStorage, NotFound, ObjectInfo
from support.broken.storages.register import Gathering, Local, WithWriter, breaks


@breaks("segments_are_read_back", says="was changed after it was written|is truncated")
class ReadsWholeSectors(Local):
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        return super().read_range(name, offset - offset % 512, length)


@breaks("small_state_is_inline", says="handles up to the limit")
class NeverInlines(Local):
    def job(self, job_id: str) -> JobStorage:
        return Local(self.url, inline_limit_bytes=0).job(job_id)


@breaks("a_slot_writes_one_file", says="the objects")
class WritesAnIndex(WithWriter):
    class Writer(Gathering):
        def commit(self) -> None:
            super().commit()
            self.storage.write_soundly(f"{self.name}.index", b"index")


@breaks("a_committed_checkpoint_is_completed", says="the completed checkpoints")
@breaks("an_ambiguous_take_over_is_repeated", says="completed after prepare")
@breaks(
    "a_commit_may_refer_to_retained_files_only", says="completed after commits that were refused"
)
class HidesUnderscores(Local):
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return (info for info in super().list(prefix) if "/_" not in info.name)


@breaks("a_newer_owner_fences_the_older", says="Fenced is owed, but nothing was raised")
@breaks("an_owner_without_its_claim_stops", says="files after that commit")
@breaks("an_older_owner_cannot_end_the_job", says="records after the older owner's end")
class BelievesItsFirstListing(Local):
    """An owner that looks for newer ones sees those that it saw before."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.known: dict[str, list[ObjectInfo]] = {}

    def create(self, name: str, data: Buffer) -> bytes | None:
        self.known.clear()
        return super().create(name, data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        if prefix not in self.known:
            self.known[prefix] = [*super().list(prefix)]
        return iter(self.known[prefix])


@breaks("a_commit_and_a_take_over_agree_in_every_order", says="owed is one of")
class ListsLate(Local):
    """The first listing after a creation does not show what was created."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.fresh: set[str] = set()

    def create(self, name: str, data: Buffer) -> bytes | None:
        if name.endswith(f"{2:020d}/_metadata"):
            self.fresh.add(name)
        return super().create(name, data)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        hidden = {name for name in self.fresh if name.startswith(prefix)}
        self.fresh -= hidden
        return (info for info in super().list(prefix) if info.name not in hidden)


@breaks("take_overs_agree_in_every_order", says="Fenced owed in")
@breaks("a_number_with_a_late_commit_is_not_used", says="Taken is owed, but nothing was raised")
class CreatesAlways(Local):
    def create(self, name: str, data: Buffer) -> bytes | None:
        self.write(name, data)
        return None


@breaks("a_late_commit_is_void", says="completed for a reader, with a late commit there")
class LosesStarts(Local):
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        if ".start-" in name:
            raise NotFound("no such object", where=name)
        return super().read_range(name, offset, length)


@breaks("an_end_is_recorded_for_good", says="how the job has ended, for owner 1's readers")
class LosesResults(Local):
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        if ".result-" in name:
            raise NotFound("no such object", where=name)
        return super().read_range(name, offset, length)


@breaks("an_ended_job_can_be_opened_again", says="after it was opened again")
class LosesLaterStarts(Local):
    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        if ".start-" in name and f"{1:020d}" not in name:
            raise NotFound("no such object", where=name)
        return super().read_range(name, offset, length)


@breaks("an_ambiguous_end_is_repeated", says="is there already")
class RefusesWhatIsThere(Local):
    def create(self, name: str, data: Buffer) -> bytes | None:
        existing = super().create(name, data)
        if existing is not None:
            raise Invalid("it is there already", where=name)
        return None


@breaks("an_end_and_a_take_over_agree_in_every_order", says="for the newer owner in")
class ReadsLate(Local):
    """The first reading of a result after its creation does not find it."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.fresh: set[str] = set()

    def create(self, name: str, data: Buffer) -> bytes | None:
        if ".result-" in name:
            self.fresh.add(name)
        return super().create(name, data)

    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        if name in self.fresh:
            self.fresh.remove(name)
            raise NotFound("no such object", where=name)
        return super().read_range(name, offset, length)


@breaks("a_kill_leaves_an_ended_job_ended", says="how the job has ended, killed after")
class CreatesNoSecondResult(Local):
    def create(self, name: str, data: Buffer) -> bytes | None:
        if ".result-" in name and f"{1:020d}" not in name:
            return None
        return super().create(name, data)


@breaks("a_kill_in_retention_leaves_no_half", says="is not whole")
class DeletesCommitPointsLate(Local):
    """Puts off to delete commit points until a shared file is deleted."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.put_off: list[str] = []

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            if name.endswith("/_metadata"):
                self.put_off.append(name)
            else:
                super().delete([name, *(self.put_off if "/shared/" in name else ())])


@breaks("retention_and_a_take_over_agree_in_every_order", says="is not whole")
@breaks("a_commit_and_another_s_cleaning_agree_in_every_order", says="and no other")
@breaks("released_checkpoints_are_deleted_beside_commits_in_every_order", says="completed after")
class KeepsCommitPoints(Local):
    def delete(self, names: Iterable[str]) -> None:
        super().delete(name for name in names if not name.endswith("/_metadata"))


@breaks("metadata_in_another_s_place_is_named", says="Corrupt is owed, but nothing was raised")
@breaks("a_damaged_result_is_named", says="Corrupt is owed, but nothing was raised")
@breaks("a_damaged_owner_record_is_named", says="Corrupt is owed, but nothing was raised")
@breaks("damage_in_a_long_segment_is_found_where_it_is", says="Corrupt is owed, but nothing was")
@breaks("a_damaged_checkpoint_harms_no_other", says="Corrupt is owed, but nothing was raised")
class NeverReplaces(WithWriter):
    class Writer(Gathering):
        def commit(self) -> None:
            try:
                self.storage.read(self.name)
            except NotFound:
                super().commit()
            else:
                self.inner.abort()


@breaks("newer_metadata_is_refused", says="Invalid is owed, but NotFound")
class WritesNoCommitPoint(WithWriter):
    class Writer(Gathering):
        def commit(self) -> None:
            if self.name.endswith("/_metadata"):
                self.inner.abort()
            else:
                super().commit()


@breaks("damaged_metadata_is_named", says="Corrupt is owed, but nothing was raised")
@breaks("damaged_segments_are_named", says="Corrupt is owed, but nothing was raised")
@breaks("a_missing_segment_file_is_named", says="Corrupt is owed, but nothing was raised")
class ReadsOnlyOnce(Local):
    """Believes that what it has read once never changes."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.known: dict[str, bytes] = {}

    def read_range(self, name: str, offset: int, length: int | None) -> bytes:
        if name not in self.known:
            self.known[name] = super().read_range(name, 0, None)
        return self.known[name][offset:][:length]


@breaks("a_commit_point_that_comes_back_is_void", says="completed after commit points")
@breaks("deleting_and_what_comes_back_agree_in_every_order", says="completed after")
class ForgetsWhatIsVoid(Local):
    """As an owner would that does not record what it deletes, or a reader that does not look."""

    def create(self, name: str, data: Buffer) -> bytes | None:
        return None if ".void-" in name else super().create(name, data)


@breaks("void_records_and_a_take_over_agree_in_every_order", says="the newest checkpoint must stay")
class DeletesTheWrongPoint(Local):
    """Deleting one commit point deletes the next one as well."""

    def delete(self, names: Iterable[str]) -> None:
        given = [*names]
        more = [name.replace(f"{1:020d}/_metadata", f"{2:020d}/_metadata") for name in given]
        super().delete(dict.fromkeys([*given, *more]))


@breaks("the_number_of_a_deleted_void_commit_is_used_again", says="has no completed checkpoint 2")
class SaysAllIsVoid(Local):
    def create(self, name: str, data: Buffer) -> bytes | None:
        if ".start-" in name:
            super().create(f"{name.replace('start', 'void')}-{0:020d}-{99:020d}", b"x")
        return super().create(name, data)
