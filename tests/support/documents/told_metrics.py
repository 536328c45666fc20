"""The names of docs/metrics.md, for tests that compare them with what is told."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


def documented(section: str) -> set[str]:
    """The names in the table of the one section whose heading ends so."""
    (found,) = (
        part
        for part in DOCUMENT.read_text("utf-8").split("\n## ")
        if part.partition("\n")[0].endswith(section)
    )
    return set(re.findall(r"^\| `(\w+)` \|", found, re.MULTILINE))
