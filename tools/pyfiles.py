"""Build the zip for `spark-submit --py-files`: dist/holdfast-spark-VERSION-pyfiles.zip.

A wheel on `sys.path` does not import as a namespace package before Python 3.14, because the import
system asks the archive for entries of its folders and a wheel has none. This zip has them. It also
carries the entry points, so that storages and backends are found by name on the executors. The
third-party dependencies are not in it.
"""

from __future__ import annotations

import sys
import tomllib
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The oldest time a zip can hold, for every entry: the same sources give the same bytes."""


def module_files(root: Path, folders: dict[str, str]) -> dict[str, bytes]:
    """What each package imports from, by its name in the archive."""
    return {
        f"{package.replace('.', '/')}/{path.name}": path.read_bytes()
        for package, folder in folders.items()
        for path in (root / folder).iterdir()
        if path.suffix == ".py" or path.name == "py.typed"
    }


def entry_points(groups: dict[str, dict[str, str]]) -> str:
    """The entry points, as an installed distribution keeps them."""
    sections = (
        "\n".join([f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())])
        for group, entries in groups.items()
    )
    return "\n\n".join(sections) + "\n"


def archive_files(root: Path, pyproject: dict[str, Any]) -> dict[str, bytes]:
    """Every file of the archive by name."""
    project = pyproject["project"]
    name, version = project["name"], project["version"]
    info = f"{name.replace('-', '_')}-{version}.dist-info"  # as pip spells it
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    return {
        **module_files(root, pyproject["tool"]["setuptools"]["package-dir"]),
        f"{info}/METADATA": metadata.encode(),
        f"{info}/entry_points.txt": entry_points(project["entry-points"]).encode(),
    }


def write_archive(target: Path, files: dict[str, bytes]) -> None:
    """Write the files and an entry for every folder above them, in order of name."""
    folders = {f"{parent}/" for name in files for parent in list(PurePosixPath(name).parents)[:-1]}
    entries = dict.fromkeys(folders, b"") | files
    target.parent.mkdir(parents=True, exist_ok=True)
    whole = target.with_suffix(".new")
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(entries):
            archive.writestr(zipfile.ZipInfo(name, EPOCH), entries[name], zipfile.ZIP_DEFLATED)
    whole.replace(target)


def build(root: Path, folder: Path) -> Path:
    """Build the archive of one checkout in a folder, and say where it is."""
    pyproject = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    target = (
        folder / f"{pyproject['project']['name']}-{pyproject['project']['version']}-pyfiles.zip"
    )
    write_archive(target, archive_files(root, pyproject))
    return target


def main() -> int:
    """Build it in dist/."""
    print(build(ROOT, ROOT / "dist").relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
