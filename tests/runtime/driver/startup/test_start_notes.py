"""What is said at the start of a job of its checkpoints."""

from __future__ import annotations

from pathlib import Path

from holdfast.runtime.api.checkpoint_config import CheckpointConfig
from holdfast.runtime.driver.startup.start_notes import mode_warnings, storage_warnings
from holdfast.storage import FileSystemCheckpointStorage, load_storage


def test_a_local_directory_has_no_warnings(tmp_path: Path) -> None:
    storage = load_storage(str(tmp_path))
    assert storage_warnings(storage.url, storage.capabilities) == ()


def test_memory_ends_with_the_driver() -> None:
    storage = load_storage("memory://promises")
    (said,) = storage_warnings(storage.url, storage.capabilities)
    assert said.startswith("checkpoints are in the driver's memory (memory://promises), and end")
    assert said.endswith('Pass storage="/a/folder", or another place')


def test_a_file_system_that_proves_nothing_is_named(tmp_path: Path) -> None:
    storage = FileSystemCheckpointStorage(f"local://{tmp_path}", allow_unsafe_commit=True)
    power, commits = storage_warnings(storage.url, storage.capabilities)
    assert power == f"checkpoints at local://{tmp_path} may not survive the loss of power"
    assert commits.startswith("of two drivers of this job both could commit at local://")


def test_a_job_that_may_count_rows_twice_says_so() -> None:
    assert mode_warnings(CheckpointConfig()) == ()
    (said,) = mode_warnings(CheckpointConfig(mode="at-least-once"))
    assert said == (
        "checkpoints are at-least-once: after a restore rows may count again, in state and in "
        "what sinks commit"
    )
