"""Lines of `holdfast` in documents, read by the command's own parser and not run.

A synopsis is read too: `[…]` may be there, `A|B` is one of them, `…` says that more may follow.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import product
from typing import Any

import typer
from typer.main import get_command

from holdfast.runtime.cli.application import application
from support.documents.pages import Page, Piece

# The base of all refusals: typer has a click of its own, or the one that is installed.
_Refused: Any = typer.BadParameter.mro()[2]
_COMMAND = "holdfast"
_SHELLS = ("", "sh", "bash", "console")
_NUMBER = "1"
"""What stands for the `N` of a synopsis."""


def wrong_commands(page: Page) -> list[str]:
    """Lines that the command would not take."""
    return [
        page.problem(piece.line, f"{piece.text}: {problem}")
        for piece in _lines(page)
        for words in _readings(piece.text)
        if words[:1] == [_COMMAND] and (problem := _refusal(words[1:]))
    ]


def _lines(page: Page) -> Iterator[Piece]:
    for block in page.blocks:
        if block.language in _SHELLS:
            joined = block.text.replace("\\\n", "  ")
            for offset, line in enumerate(joined.splitlines()):
                for part in re.split(r" && | \|\| |; ", line.removeprefix("$ ")):
                    yield Piece(block.line + offset, part.strip())
    yield from page.spans


def _readings(line: str) -> Iterator[list[str]]:
    """The command lines that a line of a document stands for."""
    if not line.startswith(f"{_COMMAND} "):
        return
    # What is behind two spaces tells what the command does, and what is behind … may be anything.
    written = re.split(r"\s{2,}|\s#", line)[0]
    plain = re.sub(r"[\[\]…]|\.\.\.", " ", written)
    try:
        words = shlex.split(plain)
    except ValueError:
        words = plain.split()
    for reading in product(*(_alternatives(word) for word in words)):
        yield [_NUMBER if word == "N" else word for word in reading]


def _alternatives(word: str) -> list[str]:
    return word.split("|") if re.fullmatch(r"[\w-]+(\|[\w-]+)+", word) else [word]


def _refusal(words: list[str]) -> str:
    """What the command says of these arguments; nothing if it only lacks some, as prose does."""
    command: Any = get_command(application)
    context = None
    name = _COMMAND
    try:
        while words or not hasattr(command, "resolve_command"):
            context = command.make_context(name, list(words), parent=context)
            if not hasattr(command, "resolve_command"):
                return ""
            rest = [*context._protected_args, *context.args]
            name, command, words = command.resolve_command(context, rest)
    except typer.Exit:  # such as --help
        return ""
    except _Refused as error:
        said = error.format_message()
        lacks = ("Missing", "requires an argument", "requires 2 arguments")
        return "" if any(each in said for each in lacks) else said
    return ""
