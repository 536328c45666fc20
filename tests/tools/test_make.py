"""The commands that CONTRIBUTING.md names are there, and say what is wrong if no Python serves."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_lists_every_target() -> None:
    targets = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    shown = re.findall(r"^  make (\w+)\t", make("help").stdout, flags=re.MULTILINE)
    assert shown == targets[0].split()


def test_contributing_names_every_target() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    targets = "setup demo tour test soak check bench lock pyfiles clean"
    for target in targets.split():
        assert f"`make {target}`" in guide


def test_without_a_python_that_serves_the_error_says_so() -> None:
    ended = make("setup", "PYTHON=", "CANDIDATES=no-such-python")
    assert ended.returncode != 0
    assert "needs Python 3.11 or newer" in ended.stderr
    assert "no-such-python" in ended.stderr
