"""Groups of commands of which one need not be named."""

from __future__ import annotations

from typing import Any, ClassVar

from typer.core import TyperGroup

__all__ = ["ListsByDefault", "TakesByDefault"]


class _WithDefault(TyperGroup):
    default: ClassVar[str]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [self.default, *args]
        return super().parse_args(ctx, args)


class ListsByDefault(_WithDefault):
    """`holdfast checkpoints orders` is `holdfast checkpoints list orders`."""

    default = "list"


class TakesByDefault(_WithDefault):
    """`holdfast savepoint orders` is `holdfast savepoint take orders`."""

    default = "take"
