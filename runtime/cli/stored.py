"""`holdfast savepoint inspect`, `show`, `diff` and `validate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from holdfast import savepoints
from holdfast.runtime.api.display import bytes_for_people, moment
from holdfast.runtime.cli.output import progress_bar, say, show, show_json, table
from holdfast.runtime.cli.parameters import (
    ABOUT_SNAPSHOTS,
    JsonOption,
    PathArgument,
    StorageOptions,
    argument,
    option,
)
from holdfast.runtime.cli.storages import opener

__all__ = ["diff_snapshots", "inspect_snapshot", "show_state", "validate_snapshot"]


def inspect_snapshot(
    path: PathArgument,
    *,
    options: StorageOptions = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Read no state, only what the snapshot says of itself: then it is not known how "
            "evenly rows lie, and not of all states how many there are.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what is in a checkpoint or savepoint: operators, states, types, entries, bytes, skew.

    Of any backend, with a changelog or without. SKEW is how many times the rows of the mean key
    group the fullest one has, and behind the stroke likewise of slots: 1.0 is even.

    For example:

        holdfast savepoint inspect s3://bucket/savepoints/savepoint-7c41a9-0f3a2b9c1d5e

        holdfast savepoint inspect PATH --json | jq '.operators[].states[] | {name, rows}'

    Exit codes: 0 done; 1 there is none, or it is damaged; 2 wrong arguments; 130 Ctrl-C.
    """
    snapshot = savepoints.find_snapshot(path, opener(options, path))
    with _reading("reading state") as tell:
        found = savepoints.inspect(snapshot, is_quick=quick, tell=tell)
    if as_json:
        show_json(msgspec.to_builtins(found))
    else:
        _show_inspected(found)


def show_state(
    path: PathArgument,
    *,
    operator: Annotated[
        str | None,
        option("--operator", metavar="UID", about="Of which operator; if several could be meant."),
    ] = None,
    state: Annotated[
        str | None,
        option("--state", metavar="NAME", about="Which state; if there are several."),
    ] = None,
    kind: Annotated[
        str | None,
        option(
            "--kind",
            metavar="KIND",
            about="`keyed` or `operator`, where a state with keys and one without have one name.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        option("--key", metavar="KEY", about="Only rows of this key: as text, or as JSON."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="N", help="At most so many rows; 0 for all.")
    ] = 20,
    options: StorageOptions = None,
    as_json: JsonOption = False,
) -> None:
    """Show entries of a state, in the columns of docs/savepoint-format.md.

    With --key only the key's group is read. Timers are the states `_timers/NAME/event` and
    `processing`. Pickles are not opened.

    For example:

        holdfast savepoint show PATH --operator spend --state total --key ada

        holdfast savepoint show PATH --operator spend --state total --limit 0 --json

    Exit codes: 0 done, also if there are no such entries; 1 there is no such state, or it is
    damaged; 2 wrong arguments; 130 Ctrl-C.
    """
    snapshot = savepoints.find_snapshot(path, opener(options, path))
    uid = savepoints.choose_operator(snapshot, operator, state, kind)
    name, its_kind = savepoints.choose_state(snapshot, uid, state, kind)
    rows = savepoints.rows_of(snapshot, uid, (name, its_kind), key)
    listed = list(islice(rows, limit) if limit else rows)
    is_all = not limit or next(rows, None) is None
    if as_json:
        show_json(
            {"operator": uid, "state": name, "kind": its_kind, "rows": listed, "is_all": is_all}
        )
        return
    if not listed:
        show(f"state {name!r} of operator {uid!r} has no such rows")
        return
    columns = list(dict.fromkeys(column for row in listed for column in row))
    lines = table(f"state {name!r} of operator {uid!r}", *columns)
    for cells in _rows_told(columns, listed):
        lines.add_row(*cells)
    show(lines)
    if not is_all:
        say(f"there are more: --limit {limit}")


def diff_snapshots(
    a: Annotated[str, argument("A", ABOUT_SNAPSHOTS)],
    b: Annotated[str, argument("B", "Another one.")],
    *,
    options: StorageOptions = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two snapshots: whether they have the same entries, as sets, and which states differ.

    Backends, formats and parallelism may differ: only the content counts. Positions of sources and
    rows in flight are not compared.

    For example:

        holdfast savepoint diff before after && echo the same

    Exit codes: 0 the same; 1 not the same, or one is none or is damaged; 2 wrong arguments;
    130 Ctrl-C.
    """
    with _reading("comparing") as tell:
        opens = opener(options, a, b)
        first, second = (savepoints.find_snapshot(path, opens) for path in (a, b))
        compared = savepoints.compare(first, second, tell)
    if as_json:
        show_json({"equal": compared.are_equal, **msgspec.to_builtins(compared)})
    else:
        _show_compared(compared)
    if not compared.are_equal:
        raise typer.Exit(1)


def validate_snapshot(
    path: PathArgument, *, options: StorageOptions = None, as_json: JsonOption = False
) -> None:
    """Read all of a checkpoint or savepoint, and report everything that is wrong with it.

    It checks that every file exists and every byte is as written, that every row can be decoded,
    and that each key is in its key group. Some of this a restore would not notice.

    For example:

        holdfast savepoint validate /backups/savepoint-7c41a9-0f3a2b9c1d5e

    Exit codes: 0 it is whole; 1 it is not, or there is none; 2 wrong arguments; 130 Ctrl-C.
    """
    with _reading("reading") as tell:
        opens = opener(options, path)
        snapshot = savepoints.find_snapshot(path, opens, looks_for_files=False)
        validated = savepoints.validate(snapshot, tell)
    if as_json:
        show_json({"whole": not validated.findings, **msgspec.to_builtins(validated)})
    else:
        _show_validated(validated)
    if validated.findings:
        raise typer.Exit(1)


@contextmanager
def _reading(what: str) -> Iterator[Callable[[int], None]]:
    """Callback for progress: shows the number of rows on a terminal."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,.0f} rows"),
        TimeElapsedColumn(),
    )
    with progress_bar(*columns) as progress:
        yield partial(progress.advance, progress.add_task(what, total=None))


def _show_inspected(found: savepoints.InspectedSnapshot) -> None:
    show(
        f"{found.kind} {found.checkpoint} of job {found.job!r}, completed "
        f"{moment(found.completed_ms)} UTC: {bytes_for_people(found.size_bytes)} in "
        f"{found.files} files"
    )
    for operator in found.operators:
        _show_operator(operator)
    if found.sources:
        show(f"positions of sources: {', '.join(map(repr, found.sources))}")
    for each in found.in_flight:
        show(
            f"{each.rows:,} rows in flight to input {each.input} of operator {each.uid!r}, "
            f"{bytes_for_people(each.size_bytes)}"
        )


def _show_operator(operator: savepoints.InspectedOperator) -> None:
    title = (
        f"operator {operator.uid!r}: parallelism {operator.parallelism}, max parallelism "
        f"{operator.max_parallelism}, {bytes_for_people(operator.size_bytes)}"
    )
    columns = ("state", "kind", "key", "value", "#entries", "#bytes", "#skew")
    lines = table(title, *columns)
    for state in operator.states:
        cells = (
            state.name,
            state.kind + (" (ttl)" if state.ttl else ""),
            ", ".join(filter(None, (state.key, state.namespace, state.map_key))),
            state.value or "",
            "" if state.rows is None else f"{state.rows:,}",
            "" if state.size_bytes is None else bytes_for_people(state.size_bytes),
            _skew(state),
        )
        lines.add_row(*cells)
    show(lines)


def _skew(state: savepoints.InspectedState) -> str:
    return "" if state.skew is None else f"{state.skew.of_mean:.2f} / {state.skew.slot_of_mean:.2f}"


def _show_compared(compared: savepoints.ComparedSnapshots) -> None:
    columns = ("operator", "state", "status", "#entries A", "#entries B")
    lines = table("", *columns, "#only A", "#only B", "#changed", "for example")
    for each in compared.states:
        lines.add_row(
            each.uid,
            each.state + (" (without keys)" if each.kind == "operator" else ""),
            each.status,
            *(f"{number:,}" for number in (each.rows_a, each.rows_b)),
            *(f"{number:,}" for number in (each.only_a, each.only_b, each.changed)),
            "; ".join(each.examples),
        )
    show(lines)
    for each in compared.states:
        if each.types:
            show(f"the types of {each.state!r} of {each.uid!r} differ: {'; '.join(each.types)}")
    show("the same entries" if compared.are_equal else "not the same entries")


def _show_validated(validated: savepoints.Validated) -> None:
    for finding in validated.findings:
        show(f"{finding.what}: {finding.trouble}")
    read = (
        f"{validated.rows:,} rows in {bytes_for_people(validated.size_bytes)}, "
        f"{validated.files} files"
    )
    if validated.findings:
        show(f"not whole: {len(validated.findings)} findings; read {read}")
    else:
        show(f"whole: {read}")


def _rows_told(columns: list[str], rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    """The cells of each row; the key of a list or a map only in its first row."""
    # Rows of a key lie together; those of other states have a key each
    has_several = any(each in ("map_key", "position") for each in columns)
    above: dict[str, str] = {}
    for row in rows:
        told = {column: _cell(row.get(column)) for column in columns}
        owner = {column: told[column] for column in columns if column in ("key", "namespace")}
        is_same = has_several and bool(owner) and owner == above
        yield list((told | dict.fromkeys(owner, "") if is_same else told).values())
        above = owner


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
