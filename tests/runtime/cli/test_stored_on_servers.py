"""The commands for stored snapshots, on the real servers of S3 and of an HDFS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import SnapshotForm, load_backend
from holdfast.savepoints import find_snapshot
from holdfast.storage import Corrupt
from support.states.stored_snapshots import UID, content_of, stored, unkeyed_content
from support.storages.tried_storages import REMOTE, CheckpointPlace, place_named
from support.stored_commands import call, document

pytestmark = pytest.mark.slow


@pytest.fixture(params=REMOTE)
def place(
    request: pytest.FixtureRequest, quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CheckpointPlace:
    """A place on each of them; credentials of the bucket are in the environment."""
    place = place_named(request.param, quick_path, request)
    for variable, option in (("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")):
        if option in place.options:
            monkeypatch.setenv(variable, place.options[option])
    return place


@pytest.fixture
def given(place: CheckpointPlace) -> list[str]:
    """How the store is reached, as a person says it."""
    told = {name: place.options[name] for name in ("endpoint", "region") if name in place.options}
    return [f"-D{name}={value}" for name, value in told.items()]


@pytest.mark.dealt("place", take=1)
def test_a_snapshot_on_a_server_becomes_one_of_another_backend_and_format(
    place: CheckpointPlace, given: list[str], quick_path: Path
) -> None:
    """From there to there, from there to this machine, and back."""
    source = stored(place, load_backend("hashmap"), "checkpoint", SnapshotForm.OWN)
    native, back = f"{place.url}/native", f"{place.url}/back"
    here = str(quick_path / "here")
    legs: tuple[tuple[str, ...], ...] = (
        (source.path, native, "--backend", "rocksdb"),
        (native, here, "--format", "canonical", "--max-parallelism", "64"),
        (here, back, "--backend", "hashmap", "--parallelism", "2"),
    )
    for leg in legs:
        told = document("convert", *leg, *given, "--workers", "1")
        assert told["savepoint"].rstrip("/").endswith(leg[1].rpartition("/")[2])
        assert document("diff", source.path, leg[1], *given)["equal"]
        there = given if leg[1] != here else []
        assert document("validate", leg[1], *there)["whole"]
    (operator,) = document("inspect", back, *given)["operators"]
    assert (operator["uid"], operator["parallelism"], operator["max_parallelism"]) == (UID, 2, 64)
    after = find_snapshot(back, place.open)
    assert content_of(after) == content_of(source)
    assert unkeyed_content(after) == unkeyed_content(source)
    rows = document("show", back, *given, "--state", "value", "--limit", "0")["rows"]
    assert rows
    only = document("show", back, *given, "--state", "value", "--key", rows[0]["key"])["rows"]
    assert only == rows[:1]


def test_damage_on_a_server_is_reported_by_file_name(
    place: CheckpointPlace, given: list[str]
) -> None:
    source = stored(place, load_backend("hashmap"), "savepoint", SnapshotForm.CANONICAL)
    copy = f"{place.url}/copy"
    document("convert", source.path, copy, *given, "--workers", "1")
    storage = place.open(copy)
    files = [each.name for each in storage.list("") if each.name.endswith(".parquet")]
    flipped = bytearray(storage.read(files[0]))
    flipped[len(flipped) // 2] ^= 1
    storage.write(files[0], bytes(flipped))
    storage.delete([files[1]])
    wrong = document("validate", copy, *given, code=1)
    assert not wrong["whole"]
    told = [finding["trouble"] for finding in wrong["findings"]]
    for file in files[:2]:
        assert any(file in trouble for trouble in told), (file, told)
    with pytest.raises(Corrupt):
        _raise(lambda: call("diff", source.path, copy, *given))
    place.open(f"{place.url}/mine").write("notes.txt", b"mine")
    taken = call("convert", source.path, f"{place.url}/mine", *given)
    assert "something at the destination already" in str(taken.exception)
    missing = call("inspect", f"{place.url}/none", *given)
    assert missing.exit_code == 1
    assert f"{place.url}/none" in str(missing.exception)


def _raise(calling: Callable[[], Any]) -> None:
    """Raise what a command ended with."""
    exception = calling().exception
    assert exception is not None
    raise exception
