"""Jars come once, whole, and as they are listed, by the real Ivy from a place in a folder."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

import java_artifacts
from java_artifacts import ArtifactsError, Jar, cache, download, jars, listed

LOCKS = sorted((Path(__file__).resolve().parents[1] / "support" / "servers").glob("*.lock"))
CONTENT = b"not really a jar"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
SETTINGS = """
<ivysettings><settings defaultResolver="here"/><resolvers><filesystem name="here">
<artifact pattern="{}/[organisation]/[module]-[revision].[ext]"/>
</filesystem></resolvers></ivysettings>"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place with the jar org.example:one:1.0, and an empty cache."""
    settings = tmp_path / "settings.xml"
    settings.write_text(SETTINGS.format(tmp_path / "place"))
    monkeypatch.setenv(java_artifacts.SETTINGS, str(settings))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "place" / "org.example"
    folder.mkdir(parents=True)
    (folder / "one-1.0.jar").write_bytes(CONTENT)
    return folder


def lock_of(tmp_path: Path, *lines: str) -> Path:
    lock = tmp_path / "some-jars.lock"
    lock.write_text("\n".join(["# what it is for", *lines]) + "\n")
    return lock


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_the_lists_in_the_tree_are_read(lock: Path) -> None:
    files = [jar.file for jar in listed(lock.read_text("utf-8"))]
    assert len(files) == len({*files}) > 10


def test_there_is_a_list_in_the_tree() -> None:
    assert LOCKS


@pytest.mark.parametrize(
    "line",
    ["a:b:1", f"a:b sha256:{DIGEST}", f"a:b:1 sha256:{DIGEST[1:]}", f"a:../b:1 sha256:{DIGEST}"],
)
def test_a_line_that_is_none_is_named(line: str) -> None:
    with pytest.raises(ArtifactsError, match="not a line of a list of jars"):
        listed(line)


def test_a_cache_that_is_no_whole_path_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert cache() == Path.home() / ".cache" / "holdfast" / "jars"


@pytest.mark.slow
def test_processes_that_ask_at_once_download_once(tmp_path: Path) -> None:
    lock = lock_of(tmp_path, f"org.example:one:1.0 sha256:{DIGEST}")
    command = [sys.executable, java_artifacts.__file__, str(lock)]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate() for process in both]
    (folder,) = {Path(output.strip()) for output, _ in said}
    assert [error.count("downloading") for _, error in said] in ([0, 1], [1, 0])
    assert folder.is_relative_to(tmp_path / "cache")
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [
        ("one-1.0.jar", CONTENT)
    ]
    assert jars(lock) == folder


@pytest.mark.slow
def test_a_jar_that_is_another_one_is_refused(tmp_path: Path, place: Path) -> None:
    (place / "one-1.0.jar").write_bytes(b"something else")
    lock = lock_of(tmp_path, f"org.example:one:1.0 sha256:{DIGEST}")
    with pytest.raises(ArtifactsError, match=r"one-1\.0\.jar .* is not the one in the list"):
        jars(lock)
    assert not [path for path in cache().iterdir() if path.name.endswith(("jars", DIGEST[:16]))]


@pytest.mark.slow
def test_missing_jars_are_named_with_advice(tmp_path: Path) -> None:
    wanted = [Jar("org.example", "one", "1.0", DIGEST), Jar("org.example", "two", "2.0", DIGEST)]
    with pytest.raises(ArtifactsError) as caught:
        download(wanted, tmp_path / "jars", tries=1)
    assert "2 of 2 jars for tests cannot be downloaded, " in str(caught.value)
    assert "org.example#two;2.0: not found" in str(caught.value)
    assert java_artifacts.SETTINGS in str(caught.value)
