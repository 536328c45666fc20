"""The log of a streaming query of Spark: its files are the position of every source it reads.

They hold whatever a source counts by: offsets of Kafka, names of files. Spark writes `offsets/n`
before batch n runs and `commits/n` after it; files that a source keeps for itself are below
`sources`. A new query that is given copies of these files continues just after batch n: with
`commits/n` by batch n + 1, without it by batch n once more. What a source has resolved before its
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
    """The files by which a query continues just after a batch, by their paths within its log.

    None: before its first batch, planned as it has been, if it has been.
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
    """By source of files: the number of the last entry of its log that a batch contains."""
    version, *lines = offsets.read_text("utf-8").splitlines() if offsets.exists() else [""]
    if version != "v1":  # an unknown layout: no entry is left out
        return {}
    found = {}
    for source, line in enumerate(lines[1:]):
        try:
            found[str(source)] = int(json.loads(line)["logOffset"])
        except (ValueError, TypeError, KeyError):
            continue  # a source of another kind, or one without rows so far
    return found


def _remembered(folder: Path, latest: int | None) -> list[str]:
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith(".tmp")
    )
    numbers = {name: _NUMBERED.fullmatch(name) for name in names}
    if latest is not None:
        # Spark plans the next batch while this one runs. It would put its files into one batch with
        # those that follow, and may then read them in another order.
        names = [name for name in names if not _is_after(numbers[name], latest)]
    found_here = [numbers[name] for name in names]
    compactions = sorted(int(found[1]) for found in found_here if found and found[2])
    if len(compactions) < _KEPT_COMPACTIONS:
        return names
    # What an older compaction has merged, Spark is about to delete.
    oldest = compactions[-_KEPT_COMPACTIONS]
    return [name for name in names if not _is_before(numbers[name], oldest)]


def _is_after(found: re.Match[str] | None, number: int) -> bool:
    return found is not None and int(found[1]) > number


def _is_before(found: re.Match[str] | None, number: int) -> bool:
    return found is not None and int(found[1]) < number


def read_files(location: Path, names: list[str], *, where: str) -> dict[str, bytes]:
    """The bytes of files of a log, without those below `sources` that Spark has deleted meanwhile.

    Raises:
        Corrupt: a file is gone that every position needs.
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
    """The files of a log as those of another query, with this id, a UUID.

    Spark identifies a query by the id in its log, and a query that starts stops another one of the
    same id. Two jobs may continue from one position, or from copies of it.

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
