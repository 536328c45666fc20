"""The log of a streaming query of Spark: its files are the position of every source it reads.

Offsets of Kafka, names of files: whatever a source counts by is in there. Spark writes `offsets/n`
before batch n runs and `commits/n` after it; what a source must remember is below `sources`. To put
a query back to just after batch n is to give a new query copies of these files. With `commits/n` it
goes on with batch n + 1; without, it offers batch n once more. What a source has settled before its
first batch, such as where "latest" is, is below `sources` too, and in `offsets/0` once that batch
is planned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from holdfast.storage import Corrupt

__all__ = ["position_files", "read_files", "with_query_id", "write_files"]

_NUMBERED = re.compile(r"(\d+)(\.compact)?")
_KEPT_COMPACTIONS = 2


def position_files(location: Path, batch_id: int | None) -> list[str]:
    """The files that put a query to just after a batch, by their paths within its log.

    None: to before its first batch, which it then plans as it has been planned, if it has been.

    Of what a source remembers in numbered files, those are left out that a compaction before the
    last one has taken up: Spark is about to delete them. So are those that belong to a later batch,
    which Spark plans while this one runs: it would put them into one batch with those that follow,
    whose files it may then read in another order.
    """
    wanted: list[str] = []
    planned = batch_id
    if batch_id is not None:
        numbers = [number for number in (batch_id - 1, batch_id) if number >= 0]
        wanted = ["metadata", *(f"offsets/{number}" for number in numbers)]
        done = [number for number in numbers if (location / "commits" / str(number)).exists()]
        wanted += [f"commits/{number}" for number in done]
    elif (location / "metadata").exists():
        wanted = ["metadata"]
        if any(map(_NUMBERED.fullmatch, _names(location / "offsets"))):
            wanted, planned = ["metadata", "offsets/0"], 0
    latest = {} if planned is None else _latest_entries(location / "offsets" / str(planned))
    for folder in sorted((location / "sources").glob("*")):
        remembered = _remembered(folder, latest.get(folder.name))
        wanted += [f"sources/{folder.name}/{name}" for name in remembered]
    return wanted


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.exists() else []


def _latest_entries(offsets: Path) -> dict[str, int]:
    """The number of the last entry in the log of each source of files that a batch has taken up."""
    version, *lines = offsets.read_text("utf-8").splitlines() if offsets.exists() else [""]
    if version != "v1":  # another layout: go without
        return {}
    found = {}
    for source, line in enumerate(lines[1:]):
        try:
            found[str(source)] = int(json.loads(line)["logOffset"])
        except (ValueError, TypeError, KeyError):
            continue  # a source of another kind, which numbers nothing by batch, or is silent yet
    return found


def _remembered(folder: Path, latest: int | None) -> list[str]:
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith(".tmp")
    )
    numbers = {name: _NUMBERED.fullmatch(name) for name in names}
    if latest is not None:
        names = [name for name in names if not _is_after(numbers[name], latest)]
    found_here = [numbers[name] for name in names]
    compactions = sorted(int(found[1]) for found in found_here if found and found[2])
    if len(compactions) < _KEPT_COMPACTIONS:
        return names
    oldest = compactions[-_KEPT_COMPACTIONS]
    return [name for name in names if not _is_before(numbers[name], oldest)]


def _is_after(found: re.Match[str] | None, number: int) -> bool:
    return found is not None and int(found[1]) > number


def _is_before(found: re.Match[str] | None, number: int) -> bool:
    return found is not None and int(found[1]) < number


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


def with_query_id(files: Mapping[str, bytes], query_id: str) -> dict[str, bytes]:
    """The files of a log as those of another query: of this id, a UUID.

    Spark knows a query by the id in its log, and a query that starts stops the one that has the
    same id. Two jobs may go on from one position, or from copies of it.

    Raises:
        Corrupt: `metadata` is not what Spark writes.
    """
    written = files.get("metadata", b"{}")
    try:
        known = json.loads(written)
    except ValueError:
        known = None
    if not isinstance(known, dict):
        raise Corrupt(
            "the metadata of a query's log cannot be read",
            expected="a JSON object",
            found=repr(written[:100]),
        )
    return {**files, "metadata": json.dumps({**known, "id": query_id}).encode()}


def write_files(location: Path, files: Mapping[str, bytes]) -> None:
    """Make a log of these files, in a folder that is empty or not there."""
    for name, data in files.items():
        path = location / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
