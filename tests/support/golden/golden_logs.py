"""Golden logs: over golden snapshots, changes of every kind to every kind of state.

`write_golden` makes the files anew, for a new version of the format only: what a released version
wrote stays as it is.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec

import golden_entries
from golden_entries import CASES as ENTRIES
from golden_entries import (
    DESCRIPTORS,
    NOW_MS,
    Account,
    Content,
    Golden,
    expected,
    job_at,
)
from holdfast.backends.snapshots.logs import BASE_HANDLES
from holdfast.storage import FileHandle, JobStorage, StateSnapshot
from support.states.logged_snapshots import TableLog, logged, table_log, timer_log

__all__ = ["CASES", "GOLDEN", "RENEWED_MS", "after", "build", "logs", "stored", "write_golden"]

GOLDEN = Path(__file__).parents[2] / "golden" / "keyed-log-v1"
CASES = {"int": "", "str": "", "tuple": "", "lz4": "lz4"}
"""The golden entries that are a base, and how the log is compressed."""

RENEWED_MS = NOW_MS + 5000
SETS = 5


def logs(case: Golden) -> list[TableLog]:
    """What has changed since the base was written, under each key."""
    key_type = case.key_type
    by_name = {
        descriptor.name: table_log(descriptor, namespaces, key_type=key_type, rows=3)
        for descriptor, namespaces, _ in DESCRIPTORS
    }
    timers = timer_log("user", key_type=key_type, log="another log", first=300)
    for place, key in enumerate(case.keys):
        by_name["count"].add(key, 2**40 + place)
        by_name["account"].remove(key, namespace="")
        by_name["account"].add(key, Account("new", [place]), namespace="b\x00")
        by_name["any"].add(key, {"changed": [place, None]})
        by_name["pickled"].add(key, frozenset({place}))
        by_name["mortal"].add(key, "renewed", stamp=RENEWED_MS)
        by_name["texts"].add(key, "more")
        by_name["accounts"].remove(key, namespace=(-5, 0))
        by_name["accounts"].add(key, Account("one"), namespace=(-5, 0), stamp=RENEWED_MS)
        by_name["numbers"].remove(key, map_key="z")
        by_name["numbers"].add(key, None, map_key="new")
        by_name["lists"].remove(key, namespace=-1, map_key=(place, "a"))
        by_name["lists"].remove(key, namespace=1)
        by_name["sum"].remove(key)
        by_name["sum"].add(key, place)
        by_name["distinct"].add(key, ["a", "b"])
        timers.remove(key, namespace="", map_key=2**62)
        timers.add(key, True, namespace="w", map_key=-(2**63))
    return [*by_name.values(), timers]


def after(case: Golden) -> Content:
    """What reading all of it answers."""
    content = expected(case)
    for place, key in enumerate(case.keys):
        changes: Content = {
            ("count", key, None): 2**40 + place,
            ("account", key, ""): None,
            ("account", key, "b\x00"): Account("new", [place]),
            ("any", key, None): {"changed": [place, None]},
            ("pickled", key, None): frozenset({place}),
            ("mortal", key, None): "renewed",
            ("texts", key, None): [*content["texts", key, None], "more"],
            ("accounts", key, (-5, 0)): [Account("one")],
            ("numbers", key, None): {"": None, "a\x00": -(2**63), "new": None},
            ("lists", key, -1): {(-1, ""): None},
            ("lists", key, 1): {},
            ("sum", key, None): place,
            ("distinct", key, None): 2,
            ("event", -(2**63), key, "w"): True,
        }
        del content["event", 2**62, key, ""]
        content |= changes
    return content


def stored_base(name: str, folder: Path) -> tuple[JobStorage, StateSnapshot]:
    """A golden snapshot of entries, in a job's folder."""
    data = (golden_entries.GOLDEN / f"{name}.json").read_bytes()
    base = msgspec.json.decode(data, type=StateSnapshot)
    _put(golden_entries.GOLDEN / f"{name}.bin", base, "", folder)
    return job_at(folder), base


def stored(name: str, folder: Path) -> tuple[JobStorage, StateSnapshot]:
    """A golden snapshot of a base and a log, in a job's folder."""
    job, _ = stored_base(name, folder)
    data = (GOLDEN / f"{name}.json").read_bytes()
    snapshot = msgspec.json.decode(data, type=StateSnapshot)
    _put(GOLDEN / f"{name}.bin", snapshot, BASE_HANDLES, folder)
    return job, snapshot


def build(name: str, folder: Path) -> tuple[JobStorage, StateSnapshot]:
    """Write a case's log over its golden base."""
    job, base = stored_base(name, folder)
    return job, logged(job, 2, base, logs(ENTRIES[name]), sets=SETS, compression=CASES[name])


def write_golden() -> None:
    """Make the files of this version of the format."""
    GOLDEN.mkdir(exist_ok=True)
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            _, snapshot = build(name, Path(folder))
            (file,) = _files(snapshot, BASE_HANDLES)
            shutil.copyfile(Path(folder) / "job" / file, GOLDEN / f"{name}.bin")
        document = msgspec.json.format(msgspec.json.encode(snapshot), indent=1)
        (GOLDEN / f"{name}.json").write_bytes(document + b"\n")


def _files(snapshot: StateSnapshot, other: str) -> set[str]:
    return {
        handle.file
        for handle_name, handle in snapshot.handles.items()
        if isinstance(handle, FileHandle) and not (other and handle_name.startswith(other))
    }


def _put(source: Path, snapshot: StateSnapshot, other: str, folder: Path) -> None:
    (file,) = _files(snapshot, other)
    target = folder / "job" / file
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
