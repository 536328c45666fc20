"""`holdfast savepoint convert`: any snapshot into a savepoint of another form or backend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn

from holdfast import savepoints
from holdfast.runtime.cli.output import progress_bar, say, show, show_json, table
from holdfast.runtime.cli.parameters import (
    JsonOption,
    PathArgument,
    StorageOptions,
    argument,
    option,
)
from holdfast.runtime.cli.storages import opener
from holdfast.savepoints import conversion
from holdfast.storage import HoldfastError, Invalid, SavepointFolder, Unavailable
from holdfast.storage.options.checks import check_choice
from holdfast.storage.registry import whole_url

__all__ = ["convert_snapshot"]

_FORMATS = ("canonical", "native")
_Destination = Annotated[
    str,
    argument("DST", "The folder that becomes the savepoint: a path or a URL at which nothing is."),
]
_Backend = Annotated[
    str | None,
    option(
        "--backend",
        metavar="NAME",
        about="For which backend: a name that `holdfast backends` shows.",
    ),
]
_Format = Annotated[
    str | None,
    option(
        "--format",
        metavar="FORMAT",
        about="`native`, as the backend writes it itself, or `canonical`, which any backend and "
        "any tool reads. Without it: native if a backend is named, else canonical.",
    ),
]
_MaxParallelism = Annotated[
    int | None,
    option("--max-parallelism", metavar="N", about="Another number of key groups.", least=1),
]
_Parallelism = Annotated[
    int | None,
    option(
        "--parallelism",
        metavar="N",
        about="For how many slots it is laid out; any number can restore it.",
        least=1,
    ),
]
_Operators = Annotated[
    list[str] | None,
    option(
        "--operator",
        metavar="UID",
        about="Only this operator; repeatable. Positions of sources are carried over in any case.",
    ),
]
_Workers = Annotated[
    int | None,
    option(
        "--workers",
        metavar="N",
        about="How many processes of this machine; by default as many as it has cores.",
        least=1,
    ),
]
_Spark = Annotated[
    str | None,
    option(
        "--spark",
        metavar="MASTER",
        about="Do it as a job of Spark at this master, such as `spark://host:7077`, with a task "
        "for each range of key groups.",
    ),
]
_Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="Delete what is done of a conversion to DST that is not complete, and begin anew.",
    ),
]
_TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Continue although another machine has noted that it converts to DST: it has ended.",
    ),
]


def convert_snapshot(  # noqa: PLR0913 - each is an option of the command
    source: PathArgument,
    destination: _Destination,
    *,
    backend: _Backend = None,
    form: _Format = None,
    max_parallelism: _MaxParallelism = None,
    parallelism: _Parallelism = None,
    operators: _Operators = None,
    workers: _Workers = None,
    spark: _Spark = None,
    fresh: _Fresh = False,
    take_over: _TakeOver = False,
    options: StorageOptions = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a checkpoint or savepoint of any backend into a savepoint of any other.

    The source is only read. What is written is read again, and its entries are compared with those
    of the source; only then the destination is a savepoint. If it is interrupted, or a disk is
    full, the same command continues.

    For example:

        holdfast savepoint convert s3://bucket/savepoints/savepoint-7c41a9-0f3a2b9c1d5e
        s3://bucket/savepoints/for-rocksdb --backend rocksdb

        holdfast savepoint convert SRC DST --format canonical --max-parallelism 1024

    Exit codes: 0 DST is a savepoint, also if it was one before by the same arguments; 1 it is not,
    and why; 2 wrong arguments; 130 stopped by Ctrl-C: run it again to go on.
    """
    made = _options(backend, form, max_parallelism, parallelism, tuple(operators or ()))
    if spark is not None and workers is not None:
        raise Invalid(
            "--workers is for processes of this machine, and --spark for those of Spark",
            expected="one of both",
            found=f"--workers {workers} --spark {spark}",
        )
    target = None if backend is None else conversion.usual_backend(backend)
    opens = opener(options, source, destination)
    snapshot = savepoints.find_snapshot(source, opens)
    folder = SavepointFolder(opens(whole_url(destination)), "")
    try:
        with _runner(spark, workers) as runner, _progress() as progress:
            converted = conversion.Conversion(
                source=snapshot,
                destination=folder,
                options=made,
                backend=target,
                runner=runner,
                progress=progress,
            ).run(fresh=fresh, take_over=take_over)
    except (KeyboardInterrupt, Unavailable) as error:
        say(_standing(folder))
        raise error from None
    left_out = sorted(set(snapshot.metadata.operators) - {each.uid for each in converted.operators})
    if left_out and not converted.was_done:
        say(f"left out, by --operator: {', '.join(map(repr, left_out))}")
    if as_json:
        show_json(_document(converted))
    else:
        _show(converted)


def _standing(folder: SavepointFolder) -> str:
    """What a stopped conversion left at the destination, and what to do."""
    try:
        found = conversion.destination_state(folder)
    except HoldfastError:
        return "it is not known what is at the destination; run the same command to continue"
    if found is conversion.DestinationState.COMPLETE:
        return (
            "there is a savepoint at the destination; run the same command to see whether it is "
            "this one, and to delete what may be left beside it"
        )
    if found is conversion.DestinationState.BEGUN:
        return "there is no savepoint at the destination yet; run the same command to continue"
    return "nothing was begun at the destination"


def _options(
    backend: str | None,
    form: str | None,
    max_parallelism: int | None,
    parallelism: int | None,
    operators: tuple[str, ...],
) -> conversion.ConversionOptions:
    if form is not None:
        check_choice(form, _FORMATS, name="--format")
    is_canonical = form == "canonical" or (form is None and backend is None)
    if not is_canonical and backend is None:
        raise Invalid(
            "a native savepoint needs a backend, and none is named",
            expected="--backend NAME with --format native",
            fix="`holdfast backends` shows those that there are",
        )
    return conversion.ConversionOptions(
        backend=backend,
        is_canonical=is_canonical,
        max_parallelism=max_parallelism,
        parallelism=parallelism,
        operators=tuple(dict.fromkeys(operators)),
    )


@contextmanager
def _runner(spark: str | None, workers: int | None) -> Iterator[conversion.Runner]:
    if spark is None:
        yield conversion.WorkerProcesses(workers or conversion.usual_workers())
        return
    # Imported only if used: it takes a second.
    from holdfast.runtime.spark.state_frames.conversion import spark_runner  # noqa: PLC0415

    with spark_runner(spark) as runner:
        yield runner


@contextmanager
def _progress() -> Iterator[conversion.Progress]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeElapsedColumn(),
    )
    with progress_bar(*columns) as bar:
        names = {
            conversion.PiecePhase.SPREAD: "finding key groups",
            conversion.PiecePhase.WRITE: "converting",
            conversion.PiecePhase.CHECK: "checking",
        }
        tasks: dict[conversion.PiecePhase, tuple[TaskID, int]] = {}

        def tell(phase: conversion.PiecePhase, done: int, pieces: int, rows: int) -> None:
            if phase not in tasks:
                number = bar.add_task(names[phase], total=pieces, rows=0)
                tasks[phase] = (number, 0)
            task, before = tasks[phase]
            tasks[phase] = (task, before + rows)
            bar.update(task, completed=done, rows=before + rows)

        yield tell


def _document(converted: conversion.Converted) -> dict[str, object]:
    return {
        "savepoint": converted.path,
        "was_done": converted.was_done,
        "resumed_pieces": converted.resumed,
        "operators": [
            {
                "uid": each.uid,
                "parallelism": each.parallelism,
                "max_parallelism": each.max_parallelism,
                "rows": dict(each.tables),
                "elements_without_keys": each.elements,
            }
            for each in converted.operators
        ],
    }


def _show(converted: conversion.Converted) -> None:
    if converted.was_done:
        show(f"this was converted before: {converted.path}")
        return
    lines = table("converted, and read again", "operator", "state", "#entries")
    for each in converted.operators:
        for name, rows in each.tables.items():
            lines.add_row(each.uid, name, f"{rows:,}")
        if each.elements:
            lines.add_row(each.uid, "(without keys)", f"{each.elements:,}")
    show(lines)
    show(f"a savepoint is complete: {converted.path}")
