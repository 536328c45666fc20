"""The log of a streaming query of Spark: its files are the position of every source it reads.

Spark writes `offsets/n` before batch n runs and `commits/n` after it; what a source must remember
is below `sources`. To put a query back to just after batch n is to give a new query copies of
these files. With `commits/n` it goes on with batch n + 1; without, it offers batch n once more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from holdfast.storage import Corrupt

__all__ = ["position_files", "read_files", "write_files"]

_NUMBERED = re.compile(r"(\d+)(\.compact)?")
_KEPT_COMPACTIONS = 2


def position_files(location: Path, batch_id: int) -> list[str]:
    """The files that put a query to just after a batch, by their paths within its log.

    Of what a source remembers in numbered files, those are left out that a compaction before the
    last one has taken up: Spark is about to delete them.
    """
    numbers = [number for number in (batch_id - 1, batch_id) if number >= 0]
    wanted = ["metadata", *(f"offsets/{number}" for number in numbers)]
    wanted += [
        f"commits/{number}" for number in numbers if (location / "commits" / str(number)).exists()
    ]
    for folder in sorted((location / "sources").glob("*")):
        wanted += [f"sources/{folder.name}/{name}" for name in _remembered(folder)]
    return wanted


def _remembered(folder: Path) -> list[str]:
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith(".tmp")
    )
    numbers = {name: _NUMBERED.fullmatch(name) for name in names}
    compactions = sorted(int(found[1]) for found in numbers.values() if found and found[2])
    if len(compactions) < _KEPT_COMPACTIONS:
        return names
    oldest = compactions[-_KEPT_COMPACTIONS]
    return [name for name, found in numbers.items() if found is None or int(found[1]) >= oldest]


def read_files(location: Path, names: list[str], *, where: str) -> dict[str, bytes]:
    """The bytes of files of a log. One that Spark has deleted meanwhile is left out.

    Raises:
        Corrupt: a file is gone that no position can do without.
    """
    found: dict[str, bytes] = {}
    for name in names:
        try:
            found[name] = (location / name).read_bytes()
        except FileNotFoundError as error:
            if name.startswith("sources/"):
                continue
            raise Corrupt(
                "a file of a query's log is missing",
                where=where,
                expected=str(location / name),
                fix="Nothing but Spark may change the log of a running query",
            ) from error
    return found


def write_files(location: Path, files: Mapping[str, bytes]) -> None:
    """Make a log of these files, in a folder that is empty or not there."""
    for name, data in files.items():
        path = location / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
