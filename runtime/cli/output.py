"""What commands say, for people and for programs: results to the output, the rest beside it."""

from __future__ import annotations

import math
import os
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.runtime.protocol.error_data import tell_error, told_kinds
from holdfast.storage import HoldfastError

__all__ = [
    "say",
    "show",
    "show_error",
    "show_json",
    "table",
]

_WIDE = 10_000
"""Columns of what is no terminal: a program that reads tables wants each row in one line."""


def say(line: str) -> None:
    """A line that is no result: to the terminal, whatever the output goes to."""
    Console(stderr=True, soft_wrap=True).print(Text(line))


def show(what: Table | str) -> None:
    """A result, for people; a table is as wide as the terminal, or where there is none as it is."""
    console = Console(soft_wrap=isinstance(what, str))
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDE
    console.print(Text(what) if isinstance(what, str) else what)


def show_json(document: Any) -> None:
    """A result, for programs: one JSON document, as it is. Rich would put emojis into it.

    Numbers that JSON does not have are the texts "NaN", "Infinity" and "-Infinity".
    """
    typer.echo(msgspec.json.format(msgspec.json.encode(_as_json_has_it(document)), indent=2))


def show_error(error: HoldfastError, *, as_json: bool) -> None:
    """Why a command has failed: for people, and for programs that read documents, too."""
    say(f"error: {error}")
    if as_json:
        show_json({"error": msgspec.to_builtins(tell_error(error, told_kinds()))})


def _as_json_has_it(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _as_json_has_it(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json_has_it(each) for each in value]
    return value


class _Plain(Table):
    """Cells that are texts have no markup."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """As of any table."""
        plain = (Text(cell) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*plain, **options)


def table(title: str, *columns: str) -> Table:
    """An empty table; columns whose names begin with `#` hold numbers.

    Title and cells are shown as they are: a name of the user's may look like markup.
    """
    made = _Plain(title=Text(title, style="bold") if title else None, title_justify="left")
    for column in columns:
        made.add_column(
            column.removeprefix("#"),
            justify="right" if column.startswith("#") else "left",
            overflow="fold",
        )
    return made
