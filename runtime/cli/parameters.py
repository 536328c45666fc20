"""Arguments and options of commands: how one is declared, and those that several commands have."""

from __future__ import annotations

from typing import Annotated, Any

import typer

__all__ = [
    "ABOUT_SNAPSHOTS",
    "FormatOption",
    "JobArgument",
    "JsonOption",
    "PathArgument",
    "StorageOptions",
    "argument",
    "option",
]


def argument(metavar: str, about: str) -> Any:
    """An argument of a command; `about` is its help."""
    return typer.Argument(metavar=metavar, help=about, show_default=False)


def option(*flags: str, metavar: str, about: str, least: int | None = None) -> Any:
    """An option with a value. `about` says, too, what holds without it."""
    return typer.Option(*flags, metavar=metavar, help=about, min=least, show_default=False)


ABOUT_SNAPSHOTS = (
    "The folder of a savepoint, or of a checkpoint: a path, or a URL such as "
    "`s3://bucket/savepoints/savepoint-7c41a9-0f3a2b9c1d5e` or "
    "`hdfs://nn/checkpoints/orders/chk-00000000000000000042`."
)
PathArgument = Annotated[str, argument("PATH", ABOUT_SNAPSHOTS)]
JobArgument = Annotated[
    str,
    argument(
        "JOB",
        "The name of a running job, or its run id, or the first four or more characters of that: "
        "`holdfast list` shows both.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write one JSON document and no table.")]
FormatOption = Annotated[
    str | None,
    option(
        "--format",
        metavar="FORMAT",
        about="The format of the savepoint: `canonical`, which any tool and any backend reads, and "
        "which it has by default, or `native`, as the job's backend writes it for checkpoints.",
    ),
]
StorageOptions = Annotated[
    list[str] | None,
    option(
        "-D",
        metavar="KEY=VALUE",
        about="An option of the storage, such as `-Dendpoint=http://host:9000`; repeatable. Other "
        "users can see it in the list of processes: pass keys and passwords by the environment.",
    ),
]
