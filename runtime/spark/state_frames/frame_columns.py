"""The columns of a DataFrame that state is written from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from holdfast.backends.arrow.values import ENCODING, ValueForm
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.values.type_descriptions import Schema
from holdfast.runtime.columns.types import parts_of
from holdfast.runtime.operators.key_columns import key_type_of
from holdfast.runtime.planning.partitioning import key_type
from holdfast.savepoints.writing.keyed_rows import RowColumns
from holdfast.storage import Invalid

__all__ = [
    "check_frame",
    "column_of",
    "encoding_of",
    "is_packed",
    "key_schema",
    "last_used_of",
    "selected",
]


def key_schema(schema: pa.Schema, names: Sequence[str], uid: str) -> Schema:
    """The type of keys from these columns, the same as in a job that is keyed by them.

    Raises:
        Invalid: a column's type cannot be a key.
    """
    if len(names) == 1 and pa.types.is_nested(schema.field(names[0]).type):
        kind = key_type(schema.field(names[0]).type, column=names[0])
    else:
        kind = key_type_of(schema, names, uid)
    return key_codec_for(kind).describe()


def column_of(
    frame: DataFrame, argument: str, named: str | None, *, when: bool, state: str
) -> str | None:
    """The column that was named, or else that is called like its argument, `when` one is allowed.

    Raises:
        Invalid: one was named, and the state has no use for it.
    """
    if named is not None and not when:
        raise Invalid(
            f"state {state!r} has no use for {argument}=",
            expected=_USES[argument],
            found=f"{argument}={named!r}",
            fix="Leave it out, or give the state's own descriptor",
        )
    if named is not None or not when:
        return named
    usual = _USUAL.get(argument, argument)
    return usual if usual in frame.columns else None


_USES = {
    "map_key": "it with a map",
    "position": "it with a list",
    "last_used": "it with a time to live, which the descriptor says by ttl=",
}
_USUAL = {"last_used": "last_used_ms"}


def last_used_of(frame: DataFrame, named: str | None, *, has_ttl: bool, state: str) -> str | None:
    """The column of times of last use.

    Raises:
        Invalid: there is one, and the state has no time to live: it would be dropped silently.
    """
    found = column_of(frame, "last_used", named, when=has_ttl, state=state)
    if not has_ttl and _USUAL["last_used"] in frame.columns:
        raise Invalid(
            f"state {state!r} has no time to live, and the DataFrame says when rows were last used",
            expected="a descriptor with ttl=, as the job has it",
            found=f"a column {_USUAL['last_used']!r}",
            fix="If it is to have none from now on, drop that column first",
        )
    return found


def encoding_of(field: pa.Field) -> str:
    """The encoding of values that a column, or a part of it, holds as bytes; empty if none."""
    own = (field.metadata or {}).get(ENCODING.encode(), b"").decode(errors="replace")
    inner = (encoding_of(each) for each in parts_of(field.type))
    return own or next(filter(None, inner), "")


def is_packed(
    frame: DataFrame, value: str, *, given: bool | None, values: Schema, state: str
) -> bool | None:
    """Whether a column holds MessagePack where values have no type, as given or as it was read.

    None: unknown. Spark drops the metadata of a column when another is computed from it.

    Raises:
        Invalid: it was given, and such `values` have a type everywhere.
    """
    if given is not None and not encoding_of(ValueForm(values, checked=True).field):
        raise Invalid(
            f"state {state!r} has no use for packed=",
            expected="it with types that have no column of their own, such as Any",
            found=f"packed={given}",
            fix="Leave it out",
        )
    if given is not None or value not in frame.columns:
        return given
    metadata: Mapping[str, Any] = frame.schema[value].metadata or {}
    return True if metadata.get(ENCODING) == "msgpack" else None


def _names(columns: RowColumns) -> list[str]:
    named = [columns.value, columns.map_key, columns.position, columns.last_used]
    return list(dict.fromkeys([*columns.key, *filter(None, named)]))


def selected(columns: RowColumns) -> list[Any]:
    """These columns, each once."""
    return [F.col("`{}`".format(name.replace("`", "``"))) for name in _names(columns)]


def check_frame(frame: DataFrame, columns: RowColumns, where: str) -> None:
    """Check that a DataFrame has each of these columns once, and is no stream.

    Raises:
        Invalid: it is not so; names the columns that it has.
    """
    there = frame.columns
    for name in _names(columns):
        if there.count(name) != 1:
            raise Invalid(
                f"the DataFrame has not one column {name!r}",
                where=where,
                expected=", ".join(map(repr, _names(columns))),
                found=", ".join(map(repr, there)),
                fix="Name the columns by key=, value=, map_key=, position=, time=",
            )
    if frame.isStreaming:
        raise Invalid("a savepoint is not written from a stream", where=where)
