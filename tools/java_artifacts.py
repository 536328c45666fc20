"""Jars for tests, as a lock file lists them, in a cache outside of the tree.

    python tools/java_artifacts.py tests/support/servers/hdfs-jars.lock

Downloads what is missing by the Ivy that comes with Spark, from where it looks by itself, or where
the settings file looks that HOLDFAST_IVY_SETTINGS names. A line of a lock file is
`organisation:name:revision sha256:digest`. The folder that is made bears a digest of the list in
its name, appears whole or not at all, and is made once, also by concurrent calls.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from bootstrap import House, java_of_machine
from holdfast.storage import SystemClock

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = "HOLDFAST_IVY_SETTINGS"
_LINE = re.compile(r"([\w.-]+):([\w.-]+):([\w.-]+) sha256:([0-9a-f]{64})")
_TRIES = 4
_PAUSE_S = 5
_OUTPUT_CHARACTERS = 2000
# The files' digests are in our list, so neither descriptions nor checksums need to be asked for.
_IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false" checksums=""/></resolvers>
</ivysettings>
"""


class ArtifactsError(Exception):
    """The jars cannot be had; the message says what to do."""


@dataclass(frozen=True)
class Jar:
    """One file: whose it is, which revision, and its digest."""

    organisation: str
    name: str
    revision: str
    sha256: str

    @property
    def file(self) -> str:
        """What it is called in the folder."""
        return f"{self.name}-{self.revision}.jar"


def listed(text: str) -> list[Jar]:
    """The jars of a lock file, whose comments begin with `#`."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = [_LINE.fullmatch(line) for line in lines]
    wrong = [line for line, match in zip(lines, found, strict=True) if match is None]
    if wrong:
        raise ArtifactsError(f"not a line of a list of jars: {wrong[0]!r}")
    return [Jar(*match.groups()) for match in found if match]


def java() -> str:
    """The program, found as `make` finds it: this machine's if it is new enough, else our own."""
    mine = java_of_machine(os.environ)
    if mine == {}:
        return os.path.join(os.environ["JAVA_HOME"], "bin", "java")
    own = House(ROOT).java_home / "bin" / "java"
    found = shutil.which("java") if mine else str(own) if own.exists() else None
    if found is None:
        raise ArtifactsError("no Java 17 or newer: run `make setup`, which installs one")
    return found


def cache() -> Path:
    """The user's folder for what can be downloaded again."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(home) if os.path.isabs(home) else Path.home() / ".cache"
    return base / "holdfast" / "jars"


def jars(lock: Path) -> Path:
    """The folder with the jars of a lock file, after downloading what is missing.

    Raises:
        ArtifactsError: they cannot be had.
    """
    text = lock.read_text("utf-8")
    wanted = listed(text)
    name = f"{lock.stem}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    folder = cache() / name
    if folder.is_dir():  # it appears whole
        return folder
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=cache()) as fresh:
                found = Path(fresh) / "jars"
                download(wanted, found)
                found.replace(folder)
    return folder


def download(wanted: list[Jar], folder: Path, *, tries: int = _TRIES) -> None:
    """Have Ivy fetch each jar, again where it failed, and look at what came."""
    print(f"holdfast: downloading {len(wanted)} jars, once for this user", file=sys.stderr)
    output = ""
    for turn in range(tries):
        SystemClock().sleep_s(_PAUSE_S * turn)
        output = run_ivy(wanted, folder)
        if not missing(wanted, folder):
            break
    if left := missing(wanted, folder):
        raise ArtifactsError(
            f"{len(left)} of {len(wanted)} jars for tests cannot be downloaded, {left[0].file} "
            "for one; if this machine has a mirror, name a settings file of Ivy in "
            f"{SETTINGS}. Ivy says:\n{output[-_OUTPUT_CHARACTERS:]}"
        )
    for jar in wanted:
        digest = hashlib.sha256((folder / jar.file).read_bytes()).hexdigest()
        if digest != jar.sha256:
            raise ArtifactsError(
                f"the jar {jar.file} that was downloaded is not the one in the list: "
                f"expected sha256 {jar.sha256}, found {digest}; remove {ivy_cache()}, try again"
            )


def missing(wanted: list[Jar], folder: Path) -> list[Jar]:
    """Those that are not in the folder."""
    return [jar for jar in wanted if not (folder / jar.file).is_file()]


def ivy_cache() -> Path:
    """Where Ivy keeps what it has, also of tries that failed."""
    return cache() / "ivy"


def run_ivy(wanted: list[Jar], folder: Path) -> str:
    """Have Ivy fetch what it can; what it printed."""
    folder.mkdir(exist_ok=True)
    request = folder.parent / "ivy.xml"
    request.write_text(ivy_request(wanted), "utf-8")
    settings = Path(os.environ.get(SETTINGS, "") or folder.parent / "ivysettings.xml")
    if SETTINGS not in os.environ:
        settings.write_text(_IVY_SETTINGS, "utf-8")
    options = {
        "-settings": settings,
        "-cache": ivy_cache(),
        "-ivy": request,
        "-retrieve": f"{folder}/[artifact]-[revision].[ext]",
    }
    words = [str(word) for option in options.items() for word in option]
    ended = subprocess.run(
        [java(), "-jar", str(ivy_jar()), *words], capture_output=True, text=True, check=False
    )
    return ended.stdout + ended.stderr


def ivy_jar() -> Path:
    """The one that comes with Spark."""
    found = find_spec("pyspark")
    places = found.submodule_search_locations if found else None
    for place in places or []:
        for path in sorted(Path(place, "jars").glob("ivy-*.jar")):
            return path
    raise ArtifactsError("no Ivy among the jars of pyspark: run `make setup`")


def ivy_request(wanted: list[Jar]) -> str:
    """What Ivy is to fetch: just these files, and nothing that they depend on."""
    lines = [
        f"<dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.name)} "
        f'rev={quoteattr(jar.revision)} transitive="false" conf="default->*">'
        f'<artifact name={quoteattr(jar.name)} type="jar" ext="jar"/></dependency>'
        for jar in wanted
    ]
    head = '<info organisation="holdfast" module="jars"/>'
    confs = '<configurations><conf name="default"/></configurations>'
    body = f"<dependencies>{''.join(lines)}</dependencies>"
    return f'<ivy-module version="2.0">{head}{confs}{body}</ivy-module>'


def main(locks: list[str]) -> int:
    """Print the folder of each lock file's jars."""
    try:
        for lock in locks:
            print(jars(Path(lock)))
    except ArtifactsError as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
