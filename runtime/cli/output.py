"""Output of commands: results to stdout, as tables or JSON, and all else to stderr."""

from __future__ import annotations

import math
import os
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress, ProgressColumn
from rich.table import Table
from rich.text import Text

from holdfast.runtime.protocol.error_data import data_of_error
from holdfast.storage import HoldfastError

__all__ = [
    "progress_bar",
    "say",
    "show",
    "show_error",
    "show_json",
    "table",
]

_WIDE = 10_000
"""Width where there is no terminal: programs that read tables want one line for each row."""


def say(line: str) -> None:
    """Print a line that is no result, to stderr."""
    Console(stderr=True, soft_wrap=True).print(Text(line))


def progress_bar(*columns: ProgressColumn) -> Progress:
    """A progress bar on a terminal, which goes at its end; elsewhere nothing."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def show(what: Table | str) -> None:
    """Print a result as text; a table has the width of the terminal, if there is one."""
    console = Console(soft_wrap=isinstance(what, str))
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDE
    console.print(Text(what) if isinstance(what, str) else what)


def show_json(document: Any) -> None:
    """Print a result as one JSON document, without Rich, which would replace emoji names.

    Numbers that JSON does not have become the texts "NaN", "Infinity" and "-Infinity".
    """
    typer.echo(msgspec.json.format(msgspec.json.encode(_as_json_has_it(document)), indent=2))


def show_error(error: HoldfastError, *, as_json: bool) -> None:
    """Print why a command has failed: as text, and with `as_json` as a document, too."""
    say(f"error: {error}")
    if as_json:
        show_json({"error": msgspec.to_builtins(data_of_error(error))})


def _as_json_has_it(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _as_json_has_it(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json_has_it(each) for each in value]
    return value


class _Plain(Table):
    """Cells of text, without markup."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        plain = (Text(cell) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*plain, **options)


def table(title: str, *columns: str) -> Table:
    """An empty table; columns whose names begin with `#` hold numbers.

    Title and cells are shown as they are: names given by users may look like markup.
    """
    made = _Plain(title=Text(title, style="bold") if title else None, title_justify="left")
    for column in columns:
        made.add_column(
            column.removeprefix("#"),
            justify="right" if column.startswith("#") else "left",
            overflow="fold",
        )
    return made
