"""Schema evolution: whether state written by one version of a job can be read by another.

Compares the type descriptions in snapshots with the declared types. An error names both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from holdfast.backends.schema.steps import Step, Verdict, step_between
from holdfast.backends.values.codec import PICKLE, ValueCodec, pack_value
from holdfast.backends.values.type_descriptions import Schema, are_alike
from holdfast.storage.errors import UNREADABLE, Corrupt, Invalid

__all__ = [
    "SchemaChange",
    "check_pickle_allowed",
    "compare_keys",
    "compare_values",
    "migration_for",
]

_V = TypeVar("_V")


@dataclass(frozen=True)
class SchemaChange:
    """The verdict on a stored schema and a declared one.

    `reasons` says what changed, and where in the value.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    writer: Schema
    reader: Schema

    def require(self, what: str, *, where: str = "") -> None:
        """Raise if the stored values cannot be read; `what` and `where` name the state.

        Raises:
            Invalid: the schemas are incompatible; has both, and the reasons.
        """
        if self.verdict is Verdict.INCOMPATIBLE:
            raise Invalid(
                f"{what} cannot be read as it is declared now: {'; '.join(self.reasons)}",
                where=where,
                expected=f"a type that can be converted to {_text(self.reader)}",
                found=_text(self.writer),
                fix="Declare it as it was, or under another name",
            )


def compare_values(writer: Schema, reader: Schema) -> SchemaChange:
    """Whether values of the schema `writer` can be read as those of `reader`."""
    return _change(step_between(writer, reader), writer, reader)


def _change(step: Step, writer: Schema, reader: Schema) -> SchemaChange:
    return SchemaChange(step.verdict, step.reasons, writer, reader)


def compare_keys(writer: Schema, reader: Schema) -> SchemaChange:
    """Whether keys have the same type; only names of classes may differ.

    The bytes and the hash of a key determine where its state is, so the type cannot change.
    """
    if are_alike(writer, reader):
        return SchemaChange(Verdict.COMPATIBLE_AS_IS, (), writer, reader)
    reasons = ("the type of a key cannot change",)
    return SchemaChange(Verdict.INCOMPATIBLE, reasons, writer, reader)


def migration_for(writer: Schema, reader: ValueCodec[_V]) -> Callable[[bytes], _V]:
    """A function from bytes of the schema `writer` to values of the reader's type.

    Values have all their fields. The function raises as `ValueCodec.decode` does, and `Invalid` for
    a value that cannot be converted.

    Raises:
        Invalid: the schemas are incompatible; has both, and the reasons.
    """
    step = step_between(writer, reader.describe())
    _change(step, writer, reader.describe()).require(f"a value of type {reader.name}")
    convert = step.convert
    if step.verdict is Verdict.COMPATIBLE_AS_IS:
        return reader.decode
    if convert is None:
        return lambda data: reader.check(_decoded(data, writer, reader))

    def migrate(data: bytes) -> _V:
        try:
            plain = convert(msgspec.msgpack.decode(data))
        except (*UNREADABLE, ValueError, TypeError, LookupError, AttributeError) as error:
            raise Corrupt(
                "the bytes of a value cannot be migrated",
                expected=f"a value written as {_text(writer)}",
                found=f"{len(data)} bytes ({error!r})",
            ) from error
        return reader.check(_decoded(pack_value(plain), writer, reader))

    return migrate


def _decoded(data: bytes, writer: Schema, reader: ValueCodec[_V]) -> _V:
    """The value; `Invalid` with a fix if it lacks a field that has no default now.

    Before descriptions said `whole`, a dataclass of a script was described as if all its fields had
    defaults. So a field without a default could be added, and values from before lack it.
    """
    try:
        return reader.decode(data)
    except Corrupt as error:
        lacking = _LACKING.match(str(error.__cause__))
        if lacking is None or _is_whole(writer):
            raise
        raise Invalid(
            "a value lacks a field that has no default now",
            expected=f"the {lacking[1]} in each value of type {reader.name}",
            found="a value from before the field was added, which an earlier version of Holdfast "
            "allowed for classes of a script",
            fix="Give the field a default: such values get it, and are stored with it",
        ) from error


_LACKING = re.compile("Object missing required (field `.*)")


def _is_whole(schema: Any) -> bool:
    """Whether all records are known to have all their fields."""
    if isinstance(schema, list):
        return all(map(_is_whole, schema))
    if not isinstance(schema, dict):
        return True
    fields = schema["fields"] if schema.get("type") == "record" else ()
    is_known = schema.get("whole") or all(field["required"] for field in fields)
    return bool(is_known) and all(map(_is_whole, schema.values()))


def check_pickle_allowed(schema: Schema, *, allowed: bool, what: str, where: str = "") -> None:
    """Refuse pickled state before any value is read, unless the reader allows pickles.

    Raises:
        Invalid: the values are pickles, and `allowed` is not set.
    """
    if schema["type"] == PICKLE and not allowed:
        raise Invalid(
            f"{what} is pickled, and reading pickles is not allowed",
            where=where,
            expected="values of a declared type",
            found=_text(schema),
            fix="Allow pickle, if you trust the source of this snapshot",
        )


def _text(schema: Schema) -> str:
    return msgspec.json.encode(schema).decode()
