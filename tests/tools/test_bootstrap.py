"""The set-up of .venv: what it decides, and that nothing can leave it half-done as if whole."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import bootstrap
from bootstrap import House, SetupError, Step

TOOLS = Path(bootstrap.__file__).parent


@pytest.fixture
def house(tmp_path: Path) -> House:
    (tmp_path / ".venv").mkdir()
    return House(tmp_path)


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def step(house: House, key: str = "k", *, fails: bool = False) -> Step:
    """A step that makes one file, and notes each of its runs in another."""
    made = house.venv / "made"

    def run() -> None:
        with (house.root / "runs").open("a") as runs:
            runs.write(key)
        if fails:
            message = "no space"
            raise SetupError(message)
        made.touch()

    return Step("only", key, "making", run, made.exists)


def runs(house: House) -> str:
    return (house.root / "runs").read_text()


def set_up(house: House, *steps: Step) -> None:
    os.close(bootstrap.set_up(house, lambda: list(steps)))


def in_child(house: House, code: str) -> subprocess.Popen[bytes]:
    """Run code that knows the house in another process."""
    start = "import os, sys; from pathlib import Path; import bootstrap; from bootstrap import *"
    whole = f"{start}\nhouse = House(Path(sys.argv[1]))\n{code}"
    environ = {**os.environ, "PYTHONPATH": str(TOOLS)}
    return subprocess.Popen([sys.executable, "-c", whole, house.root], env=environ)


def can_lock(house: House, how: int) -> bool:
    with (house.root / ".venv.lock").open() as lock:
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_a_step_runs_once_for_its_key(house: House) -> None:
    set_up(house, step(house, "a"))
    set_up(house, step(house, "a"))
    assert runs(house) == "a"
    set_up(house, step(house, "b"))
    assert runs(house) == "ab"


def test_a_step_whose_result_is_gone_runs_again(house: House) -> None:
    set_up(house, step(house))
    (house.venv / "made").unlink()
    set_up(house, step(house))
    assert runs(house) == "kk"


def test_a_step_that_fails_is_not_done_even_if_it_was_before(house: House) -> None:
    set_up(house, step(house, "a"))
    with pytest.raises(SetupError):
        set_up(house, step(house, "b", fails=True))
    set_up(house, step(house, "a"))
    assert runs(house) == "aba"


def test_a_step_that_is_killed_is_done_again(house: House) -> None:
    (house.venv / "made").touch()
    killed = "os.kill(os.getpid(), 9)"
    child = in_child(
        house, f"set_up(house, lambda: [Step('only', 'k', '', lambda: {killed}, lambda: True)])"
    )
    assert child.wait() == -signal.SIGKILL
    assert not bootstrap.is_done(house, step(house))
    set_up(house, step(house))
    assert runs(house) == "k"


def test_a_stamp_that_is_not_text_counts_as_none(house: House) -> None:
    set_up(house, step(house))
    house.stamp("only").write_bytes(b"\xff")
    assert not bootstrap.is_done(house, step(house))


def test_two_at_once_set_up_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, started = threading.Event(), threading.Event()
    plain = step(house)

    def heard(line: str) -> None:
        if "waiting" in line:
            waiting.set()

    monkeypatch.setattr(bootstrap, "say", heard)

    def slow() -> None:
        started.set()
        assert waiting.wait(60)
        plain.run()

    first = Step("only", "k", "", slow, plain.is_present)
    one = threading.Thread(target=set_up, args=(house, first))
    one.start()
    assert started.wait(60)
    set_up(house, plain)
    one.join()
    assert runs(house) == "k"


def test_the_command_keeps_the_environment_from_changing(house: House, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    become = "os.execvp('cat', ['cat', str(house.root / 'gate')])"
    child = in_child(house, f"set_up(house, lambda: [])\n{become}")
    with (tmp_path / "gate").open("w"):  # opens when the child, now another program, reads
        assert can_lock(house, fcntl.LOCK_SH)
        assert not can_lock(house, fcntl.LOCK_EX)
    assert child.wait() == 0
    assert can_lock(house, fcntl.LOCK_EX)


def test_children_of_a_killed_set_up_still_hold_the_lock(house: House, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    run = "lambda: call(['cat', house.root / 'gate'])"
    child = in_child(house, f"set_up(house, lambda: [Step('only', 'k', '', {run}, lambda: True)])")
    with (tmp_path / "gate").open("w"):
        child.kill()
        child.wait()
        assert not can_lock(house, fcntl.LOCK_SH)
    with (house.root / ".venv.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # comes when the orphan has ended


def test_a_command_that_fails_shows_what_it_printed() -> None:
    with pytest.raises(SetupError, match=r"(?s)no room left.*mend the cause"):
        bootstrap.call(["sh", "-c", "echo no room left >&2; exit 3"])


def test_a_file_that_comes_or_goes_changes_the_list(house: House) -> None:
    mapped = '[tool.setuptools.package-dir]\n"holdfast.a" = "a"\n"holdfast.a.b" = "a/b"\n'
    (house.root / "pyproject.toml").write_text(mapped)
    inner = house.root / "a" / "b"
    inner.mkdir(parents=True)
    for name in ("__init__.py", "py.typed", "notes.txt"):
        (inner / name).touch()
    assert bootstrap.package_files(house.root) == ["a/b/__init__.py", "a/b/py.typed"]
    (house.root / "a" / "new.py").touch()
    assert "a/new.py" in bootstrap.package_files(house.root)


def test_a_key_knows_where_one_part_ends() -> None:
    assert bootstrap.digest([b"ab", b"c"]) != bootstrap.digest([b"a", b"bc"])


LOCK = """\
# made by make lock
pip==26.3 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via holdfast (pyproject.toml)
pip-tools==1.0 \\
    --hash=sha256:cc
"""


def test_an_entry_of_the_lock_comes_with_its_hashes() -> None:
    expected = "pip==26.3 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
    assert bootstrap.locked(LOCK, ["pip"]) == expected


def test_an_entry_that_the_lock_lacks_is_named() -> None:
    with pytest.raises(SetupError, match=r"pins no setuptools.*make lock"):
        bootstrap.locked(LOCK, ["pip", "setuptools"])


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_412"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("Unable to locate a Java Runtime", 0),
    ],
)
def test_the_version_of_a_java(text: str, major: int) -> None:
    assert bootstrap.java_major(text) == major


def java(home: Path, version: str) -> None:
    program(home / "bin" / "java", f"echo 'openjdk version \"{version}\"' >&2")


def test_which_java_serves(tmp_path: Path) -> None:
    old, new, odd = tmp_path / "old", tmp_path / "new", tmp_path / "odd"
    java(old, "11.0.2")
    java(new, "17.0.1")
    program(odd / "bin" / "java", "exit 1")

    def chosen(home: Path | None, path: Path) -> dict[str, str] | None:
        home_set = {"JAVA_HOME": str(home)} if home else {}
        return bootstrap.java_of_machine({"PATH": f"{path}/bin:/bin", **home_set} | home_set)

    assert chosen(new, old) == {}
    assert chosen(None, new) == {"JAVA_HOME": ""}
    assert chosen(old, new) == {"JAVA_HOME": ""}
    assert chosen(tmp_path / "missing", new) == {"JAVA_HOME": ""}
    assert chosen(None, old) is None
    assert chosen(None, odd) is None


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["--add-modules=jdk.incubator.vector"], []),
        (["--add-modules", "jdk.incubator.vector"], []),
        (["-Xmx1g", "--add-modules=jdk.incubator.vector", "Main"], ["-Xmx1g", "Main"]),
        (["--add-modules=a.b,jdk.incubator.vector"], ["--add-modules=a.b"]),
        (["--add-modules=jdk.incubator.vector,a.b,c"], ["--add-modules=a.b,c"]),
        (["--add-modules", "a,jdk.incubator.vector,b"], ["--add-modules=a,b"]),
        (["--add-modules", "jdk.incubator.vectors"], ["--add-modules=jdk.incubator.vectors"]),
        (["--add-modules"], ["--add-modules"]),
        (["-cp", "a b:*", "", "it's $HOME"], ["-cp", "a b:*", "", "it's $HOME"]),
        ([], []),
    ],
)
def test_the_wrapper_drops_the_module_and_keeps_the_rest(
    tmp_path: Path, given: list[str], passed: list[str]
) -> None:
    real = program(tmp_path / "the jdk" / "java", 'for each; do printf "%s\\0" "$each"; done')
    bootstrap.write_java_wrapper(tmp_path / "home", real)
    wrapper = tmp_path / "home" / "bin" / "java"
    ended = subprocess.run([wrapper, *given], capture_output=True, text=True, check=True)
    assert ended.stdout.split("\0")[:-1] == passed


def test_the_command_finds_the_environment_first(house: House) -> None:
    environ = bootstrap.environment(house, {"PATH": "/bin", "X": "1"}, {"JAVA_HOME": "/j"})
    assert environ["PATH"] == f"{house.venv}/bin:/bin"
    assert environ["X"] == "1"
    assert environ["JAVA_HOME"] == "/j"


def test_inside_the_environment_a_command_runs_at_once() -> None:
    environ = {**os.environ, bootstrap.INSIDE: str(TOOLS.parent)}
    words = [sys.executable, str(TOOLS / "bootstrap.py")]
    ended = subprocess.run(
        [*words, "echo", "done"], env=environ, capture_output=True, text=True, check=True
    )
    assert (ended.stdout, ended.stderr) == ("done\n", "")
    missing = subprocess.run(
        [*words, "no-such-tool"], env=environ, capture_output=True, text=True, check=False
    )
    assert missing.returncode == 127
    assert "cannot run no-such-tool" in missing.stderr
