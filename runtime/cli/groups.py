"""Command groups with a default command."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from holdfast.storage import NotFound

__all__ = ["ListsByDefault", "TakesByDefault"]

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Wrong arguments of any kind. Typer has its own copy of click, and does not export this class."""
_WORD = "holdfast.word"
"""Key of the word before which a call omitted its command."""


class _WithDefault(TyperGroup):
    default: ClassVar[str]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            ctx.meta[_WORD] = args[0]
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _UsageError:
            word, hint = self._word(ctx)
            if hint:  # such as `lst PATH`, which would be one argument too many for `list`
                ctx.fail(f"{word!r} is no command of `{ctx.command_path}`. {hint.rstrip()}")
            raise
        except NotFound as error:
            word, hint = self._word(ctx)
            if not word.replace("-", "").isalpha():  # no command could have this name
                raise
            commands = ", ".join(sorted(self.commands))
            raise error.replaced(
                what=f"{error.what}, and {word!r} is no command of `{ctx.command_path}`",
                expected=error.expected or f"a job or place, or one of {commands}",
                fix=f"{hint}{error.fix}",
            ) from error

    def _word(self, ctx: Any) -> tuple[str, str]:
        """The word in the place of a command, and a suggestion of another one."""
        word = ctx.meta.get(_WORD, "")
        near = get_close_matches(word, self.commands, n=1, cutoff=0.7)
        return word, f"Did you mean `{ctx.command_path} {near[0]}`? " if near else ""


class ListsByDefault(_WithDefault):
    """`holdfast checkpoints orders` is `holdfast checkpoints list orders`."""

    default = "list"


class TakesByDefault(_WithDefault):
    """`holdfast savepoint orders` is `holdfast savepoint take orders`."""

    default = "take"
