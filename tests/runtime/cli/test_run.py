"""`holdfast run`: the program runs as Python would run it, and options reach it or are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.runtime.cli.application import application
from holdfast.runtime.options.table import OPTIONS
from holdfast.storage import Invalid, NotFound
from holdfast.storage.options.table import key_value_pairs

Ran = subprocess.CompletedProcess[str]
Run = Callable[..., Ran]

SHOWS = """
import json, pickle, sys
from holdfast.runtime.options.command_line import command_line
import beside

class Known:
    pass

assert pickle.loads(pickle.dumps(Known())).__class__ is Known
line = command_line()
print(json.dumps([sys.argv, __name__, __file__, beside.NAME, dict(line.settings.values)]))
"""
ENVIRONMENT = """
from holdfast.runtime.options.command_line import command_line
command_line().has_environment = True  # as one does that is made; it would need Spark
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a program by the command, in a process of its own."""
    command = Path(sys.executable).with_name("holdfast")
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "beside.py").write_text("NAME = 'beside'\n")

    def run(source: str | None, *options: str, arguments: tuple[str, ...] = ()) -> Ran:
        path = tmp_path / "programs" / "app.py"
        if source is not None:
            path.write_text(source)
        return subprocess.run(
            [str(command), "run", *options, "programs/app.py", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_a_program_finds_itself_as_python_would_have_it(run: Run) -> None:
    arguments = ("--day", "5", "-D", "x=1", "--help")
    done = run(SHOWS, arguments=arguments)
    assert (done.returncode, done.stderr) == (0, "")
    argv, name, file, beside, options = json.loads(done.stdout)
    assert argv == ["programs/app.py", *arguments]
    assert (name, file, beside, options) == ("__main__", "programs/app.py", "beside", {})


@pytest.mark.slow
def test_options_reach_the_program(run: Run, tmp_path: Path) -> None:
    done = run(
        SHOWS + ENVIRONMENT,
        *("-Dstate.backend.type=rocksdb", "-D", "parallelism.default=8", "-n"),
        *("--claim-mode", "claim"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)[4] == {
        "backend": "rocksdb",
        "parallelism": 8,
        "execute.claim_mode": "claim",
        "execute.allow_non_restored_state": True,
    }
    starts = "command_line().started('orders', None)\n"
    for path, found in (
        ("chk-7", str(tmp_path / "chk-7")),
        ("s3://b/chk-7", "s3://b/chk-7"),
        ("latest", "latest"),
    ):
        done = run(SHOWS + ENVIRONMENT + starts, "-s", path)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)[4] == {"execute.restore": found}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("-Dstate.backend.typ=x",), "such as state.backend.type"),
        (("-Dparallelism.default",), "expected -Dkey=value"),
        (("-Dparallelism.default=many",), "expected a whole number"),
        (("-Dparallelism.default=1", "-Dparallelism.default=1"), "is given twice"),
        (("-s", "x", "-Dexecution.state-recovery.path=x"), "is given twice"),
        (("--claim-mode", "mine"), "NO_CLAIM or CLAIM"),
        (("-Dstate.backend.type=rocks",), "no state backend is registered as 'rocks'"),
        (("-Dexecution.checkpointing.interval=0",), "interval is out of range"),
        (("-Dexecution.checkpointing.dir=memroy",), "no checkpoint storage is registered"),
        (("-Dstate.backend.rocksdb.memory.fixed-per-slot=1",), "16m or more"),
        (("--config", "none.yaml"), "no such file of options"),
        (("--config", __file__), "is not YAML"),
    ],
)
def test_invalid_options_are_refused_before_the_program_runs(
    tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    app = tmp_path / "app.py"
    app.write_text("print('ran')")
    result = CliRunner().invoke(application, ["run", *options, str(app)])
    assert isinstance(result.exception, Invalid | NotFound)
    assert told in str(result.exception)
    assert result.stdout == ""


@pytest.mark.slow
def test_options_of_which_nothing_came_are_told(run: Run, tmp_path: Path) -> None:
    done = run("print('ran')", "-Dparallelism.default=3")
    assert (done.returncode, done.stdout) == (1, "ran\n")
    assert "made no StreamEnvironment: the options had no effect" in done.stderr
    (tmp_path / "options.yaml").write_text("parallelism: {default: 3}")
    done = run("print('ran')", "--config", "options.yaml")
    assert (done.returncode, done.stdout) == (1, "ran\n")
    assert "found --config options.yaml" in done.stderr
    done = run(ENVIRONMENT, "-s", "latest")
    assert done.returncode == 1
    assert "started no job: nothing was restored" in done.stderr


@pytest.mark.slow
def test_an_error_of_the_program_is_shown_as_python_shows_it(run: Run) -> None:
    source = "def f():\n    raise ValueError('no luck')\nf()\n"
    done = run(source)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert 'app.py", line 3, in <module>' in lines[1]
    assert lines[-1] == "ValueError: no luck"
    assert "holdfast" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit('why')", 1),
        ("raise KeyboardInterrupt", 130),
    ],
)
def test_the_exit_code_is_that_of_the_program(run: Run, source: str, code: int) -> None:
    done = run(source)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert ("why" in done.stderr) is ("why" in source)


@pytest.mark.slow
def test_a_missing_or_unreadable_program_is_reported(run: Run) -> None:
    done = run(None)
    assert done.returncode == 1
    assert "there is no such program [programs/app.py]" in done.stderr
    done = run("if:\n")
    assert done.returncode == 1
    assert "the program cannot be read [programs/app.py]" in done.stderr
    assert "SyntaxError" in done.stderr


def test_options_are_keys_and_values() -> None:
    assert key_value_pairs(["a.b=c=d", "e="]) == {"a.b": "c=d", "e": ""}
    wrong: Any
    for wrong in (["a"], ["=b"], ["a=1", "a=2"]):
        with pytest.raises(Invalid):
            key_value_pairs(wrong)


def test_the_help_lists_all_options() -> None:
    told = " ".join(
        CliRunner().invoke(application, ["run", "--help"], env={"COLUMNS": "200"}).output.split()
    )
    for option in OPTIONS.options:
        assert f"{option.key}: {option.codec.expected}" in told
