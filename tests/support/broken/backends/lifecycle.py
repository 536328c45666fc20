"""Backends that are opened, shared or closed wrongly, or leave something behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.backends import BackendCapabilities, KeyGroupRange, SnapshotFuture
from holdfast.backends.keyed.backend import KeyedStateBackend, Opening
from holdfast.backends.snapshots.neutral import SnapshotTarget
from holdfast.backends.tables.contract import TableStore
from holdfast.storage import Invalid, Unavailable
from support.broken.backends.register import Altered, Keyed, Store, breaks


@breaks("a_backend_is_light", says="must be light")
class RemembersItsStore(Altered):
    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        vars(self)["last"] = bytes(1 << 20)
        return super().open_store(uid, key_groups, max_parallelism)


@breaks("a_backend_says_what_it_is", says="capabilities while a store is open")
class LearnsWhatItCan(Altered):
    @property
    def capabilities(self) -> BackendCapabilities:
        return BackendCapabilities(keeps_files=bool(vars(self).get("was_opened")))

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        vars(self)["was_opened"] = True
        return super().open_store(uid, key_groups, max_parallelism)


@breaks(
    "snapshots_that_do_not_fit_are_refused", says="another operator: Invalid is owed, but nothing"
)
class BeginsEmptyIfItMust(Altered):
    def open(self, **options: Any) -> KeyedStateBackend:
        try:
            return super().open(**options)
        except Invalid:
            return super().open(**{**options, "restore": ()})


@breaks("snapshots_that_overlap_are_refused", says="Invalid is owed, but nothing was raised")
class TakesTheFirstSnapshot(Altered):
    def open(self, **options: Any) -> KeyedStateBackend:
        return super().open(**{**options, "restore": options["restore"][:1]})


@breaks("pickles_are_read_where_that_is_allowed", says="Invalid is owed, but nothing was raised")
class AllowsPickles(Altered):
    def open(self, **options: Any) -> KeyedStateBackend:
        return super().open(**{**options, "allow_pickle": True})


@breaks(
    "versions_in_a_row_read_as_if_all_were_written_anew",
    says="a Visit of a later version: expected",
)
class WritesOnlyWhatWasPut(Keyed):
    """Returns the restored snapshot as its own while nothing was written since the restore."""

    def __init__(self, make_store: Callable[[], TableStore], opening: Opening) -> None:
        super().__init__(make_store, opening)
        self._all = opening.restore

    def snapshot(
        self, checkpoint_id: int, target: SnapshotTarget, **options: Any
    ) -> SnapshotFuture:
        if not self._all:
            return super().snapshot(checkpoint_id, target, **options)
        future = SnapshotFuture()
        future.set_result(self._all[0])
        return future


@breaks("invalid_settings_are_refused", says="past the max parallelism: Invalid is owed")
class CutsKeyGroups(Altered):
    def open(self, **options: Any) -> KeyedStateBackend:
        there = KeyGroupRange(0, max(options["max_parallelism"] - 1, 0))
        options["key_groups"] = options["key_groups"].intersection(there)
        return super().open(**options)


@breaks("a_closed_backend_is_invalid", says="after close: Invalid is owed, but nothing was raised")
class ClosesItsSnapshotsOnly(Keyed):
    def close(self) -> None:
        self._snapshots.close()


@breaks("a_second_thread_is_invalid", says="set_current_key in a second thread must be Invalid")
class TakesEveryThread(Keyed):
    def check_thread(self) -> None:
        if self._is_closed:
            super().check_thread()


@breaks("closing_cancels_running_snapshots", says="snapshots must be given up")
class LeavesSnapshotsAlone(Keyed):
    def _release(self) -> None:
        self.store.close()


@breaks("closing_may_come_at_any_time", says="nothing to close")
class WantsToBeUsed(Store):
    def close(self) -> None:
        if not self._tables:
            raise Invalid("there is nothing to close")
        super().close()


@breaks("only_holdfast_errors_are_raised", says="Unavailable or Invalid is owed, raised was")
class LetsErrorsOut(Altered):
    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        Path(self.folder).mkdir(exist_ok=True)
        return super().open_store(uid, key_groups, max_parallelism)


class FileStore(Store):
    """A store that keeps an unused file."""

    def __init__(self, max_parallelism: int, folder: Path) -> None:
        super().__init__(max_parallelism)
        self.folder = folder
        (folder / "file").write_bytes(b"state")

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.folder)


class WithFiles(Altered):
    """The hashmap backend with a file for each store; as it is, it breaks nothing."""

    @property
    def capabilities(self) -> BackendCapabilities:
        return BackendCapabilities(keeps_files=True)

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        try:
            Path(self.folder).mkdir(exist_ok=True)
            folder = tempfile.mkdtemp(dir=self.folder)
        except OSError as error:
            raise Unavailable(
                "no folder can be made", where=self.folder, found=str(error)
            ) from error
        return self.made(max_parallelism, Path(folder))

    def made(self, max_parallelism: int, folder: Path) -> TableStore:
        return FileStore(max_parallelism, folder)


class _Untidy(FileStore):
    def close(self) -> None:
        Store.close(self)


@breaks("no_file_is_left_after_close", says="files after close")
class LeavesItsFile(WithFiles):
    def made(self, max_parallelism: int, folder: Path) -> TableStore:
        return _Untidy(max_parallelism, folder)


class _Sweeping(FileStore):
    def close(self) -> None:
        Store.close(self)
        shutil.rmtree(self.folder.parent, ignore_errors=True)


@breaks("files_are_kept_while_a_store_is_open", says="files of a store that is open must stay")
class TakesTheFilesOfOthers(WithFiles):
    def made(self, max_parallelism: int, folder: Path) -> TableStore:
        return _Sweeping(max_parallelism, folder)


@breaks("files_of_a_dead_process_do_not_disturb_a_new_one", says="is in use")
class StopsAtALockedPlace(WithFiles):
    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        folder = Path(self.folder) / uid
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise Unavailable("a place is in use", where=str(folder)) from None
        return self.made(max_parallelism, folder)
