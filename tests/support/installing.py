"""Distributions that register plug-ins, put on the path as pip would."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

__all__ = ["install_entries", "install_project"]


def install_entries(folder: Path, distribution: str, group: str, entries: Mapping[str, str]) -> str:
    """Make a distribution below the folder; answers what must be on the path."""
    info = folder / distribution / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return str(info.parent)


def install_project(folder: Path, project: Path) -> str:
    """Install the one group of entry points that a project's pyproject.toml has."""
    described = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    ((group, entries),) = described["entry-points"].items()
    return install_entries(folder, described["name"], group, entries)
