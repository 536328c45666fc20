"""`holdfast savepoint inspect`, `show`, `diff`, `validate` and `convert`, as people call them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends import KeyGroupRange, SnapshotForm, ValueStateDescriptor, load_backend
from holdfast.runtime.cli.exit_codes import INTERRUPTED
from holdfast.runtime.cli.main import main
from holdfast.savepoints import StoredSnapshot, find_snapshot
from holdfast.storage import (
    HoldfastError,
    OperatorState,
    SavepointFolder,
    load_storage,
)
from support.states.fleets import STATES
from support.states.made_savepoints import complete
from support.states.stored_snapshots import UID, stored
from support.stored_commands import call, document

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


def error_of(*arguments: str) -> str:
    """What a command says that fails."""
    result = call(*arguments)
    assert result.exit_code == 1
    assert isinstance(result.exception, HoldfastError)
    return str(result.exception)


@pytest.fixture
def checkpoint(quick_path: Path) -> StoredSnapshot:
    return stored(quick_path / "from", load_backend("hashmap"), "checkpoint", SnapshotForm.OWN)


@pytest.fixture
def canonical(quick_path: Path) -> StoredSnapshot:
    backend = load_backend("hashmap")
    return stored(quick_path / "saved", backend, "savepoint", SnapshotForm.CANONICAL)


def below(snapshot: StoredSnapshot) -> Path:
    return Path(snapshot.path.removeprefix("file://"))


def test_inspect_shows_operators_states_types_entries_bytes_and_skew(
    checkpoint: StoredSnapshot,
) -> None:
    told = document("inspect", checkpoint.path)
    assert (told["kind"], told["job"], told["checkpoint"]) == ("checkpoint", "clicks by user", 2)
    (operator,) = told["operators"]
    states = {state["name"]: state for state in operator["states"]}
    assert {*STATES, "numbers", "rules", "union"} <= states.keys()
    assert states["list"]["value"] == "tuple[int, str]"
    assert states["map"]["map_key"] == "str"
    assert states["windows"]["namespace"] == "int"
    assert states["dies"]["ttl"]
    assert states["numbers"]["rows"] == 9
    skew = states["value"]["skew"]
    assert skew["fullest"][0][1] >= 2
    assert skew["of_mean"] >= skew["slot_of_mean"] >= 1
    shown = call("inspect", checkpoint.path).output
    for part in ("operator 'op/1': parallelism 3", "tuple[int, str]", "value (ttl)", "'clicks'"):
        assert part in shown


def test_inspect_reads_no_state_if_it_is_to_be_quick(canonical: StoredSnapshot) -> None:
    for file in below(canonical).rglob("*.parquet"):
        file.write_bytes(bytes(file.stat().st_size))
    (operator,) = document("inspect", canonical.path, "--quick")["operators"]
    assert all(state["rows"] for state in operator["states"])
    assert all(state["skew"] is None for state in operator["states"])
    assert "file of a" in error_of("inspect", canonical.path)


def test_show_shows_entries_of_a_key_or_some(checkpoint: StoredSnapshot) -> None:
    told = document("show", checkpoint.path, "--state", "list", "--key", "key 3", "--limit", "0")
    assert told["is_all"]
    rows = told["rows"]
    assert {row["key"] for row in rows} == {"key 3"}
    assert [row["position"] for row in rows] == list(range(len(rows)))
    assert all(row["value"]["_2"] == f"n{row['value']['_1']}" for row in rows)
    everything = document("show", checkpoint.path, "--state", "list", "--limit", "0")["rows"]
    assert [row for row in everything if row["key"] == "key 3"] == rows
    some = document("show", checkpoint.path, "--state", "map", "--operator", UID, "--limit", "2")
    assert (len(some["rows"]), some["is_all"]) == (2, False)
    assert (
        "there are more" in call("show", checkpoint.path, "--state", "map", "--limit", "2").output
    )
    assert document("show", checkpoint.path, "--state", "rules")["rows"][0]["map_key"] == "half"
    assert "no such rows" in call("show", checkpoint.path, "--state", "sum", "--key", "x").output
    timers = document("show", checkpoint.path, "--state", "_timers/timers/event", "--key", "key 3")
    assert {"key_group", "key", "namespace", "time"} == {*timers["rows"][0]}


def test_show_names_a_state_or_operator_that_it_does_not_find(checkpoint: StoredSnapshot) -> None:
    path = checkpoint.path
    assert "--state with one of '_timers/timers/event'" in error_of("show", path)
    assert "no state 'totals'" in error_of("show", path, "--state", "totals")
    told = error_of("show", path, "--operator", "other", "--state", "list")
    assert "no operator 'other'" in told
    assert UID in told
    assert "has no keys" in error_of("show", path, "--state", "rules", "--key", "a")


def test_diff_tells_what_differs(
    checkpoint: StoredSnapshot, canonical: StoredSnapshot, quick_path: Path
) -> None:
    assert document("diff", checkpoint.path, canonical.path)["equal"]
    assert "the same entries" in call("diff", checkpoint.path, canonical.path).output
    fewer = stored(
        quick_path / "fewer", load_backend("hashmap"), "savepoint", SnapshotForm.NATIVE, slots=2
    )
    told = document("diff", checkpoint.path, fewer.path, code=1)
    states = {state["state"]: state for state in told["states"]}
    # Which changes a key gets depends on its slot, and so does how many slots' lists there are.
    assert states["value"]["status"] == "different"
    assert states["value"]["rows_a"] - states["value"]["only_a"] == (
        states["value"]["rows_b"] - states["value"]["only_b"]
    )
    assert states["value"]["changed"] > 0
    assert "another value" in states["value"]["examples"][0]
    assert states["numbers"]["status"] == "different"
    assert call("diff", checkpoint.path, fewer.path).exit_code == 1


def test_validate_reads_all_and_names_what_is_wrong(canonical: StoredSnapshot) -> None:
    told = document("validate", canonical.path)
    assert told["whole"]
    assert told["rows"] > 1000
    assert "whole: " in call("validate", canonical.path).output
    files = sorted(below(canonical).rglob("op~2F1/map/*.parquet"))
    data = bytearray(files[0].read_bytes())
    data[100] ^= 1
    files[0].write_bytes(data)
    told = document("validate", canonical.path, code=1)
    assert not told["whole"]
    assert all(files[0].name in finding["trouble"] for finding in told["findings"])
    assert any("state 'map'" in finding["what"] for finding in told["findings"])
    files[1].unlink()
    told = document("validate", canonical.path, code=1)
    for file in files[:2]:  # it goes on behind what is missing, too
        assert any(file.name in finding["trouble"] for finding in told["findings"])
    assert told["rows"] > 1000
    assert "files of a savepoint are missing" in error_of("inspect", canonical.path)


@pytest.mark.parametrize(
    ("stops_at", "told"),
    [
        ("check_keeps_savepoints", "nothing was begun at the destination"),
        (
            "Destination.check",
            "there is no savepoint at the destination yet; run the same command to continue",
        ),
        ("Destination._delete_others", "there is a savepoint at the destination; run the same"),
    ],
)
def test_convert_that_is_interrupted_tells_what_is_there(
    checkpoint: StoredSnapshot,
    quick_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stops_at: str,
    told: str,
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    arguments = ("convert", checkpoint.path, str(quick_path / "to"), "--workers", "1")
    with monkeypatch.context() as now:
        now.setattr(f"holdfast.savepoints.conversion.destination.{stops_at}", stop)
        assert told in call(*arguments).stderr
    call(*arguments)
    to = quick_path / "to"
    after = find_snapshot(str(to))
    found = {str(each.relative_to(to)) for each in to.rglob("*") if each.is_file()}
    assert found == {"_metadata", *after.metadata.files()}


def test_convert_makes_a_savepoint_once(checkpoint: StoredSnapshot, quick_path: Path) -> None:
    to = str(quick_path / "to")
    told = document("convert", checkpoint.path, to, "--workers", "1")
    assert told["savepoint"] == f"file://{to}"
    (operator,) = told["operators"]
    assert operator["elements_without_keys"] == 15
    assert operator["rows"]["list"] > 100
    assert find_snapshot(to).metadata.properties["format"] == "canonical"
    assert document("convert", checkpoint.path, to, "--workers", "1")["was_done"]
    assert "converted before" in call("convert", checkpoint.path, to, "--workers", "1").output
    again = str(quick_path / "again")
    shown = call("convert", to, again, "--backend", "hashmap", "--workers", "1").output
    assert f"a savepoint is complete: file://{again}" in shown
    assert document("diff", checkpoint.path, again)["equal"]


def test_arguments_that_cannot_be_are_refused(checkpoint: StoredSnapshot, quick_path: Path) -> None:
    path, to = checkpoint.path, str(quick_path / "to")
    assert "registered as 'nope'" in error_of("convert", path, to, "--backend", "nope")
    assert "none is named" in error_of("convert", path, to, "--format", "native")
    assert "canonical" in error_of("convert", path, to, "--format", "parquet")
    told = error_of("convert", path, to, "--spark", "local[2]", "--workers", "2")
    assert "one of both" in told
    (quick_path / "other").mkdir()
    (quick_path / "other" / "file").touch()
    assert "at the destination already" in error_of("convert", path, str(quick_path / "other"))
    assert "in the folder of the destination" in error_of("convert", path, str(quick_path))
    assert "there is no savepoint" in error_of("convert", str(quick_path / "none"), to)
    assert "option 'speed'" in error_of("inspect", path, "-Dspeed=9")
    assert not (quick_path / "to").exists()
    for command in ("inspect", "show", "diff", "validate", "convert"):
        assert call(command).exit_code == 2
        assert "Exit codes" in call(command, "--help").output


def test_options_of_one_storage_are_not_those_of_the_other(
    checkpoint: StoredSnapshot, canonical: StoredSnapshot
) -> None:
    """The second is asked for its options, and not the first."""
    option = "-Dmax_state_bytes=9"
    for command in ("convert", "diff"):
        told = error_of(command, checkpoint.path, "memory://place/to", option)
        assert "max_state_bytes" not in told
        assert "memory" in told
    assert "option 'max_state_bytes'" in error_of("diff", checkpoint.path, canonical.path, option)


def test_errors_are_lines_and_no_traces(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["holdfast", "savepoint", "inspect", str(quick_path / "none")]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert told.startswith("error: there is no savepoint")
    assert "Traceback" not in told


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_an_output_that_is_full_is_an_error_and_no_trace(
    canonical: StoredSnapshot, as_json: list[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        command = [HOLDFAST, "savepoint", "inspect", canonical.path, "--quick", *as_json]
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: ")
    assert "No space left" in ended.stderr
    assert all(line.startswith("error: ") for line in ended.stderr.splitlines())


@pytest.mark.slow
def test_characters_that_a_terminal_lacks_are_escaped(quick_path: Path) -> None:
    """And no output at all is none."""
    folder = SavepointFolder.begin(load_storage(str(quick_path)), "job")
    with load_backend("hashmap").open(
        uid="spend", key_groups=KeyGroupRange(0, 0), max_parallelism=1
    ) as state:
        state.get_state(ValueStateDescriptor("name", str)).put_many(["k"], ["Zoë"])
        part = state.snapshot(1, folder).result(60)
    left = OperatorState(parallelism=1, max_parallelism=1, parts=(part,))
    complete(folder, {"spend": left})
    shell = f'"{HOLDFAST}" savepoint show "{folder.url}"'
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    told = [
        subprocess.run(
            line, shell=True, capture_output=True, env=ascii_only, check=True, timeout=60
        )
        for line in (shell, f"{shell} --json", f"{shell} >&-")
    ]
    assert rb"Zo\xeb" in told[0].stdout
    assert json.loads(told[1].stdout)["rows"][0]["value"] == "Zoë"
    assert [each.stderr for each in told] == [b""] * 3


@pytest.mark.slow
def test_an_error_that_cannot_be_written_leaves_no_trace(quick_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [HOLDFAST, "savepoint", "inspect", str(quick_path / "none"), "--json"]
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert ended.returncode == 1
    assert [line.partition(":")[0] for line in ended.stderr.splitlines()] == ["error"] * 2


class _Interrupts:
    """A finder of modules, during whose work Ctrl-C is pressed."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "holdfast.runtime.cli.application":
            raise KeyboardInterrupt


def test_ctrl_c_while_a_command_is_imported_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What commands need takes a while, and begins in `main`."""
    monkeypatch.delitem(sys.modules, "holdfast.runtime.cli.application")
    monkeypatch.setattr(sys, "meta_path", [_Interrupts, *sys.meta_path])
    monkeypatch.setattr(sys, "argv", ["holdfast", "backends"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"
