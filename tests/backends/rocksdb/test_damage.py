"""Damaged or missing files of RocksDB, local and in storage: clear errors, and no further harm."""

from __future__ import annotations

import gc
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.backends.snapshots.file_uploads import FilesAttributes, handle_name
from holdfast.backends.snapshots.neutral import SnapshotForm
from holdfast.backends.testing.gates import Gate
from holdfast.storage import (
    Corrupt,
    FileHandle,
    Handle,
    HoldfastError,
    InlineHandle,
    Invalid,
    JobStorage,
    StateSnapshot,
    SystemClock,
    Unavailable,
    load_storage,
)
from support.states.rocksdb_states import (
    HIGH,
    LOW,
    VALUE,
    content,
    files_below,
    fill,
    opened,
    rocksdb_in,
)

pytestmark = pytest.mark.slow

_DISK_BYTES = 16 << 20
NEUTRAL = SnapshotForm.NEUTRAL
_SIZE_LIMIT_BYTES = 64 << 10
_SOON_S = 20.0


@dataclass(frozen=True)
class Small:
    """A place where state is kept, and a way to make it full."""

    path: Path
    full: Callable[[], AbstractContextManager[None]]
    says: str


@contextmanager
def _files_are_limited() -> Iterator[None]:
    """No file of this process can grow any further than a little; Python ignores the signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_SIZE_LIMIT_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def _disk_is_filled(folder: Path) -> Iterator[None]:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        file.write(bytes(shutil.disk_usage(folder).free))
    try:
        yield
    finally:
        filler.unlink()


@pytest.fixture
def small_disk(quick_path: Path) -> Iterator[Small]:
    path = quick_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(path)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small disk can be mounted by root only")
    try:
        yield Small(path, lambda: _disk_is_filled(path), "No space left.*Make room on the disk")
        assert files_below(path) == []
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.fixture(params=["files", "disk"])
def small(request: pytest.FixtureRequest, quick_path: Path) -> Iterator[Small]:
    if request.param == "disk":
        yield request.getfixturevalue("small_disk")
        return
    path = quick_path / "files"
    yield Small(path, _files_are_limited, "File too large")
    assert files_below(path) == []


@pytest.fixture
def place(quick_path: Path) -> Iterator[Path]:
    """Where state is kept while it is live; a test that has passed leaves nothing there."""
    folder = quick_path / "state"
    yield folder
    assert files_below(folder) == []


@pytest.fixture
def job(quick_path: Path) -> JobStorage:
    return load_storage(str(quick_path / "storage"), inline_limit_bytes=0).job("job")


@pytest.fixture
def whole(quick_path: Path, job: JobStorage) -> Iterator[StateSnapshot]:
    """A snapshot, which must not suffer from what happens later."""
    folder = quick_path / "elsewhere"
    with opened(rocksdb_in(folder)) as state:
        fill(state, size_bytes=1_000)
        expected = content(state)
        snapshot = state.snapshot(1, job).result(30)
    yield snapshot
    with opened(rocksdb_in(folder), snapshot, job=job) as state:
        assert content(state) == expected


def test_a_full_disk_is_reported_when_a_store_opens(small_disk: Small) -> None:
    backend = rocksdb_in(small_disk.path)
    with (
        small_disk.full(),
        pytest.raises(Unavailable, match=small_disk.says),
        opened(backend),
    ):
        pass


def test_a_full_disk_is_reported_when_state_is_written(
    small: Small, job: JobStorage, whole: StateSnapshot
) -> None:
    with opened(rocksdb_in(small.path), whole, job=job) as state:
        values, some = state.get_state(VALUE), list(range(20))
        before = values.get_many(some)
        with small.full():
            with pytest.raises(Unavailable, match=f"'value'.*{small.says}"):
                for first in range(0, 200_000, 1_000):
                    values.put_many(range(first, first + 1_000), [b"x" * 1_000] * 1_000)
            with pytest.raises(Unavailable, match=small.says):
                state.snapshot(2, job)
            assert len(values.get_many(some)) == len(before)
        began_s = SystemClock().monotonic_s()
    assert SystemClock().monotonic_s() - began_s < _SOON_S


def test_a_full_disk_is_reported_by_a_snapshot(
    small: Small, job: JobStorage, whole: StateSnapshot
) -> None:
    with opened(rocksdb_in(small.path), whole, job=job) as state:
        fill(state, range(500), size_bytes=1_000)
        expected = content(state)
        with small.full(), pytest.raises(Unavailable, match=f"a snapshot.*{small.says}"):
            state.snapshot(2, job)
        assert content(state) == expected
        assert list(small.path.glob("*/snapshot-*")) == []


def test_a_full_disk_is_reported_by_a_restore(
    small: Small, job: JobStorage, whole: StateSnapshot
) -> None:
    backend = rocksdb_in(small.path)
    with (
        small.full(),
        pytest.raises(Unavailable, match=small.says),
        opened(backend, whole, job=job),
    ):
        pass
    with opened(backend, whole, job=job) as state:
        assert content(state)


def test_a_full_disk_is_reported_when_files_of_other_slots_are_merged(
    small: Small,
    place: Path,
    job: JobStorage,
    whole: StateSnapshot,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = []
    for number, key_groups in enumerate((LOW, HIGH)):
        with opened(rocksdb_in(place), whole, job=job, key_groups=key_groups) as state:
            parts.append(state.snapshot(2 + number, job).result(30))
    exported = "holdfast.backends.rocksdb.files.RocksFiles._exported"
    original = _named(exported)
    full = small.full()

    def and_then_full(*arguments: Any) -> Any:
        with full:
            yield from original(*arguments)

    monkeypatch.setattr(exported, and_then_full)
    with (
        pytest.raises(Unavailable, match=f"of another slot.*{small.says}"),
        opened(rocksdb_in(small.path), *parts, job=job),
    ):
        pass


def _limit_that_spares(files: int) -> int:
    """The limit with which so many more can be opened: it is one of their numbers, with gaps."""
    taken = {int(each.name) for each in Path("/proc/self/fd").iterdir()}
    return next(islice((number for number in count() if number not in taken), files, None))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to count open files")
def test_a_limit_of_open_files_is_reported(
    place: Path, job: JobStorage, whole: StateSnapshot
) -> None:
    backend = rocksdb_in(place)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = []
    gc.collect()  # files of tests before this one must not be closed in its midst
    for spare in range(2, 80, 2):
        resource.setrlimit(resource.RLIMIT_NOFILE, (_limit_that_spares(spare), hard))
        try:
            with opened(backend, whole, job=job):
                said.append("")
        except Unavailable as error:
            said.append(str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    # To remove files takes one, too: the last one has removed what the others left.
    assert all("Too many open files" in each for each in said if each)
    assert any("or set max_open_files" in each for each in said)
    assert said[-1] == ""


@pytest.mark.parametrize("use", ["write", "snapshot", "neutral snapshot", "read", "nothing"])
def test_a_deleted_working_directory_is_reported(
    place: Path, job: JobStorage, whole: StateSnapshot, use: str
) -> None:
    with opened(rocksdb_in(place), whole, job=job) as state:
        values = state.get_state(VALUE)
        fill(state)
        _remove_all(place)
        uses: dict[str, Callable[[], object]] = {
            "write": lambda: [values.put_many(range(9_000), [b"x" * 1_000] * 9_000) for _ in "abc"],
            "snapshot": lambda: state.snapshot(2, job).result(30),
            "neutral snapshot": lambda: state.snapshot(2, job, form=NEUTRAL).result(30),
        }
        if use in uses:
            with pytest.raises(
                HoldfastError, match=r"No such file or directory.*Restore"
            ) as caught:
                uses[use]()
            assert isinstance(caught.value, Unavailable)
        elif use == "read":
            assert values.get_many([1, 10_000]).to_pylist()[1] is None
        began_s = SystemClock().monotonic_s()
    assert SystemClock().monotonic_s() - began_s < _SOON_S


def test_a_working_directory_deleted_during_a_snapshot_is_reported(
    place: Path, job: JobStorage, whole: StateSnapshot
) -> None:
    gate = Gate(job)
    with opened(rocksdb_in(place), whole, job=job) as state:
        future = state.snapshot(2, gate)
        assert gate.entered.wait(30)
        _remove_all(place)
        gate.open.set()
        with pytest.raises(Unavailable, match=r"file of state cannot be read.*snapshot-"):
            future.result(30)


def _remove_all(place: Path) -> None:
    for path in place.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _named(path: str) -> Any:
    module, name, attribute = path.rsplit(".", 2)
    return getattr(getattr(__import__(module, fromlist=[name]), name), attribute)


Change = Callable[[StateSnapshot], StateSnapshot]


def _with_file(snapshot: StateSnapshot, name: str, handle: Handle | None) -> StateSnapshot:
    handles = {each: its for each, its in snapshot.handles.items() if each != handle_name(name)}
    if handle is not None:
        handles[handle_name(name)] = handle
    return msgspec.structs.replace(snapshot, handles=handles)


def _one(snapshot: StateSnapshot, start: str) -> str:
    files = (name.removeprefix(handle_name("")) for name in snapshot.handles)
    return next(name for name in sorted(files) if start in name)


def _without(start: str) -> Change:
    return lambda snapshot: _with_file(snapshot, _one(snapshot, start), None)


def _inline(start: str, data: bytes) -> Change:
    handle = InlineHandle(data=data)
    return lambda snapshot: _with_file(snapshot, _one(snapshot, start), handle)


def _added(name: str) -> Change:
    return lambda snapshot: _with_file(snapshot, name, InlineHandle(data=b"1"))


def _attributes(**parts: Any) -> Change:
    def changed(snapshot: StateSnapshot) -> StateSnapshot:
        return msgspec.structs.replace(snapshot, attributes={**snapshot.attributes, **parts})

    return changed


def _kept(**parts: Any) -> Change:
    """Of the first table that is in files."""

    def changed(snapshot: StateSnapshot) -> StateSnapshot:
        attributes = msgspec.convert(snapshot.attributes, FilesAttributes)
        first, *others = attributes.files
        kept = msgspec.structs.replace(first.kept, **parts)
        files = (msgspec.structs.replace(first, kept=kept), *others)
        replaced = msgspec.structs.replace(attributes, files=files)
        return msgspec.structs.replace(snapshot, attributes=msgspec.to_builtins(replaced))

    return changed


LIES: dict[str, tuple[Change, type[HoldfastError], str]] = {
    "no CURRENT": (_without("CURRENT"), Corrupt, "CURRENT"),
    "no MANIFEST": (_without("MANIFEST"), Corrupt, "MANIFEST"),
    "no SST": (_without(".sst"), Corrupt, r"\.sst"),
    "empty CURRENT": (_inline("CURRENT", b""), Corrupt, "CURRENT"),
    "wrong CURRENT": (_inline("CURRENT", b"MANIFEST-999999\n"), Corrupt, "MANIFEST-999999"),
    "garbage in CURRENT": (_inline("CURRENT", b"\xff" * 16), Corrupt, "CURRENT"),
    "empty MANIFEST": (_inline("MANIFEST", b""), Corrupt, "do not hold the tables|MANIFEST"),
    "garbage in MANIFEST": (_inline("MANIFEST", b"\xff" * 9_999), Corrupt, "RocksDB found damage"),
    "empty SST": (_inline(".sst", b""), Corrupt, r"\.sst"),
    "garbage in SST": (_inline(".sst", b"\xff" * 9_999), Corrupt, r"\.sst"),
    "a file above": (_added("../x"), Corrupt, r"no file's name.*'\.\./x'"),
    "the folder above": (_added(".."), Corrupt, r"no file's name.*'\.\.'"),
    "this folder": (_added("."), Corrupt, r"no file's name.*'\.'"),
    "no name": (_added(""), Corrupt, "no file's name.*''"),
    "a file anywhere": (_added("/x"), Corrupt, "no file's name.*'/x'"),
    "a file below": (_added("x/y"), Corrupt, "no file's name.*'x/y'"),
    "no legal name": (_added("x\0y"), Corrupt, r"no file's name.*'x\\x00y'"),
    "no text": (_added("x\ud800"), Corrupt, "no file's name"),
    "a long name": (_added("x" * 300), Corrupt, "no file's name"),
    "another place": (_kept(place="state-00"), Corrupt, "tables that it names.*state-00"),
    "the default family": (_kept(place="default"), Corrupt, "tables that it names.*default"),
    "another layout": (_kept(layout="by-heart"), Invalid, "laid out.*by-heart"),
    "a negative number": (_kept(next_number=-1), Corrupt, "shape of their kind.*next_number"),
    "a large number": (_kept(next_number=2**64 - 1), Corrupt, "next_number"),
    "another format": (_attributes(format="rocksdb/99"), Invalid, "files of rocksdb/99"),
    "no format": (_attributes(format=5), Corrupt, "shape of their kind"),
    "an unknown attribute": (_attributes(more=5), Corrupt, "shape of their kind.*more"),
    "another kind": (
        lambda snapshot: msgspec.structs.replace(snapshot, kind="holdfast.keyed-files/9"),
        Invalid,
        "keyed-files/9",
    ),
    "entries": (
        lambda snapshot: msgspec.structs.replace(snapshot, kind="holdfast.keyed-entries/1"),
        Corrupt,
        "shape of their kind",
    ),
    "too many key groups": (
        lambda snapshot: msgspec.structs.replace(snapshot, key_groups=(0, 128)),
        HoldfastError,
        "key groups.*0 to 128",
    ),
    "no key groups": (
        lambda snapshot: msgspec.structs.replace(snapshot, key_groups=None),
        Invalid,
        "key groups",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_snapshot_attributes_that_contradict_the_files_are_refused(
    place: Path, job: JobStorage, whole: StateSnapshot, lie: str
) -> None:
    change, kind, says = LIES[lie]
    with (
        pytest.raises(kind, match=says) as caught,
        opened(rocksdb_in(place), change(whole), job=job),
    ):
        pass
    assert not isinstance(caught.value, Unavailable)


def test_files_that_no_snapshot_lists_are_not_read(
    place: Path, job: JobStorage, whole: StateSnapshot
) -> None:
    """Options that lead elsewhere, say, or a log of writes."""
    crafted = whole
    options = f"[Version]\n[DBOptions]\n  wal_dir={place.parent}/led-to\n".encode()
    for name in ("OPTIONS-999999", "999999.log", "LOG", "rocksdict-config.json"):
        crafted = _with_file(crafted, name, InlineHandle(options))
    with opened(rocksdb_in(place), crafted, job=job):
        left = [path for path in place.rglob("*") if path.is_file()]
        assert all(options != path.read_bytes() for path in left)
    assert not (place.parent / "led-to").exists()


def test_two_tables_cannot_be_in_one_place(
    place: Path, job: JobStorage, whole: StateSnapshot
) -> None:
    attributes = msgspec.convert(whole.attributes, FilesAttributes)
    its_place = attributes.files[1].kept.place
    with (
        pytest.raises(Corrupt, match="place"),
        opened(rocksdb_in(place), _kept(place=its_place)(whole), job=job),
    ):
        pass


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped"])
@pytest.mark.parametrize("part", ["shared", "own"])
def test_a_damaged_file_in_storage_is_reported(
    place: Path,
    job: JobStorage,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    damage: str,
    quick_path: Path,
) -> None:
    monkeypatch.setattr("holdfast.backends.snapshots.file_uploads._SHARED_FROM_BYTES", 20_000)
    with opened(rocksdb_in(place)) as state:
        fill(state, size_bytes=1_000)
        before = content(state)
        whole = state.snapshot(1, job).result(30)
        fill(state, range(200), size_bytes=1_000)
        broken = state.snapshot(2, job).result(30)
    handles = [each for each in broken.handles.values() if isinstance(each, FileHandle)]
    handle = next(each for each in handles if each.file.startswith("shared/") == (part == "shared"))
    path = quick_path / "storage" / "job" / handle.file
    data = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[:-1])
    else:
        data[handle.offset + handle.length // 2] ^= 1
        path.write_bytes(data)
    with (
        pytest.raises(Corrupt, match=f"'op' cannot be restored.*{path.name}"),
        opened(rocksdb_in(place), broken, job=job),
    ):
        pass
    assert files_below(place) == []
    with opened(rocksdb_in(place), whole, job=job) as state:
        assert content(state) == before


LOOKING = """
import sys
from pathlib import Path
from holdfast.backends.rocksdb.database import RocksDatabase
from holdfast.backends.rocksdb.memory import SlotMemory
from holdfast.backends.rocksdb.options import rocks_options
from holdfast.storage import Unavailable

path, memory = Path(sys.argv[1]), SlotMemory(16 << 20, 0.5)
options = rocks_options("default", {}, memory, path.parent)
try:
    RocksDatabase(path, options, memory, is_there=True)
except Unavailable as error:
    print(error)
"""


def test_a_second_process_cannot_open_the_same_directory(place: Path) -> None:
    with opened(rocksdb_in(place)) as state:
        fill(state)
        expected = content(state)
        (database,) = place.glob("*/db-*")
        command = [sys.executable, "-c", LOOKING, str(database)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "LOCK" in said
        assert "End the process that uses the directory" in said
        assert content(state) == expected
