"""Conversions that are killed, interrupted, or two at once; and bad input."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from holdfast.backends import (
    HashMapStateBackend,
    KeyGroupRange,
    StateBackend,
    TableStore,
    ValueStateDescriptor,
    load_backend,
)
from holdfast.backends.tables.contract import Table, TableSpec
from holdfast.savepoints import StoredSnapshot, find_snapshot
from holdfast.savepoints.conversion import Converted, InProcess
from holdfast.storage import (
    Corrupt,
    Invalid,
    NotFound,
    OperatorState,
    SavepointFolder,
    Taken,
    load_storage,
)
from support.jobs.conversion_on_small_disk import (
    ENTRIES,
    begin_until_full,
    check_is_none,
    check_same,
    conversion,
    tasks_done,
)
from support.kills import converters
from support.states.made_savepoints import complete
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("small_pieces")


@pytest.fixture
def begun(large: StoredSnapshot, quick_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A command that has done some pieces."""
    to = quick_path / "to"
    command = converters.begin(large.path, str(to), "--workers", "2")
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_until(lambda: tasks_done(to) >= 3 or process.poll() is not None)
        assert process.poll() is None, "it ended before it could be interrupted"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_killed_conversion_resumes(
    large: StoredSnapshot, quick_path: Path, begun: subprocess.Popen[str]
) -> None:
    to = quick_path / "to"
    children = children_of(begun.pid)
    assert children
    begun.kill()
    begun.wait()
    wait_until(lambda: not any(map(is_alive, children)))
    check_is_none(to)
    done = conversion(large, to).run()
    assert done.resumed >= 3
    assert done.rows == ENTRIES
    check_same(large, to)


@pytest.mark.slow
def test_the_same_command_resumes_after_ctrl_c(
    large: StoredSnapshot, quick_path: Path, begun: subprocess.Popen[str]
) -> None:
    to = quick_path / "to"
    os.killpg(begun.pid, signal.SIGINT)  # as a terminal does: its workers get it, too
    _, told = begun.communicate(timeout=60)
    assert begun.returncode == 130, told
    assert "run the same command to continue" in told
    assert "Traceback" not in told
    check_is_none(to)
    command = converters.begin(large.path, str(to), "--workers", "1", "--json")
    again = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert '"resumed_pieces": 0' not in again.stdout
    check_same(large, to)


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", [False, True])
def test_ctrl_c_while_workers_start_reaches_the_parent_only(
    quick_path: Path, *, interrupted: bool
) -> None:
    command = converters.note_arrivals(quick_path, interrupted=interrupted)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    notes = {each.read_text() for each in quick_path.iterdir()}
    assert notes <= {converters.DEAF}
    assert notes or interrupted


def children_of(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text()
    return list(map(int, found.split()))


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_a_folder_with_other_files_is_not_touched(large: StoredSnapshot, quick_path: Path) -> None:
    (quick_path / "mine").write_text("mine")
    for fresh in (False, True):
        with pytest.raises(Taken, match=r"something at the destination already.*mine"):
            conversion(large, quick_path).run(fresh=fresh)
    assert [each.name for each in quick_path.iterdir()] == ["mine"]


@pytest.mark.slow
def test_a_second_run_at_one_place_is_refused(large: StoredSnapshot, quick_path: Path) -> None:
    to = quick_path / "to"
    others: list[subprocess.CompletedProcess[str]] = []

    class Beside(InProcess):
        def run(self, work: Any, tasks: Any) -> Any:
            if not others:
                command = converters.begin(large.path, str(to), "--workers", "1")
                others.append(
                    subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
                )
            return super().run(work, tasks)

    conversion(large, to, runner=Beside()).run()
    assert others[0].returncode != 0
    assert "another run is converting to this place" in others[0].stderr
    check_same(large, to)


class _Picky(HashMapStateBackend):
    """Has no room for maps, say: it refuses every table."""

    def open_store(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableStore:
        store = super().open_store(uid, key_groups, max_parallelism)

        def table(spec: TableSpec) -> Table:
            raise Invalid("strings are not for me", where=spec.name)

        store.table = table  # type: ignore[method-assign]
        return store


def test_state_that_the_backend_cannot_hold_is_refused_before_writing(
    large: StoredSnapshot, quick_path: Path
) -> None:
    to = quick_path / "to"
    backend: StateBackend = _Picky()
    options = {"backend": "picky", "is_canonical": False}
    with pytest.raises(Invalid, match=r"cannot hold state 'total' of operator 'spend'.*strings"):
        conversion(large, to, backend=backend, options=options).run()
    assert not to.exists()


def test_options_that_do_not_fit_are_refused(large: StoredSnapshot, quick_path: Path) -> None:
    to = quick_path / "to"
    with pytest.raises(NotFound, match=r"no operator 'spent'.*'spend'"):
        conversion(large, to, options={"operators": ("spent",)}).run()
    with pytest.raises(Invalid, match="max parallelism 1"):
        conversion(large, to, options={"max_parallelism": 1}).run()
    with pytest.raises(Invalid, match="parallelism 200"):
        conversion(large, to, options={"parallelism": 200}).run()
    inside = Path(large.path.removeprefix("file://")) / "inside"
    with pytest.raises(Invalid, match="in the folder of the source"):
        conversion(large, inside).run()
    assert not to.exists()
    assert not inside.exists()


@pytest.mark.parametrize("name", ["chk-00000000000000000042", "chk-7", "_metadata"])
def test_a_name_under_which_no_savepoint_is_found_is_refused(
    large: StoredSnapshot, quick_path: Path, name: str
) -> None:
    with pytest.raises(Invalid, match=f"cannot have this name.*{name}"):
        conversion(large, quick_path / "to" / name).run()
    assert not (quick_path / "to").exists()


def test_a_begun_destination_that_contains_the_source_is_refused(
    large: StoredSnapshot, quick_path: Path
) -> None:
    to = quick_path / "to"
    begin_until_full(large, to, 3)
    shutil.copytree(large.path.removeprefix("file://"), to / "source")
    source = find_snapshot(str(to / "source"))
    for fresh in (False, True):
        with pytest.raises(Invalid, match="in the folder of the destination"):
            conversion(source, to).run(fresh=fresh)
    assert find_snapshot(source.path).metadata == large.metadata


def test_a_changed_byte_of_the_source_is_found(large: StoredSnapshot, quick_path: Path) -> None:
    folder = Path(large.path.removeprefix("file://"))
    (file,) = (each for each in folder.iterdir() if each.name.startswith("spend-"))
    before = file.read_bytes()
    changed = bytearray(before)
    changed[len(changed) // 2] ^= 1
    file.write_bytes(changed)
    try:
        with pytest.raises(Corrupt, match=file.name):
            conversion(large, quick_path / "to").run()
    finally:
        file.write_bytes(before)
    check_is_none(quick_path / "to")
    done: Converted = conversion(large, quick_path / "to").run()
    assert done.rows == ENTRIES


@pytest.mark.parametrize("backend", [None, "hashmap"])
@pytest.mark.parametrize(
    ("ranges", "told"),
    [
        (((0, 63),), "do not have all key groups.*key group 64"),
        (((0, 63), (60, 127)), "have the same key groups.*60.*127.*0.*63|0.*63.*60.*127"),
    ],
)
def test_a_source_without_each_key_group_once_is_refused_before_writing(
    backend: str | None, ranges: Any, told: str, quick_path: Path
) -> None:
    folder = SavepointFolder.begin(load_storage(str(quick_path / "from")), "job")
    parts = []
    for first, last in ranges:
        with load_backend("hashmap").open(
            uid="spend", key_groups=KeyGroupRange(first, last), max_parallelism=128
        ) as state:
            state.get_state(ValueStateDescriptor("total", int))
            parts.append(state.snapshot(1, folder).result(60))
    left = OperatorState(parallelism=2, max_parallelism=128, parts=tuple(parts))
    complete(folder, {"spend": left})
    to = quick_path / "to"
    options = {"backend": backend, "is_canonical": backend is None}
    made = None if backend is None else load_backend(backend)
    with pytest.raises(Invalid, match=told):
        conversion(find_snapshot(folder.url), to, backend=made, options=options).run()
    assert not to.exists()


def test_rows_without_a_key_type_are_not_moved_to_other_key_groups(
    large: StoredSnapshot, quick_path: Path
) -> None:
    left = large.metadata.operators["spend"]
    (part,) = left.parts
    untyped = structs.replace(part, attributes={**part.attributes, "keys": None})
    operators = {"spend": structs.replace(left, parts=(untyped,))}
    metadata = structs.replace(large.metadata, operators=operators)
    source = replace(large, point=replace(large.point, metadata=metadata))
    with pytest.raises(Corrupt, match=r"does not say of which type its keys are.*'total'"):
        conversion(source, quick_path / "to", options={"max_parallelism": 64}).run()


def test_a_result_that_differs_from_the_source_is_found(
    large: StoredSnapshot, quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.backends.blocks.block import Block  # noqa: PLC0415 - as the next line
    from holdfast.savepoints.conversion import pieces  # noqa: PLC0415 - likewise

    whole = pieces._counted

    def losing(*arguments: Any) -> Iterator[Block]:
        for number, block in enumerate(whole(*arguments)):
            yield block.rows(0, block.count - 1) if number == 0 else block

    monkeypatch.setattr(pieces, "_counted", losing)
    with pytest.raises(Corrupt, match=r"state 'total' of operator 'spend' differs from the source"):
        conversion(large, quick_path / "to").run()
    check_is_none(quick_path / "to")
