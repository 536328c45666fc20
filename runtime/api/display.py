"""Formats numbers and tables for people: in terminals, notebooks and the output of commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import chain

__all__ = ["bytes_for_people", "duration_for_people", "html_table", "moment", "text_table"]

_STEP = 1024
_STYLE = "text-align: left; white-space: pre-wrap"


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


def duration_for_people(milliseconds: int) -> str:
    """Such as `350 ms` or `1.2 s`."""
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def moment(milliseconds: int) -> str:
    """A moment since the epoch, in UTC."""
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def text_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a terminal: each column as wide as its widest cell. Control characters show."""
    lines = [list(columns), *([_printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (map(str.ljust, line, widths) for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in padded)


def _printable(cell: str) -> str:
    """The text without characters that move the cursor or break the line."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in cell)


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a notebook. All cells are text: HTML in them is escaped."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = [
        ["<tr>", *(f'<td style="{_STYLE}">{escape(cell)}</td>' for cell in row), "</tr>"]
        for row in rows
    ]
    caption = f'<caption style="{_STYLE}">{escape(title)}</caption>'
    header = f"<thead><tr>{head}</tr></thead>" if columns else ""
    lines = "".join(chain.from_iterable(body))
    return f"<table>{caption}{header}<tbody>{lines}</tbody></table>"
