"""What commands say, for people and for programs: results to the output, the rest beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["INTERRUPTED", "bytes_for_people", "moment", "say", "show", "show_json", "table"]

INTERRUPTED = 130
"""The exit code of who was stopped by Ctrl-C, as shells have it."""
_STEP = 1024


def say(line: str) -> None:
    """A line that is no result: to the terminal, whatever the output goes to."""
    Console(stderr=True, soft_wrap=True).print(Text(line))


def show(what: Table | str) -> None:
    """A result, for people."""
    Console(soft_wrap=isinstance(what, str)).print(Text(what) if isinstance(what, str) else what)


def show_json(document: Any) -> None:
    """A result, for programs: one JSON document."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    Console(soft_wrap=True, highlight=False, markup=False).print(text)


def table(title: str, *columns: str) -> Table:
    """An empty table; columns whose names begin with `#` hold numbers."""
    made = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        made.add_column(
            column.removeprefix("#"),
            justify="right" if column.startswith("#") else "left",
            overflow="fold",
        )
    return made


def bytes_for_people(size_bytes: int) -> str:
    """Such as `3.4 MiB`; the exact number below one KiB."""
    if size_bytes < _STEP:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= _STEP
        if size < _STEP or unit == "TiB":
            break
    return f"{size:.1f} {unit}"


def moment(milliseconds: int) -> str:
    """A moment since the epoch, in UTC."""
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}"
