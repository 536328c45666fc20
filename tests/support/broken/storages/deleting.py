"""Storages that delete wrongly, or leave more than they tell."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.storage import ObjectWriter, UnfinishedWrite
from holdfast.storage.names import check_name
from support.broken.storages.register import Local, breaks


class DeletesMore(Local):
    """Deletes, with each name, all objects that `also` finds."""

    def also(self, name: str) -> list[str]:
        raise NotImplementedError

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            super().delete([name, *self.also(name)])

    def names(self, prefix: str) -> list[str]:
        return [info.name for info in self.list(prefix)]


@breaks("delete_removes_the_named_objects", says="what was not deleted")
class DeletesByPrefix(DeletesMore):
    def also(self, name: str) -> list[str]:
        return self.names(name)


@breaks("deleting_an_absent_object_is_not_an_error", says="after deleting folder")
class DeletesFolders(DeletesMore):
    def also(self, name: str) -> list[str]:
        return self.names(f"{name}/")


@breaks("retention_keeps_files_that_others_need", says="is not whole")
@breaks("delete_takes_one_checkpoint", says="is not whole")
class DeletesTheWholeFolder(DeletesMore):
    def also(self, name: str) -> list[str]:
        return self.names(f"{name.rpartition('/')[0]}/")


@breaks("a_checkpoint_that_others_build_on_is_kept", says="is not whole")
@breaks("a_shared_file_is_deleted_with_its_last_checkpoint", says="is not whole")
class DeletesByNumber(DeletesMore):
    def also(self, name: str) -> list[str]:
        number = re.search(r"\d{20}", name)
        return [each for each in self.names("") if number and f"shared/{number[0]}" in each]


@breaks("delete_takes_many_names_at_once", says="left of 300 after deleting 100")
class DeletesOneBatch(Local):
    def delete(self, names: Iterable[str]) -> None:
        super().delete([*names][:64])


@breaks("delete_goes_on_past_a_failure", says="that failed for other names")
class ChecksBeforeItDeletes(Local):
    def delete(self, names: Iterable[str]) -> None:
        super().delete([check_name(name) for name in names])


@breaks("retention_keeps_the_newest", says="completed after retention")
@breaks("a_checkpoint_is_absent_before_its_commit", says="files after the orphans were removed")
class DeletesNothing(Local):
    def delete(self, names: Iterable[str]) -> None:
        for _ in names:
            pass


@breaks("delete_of_the_last_object_leaves_the_place_usable", says="cannot finish writing")
class ClearsEmptyFolders(Local):
    def delete(self, names: Iterable[str]) -> None:
        gone = [*names]
        super().delete(gone)
        for folder in {name.rpartition("/")[0] for name in gone}:
            if folder and not any(self.list(f"{folder}/")):
                shutil.rmtree(Path(urlsplit(self.url).path) / folder, ignore_errors=True)


@breaks("an_unfinished_write_is_found", says="files at the place")
@breaks("a_kill_leaves_each_checkpoint_whole_or_absent", says="files at the place")
class FindsNothingUnfinished(Local):
    def unfinished(self, prefix: str) -> Iterator[UnfinishedWrite]:
        return iter(())


@breaks("unfinished_writes_are_found_by_prefix", says="unfinished writes under 'a'")
class FindsAllUnfinished(Local):
    def unfinished(self, prefix: str) -> Iterator[UnfinishedWrite]:
        return super().unfinished("")


@breaks("a_finished_write_is_not_unfinished", says="after the others ended")
class RemembersWhatItBegan(Local):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.begun: dict[str, UnfinishedWrite] = {}

    def unfinished(self, prefix: str) -> Iterator[UnfinishedWrite]:
        self.begun |= {write.name: write for write in super().unfinished(prefix)}
        return iter(self.begun.values())


@breaks("cleaning_spares_what_a_slot_writes_in_every_order", says="must not fail")
class MistakesWhoWrites(Local):
    """Takes every unfinished write for one of the first checkpoint."""

    def unfinished(self, prefix: str) -> Iterator[UnfinishedWrite]:
        for write in super().unfinished(prefix):
            target = re.sub(r"\d{20}", f"{1:020d}", write.target)
            yield UnfinishedWrite(write.name, target, write.size_bytes)


@breaks("unfinished_writes_can_be_deleted", says="unfinished writes after they were deleted")
@breaks("files_that_may_be_needed_are_not_orphans", says="the unfinished write must be removed")
class DeletesOnlyObjects(Local):
    def delete(self, names: Iterable[str]) -> None:
        super().delete(name for name in names if not name.rpartition("/")[2].startswith("."))


@breaks("a_killed_writer_leaves_nothing_visible", says="files at the place")
class FindsItsOwnUnfinished(Local):
    """Knows only of those that this storage object has begun."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.begun: set[str] = set()

    def writer(self, name: str) -> ObjectWriter:
        self.begun.add(name)
        return super().writer(name)

    def unfinished(self, prefix: str) -> Iterator[UnfinishedWrite]:
        return (write for write in super().unfinished(prefix) if write.target in self.begun)
