"""The rules of schema evolution: the step from a stored type to the declared one.

One walk over both descriptions (`holdfast.backends.values.type_descriptions`) finds the verdict and
builds the conversion, so that the two cannot differ. A conversion works on plain data, as msgpack
gives it without a type.

State reads as if each version of a job that declared it had written all of it again. So "as is"
means exactly: **the bytes are those that the reader would have written for these values**.
Everything else is written again when it is declared. Defaults are in no description: stored records
have all their fields, so only a field that was just added takes its value from a default, that of
the version that reads it first.

| change | verdict |
|---|---|
| the same type; its class renamed or moved to another module | as is |
| a default added to a field, changed, or taken away | as is |
| T becomes T or None, or another union with T | as is |
| a list, tuple or sequence becomes a list or sequence of such items; a set a list | as is |
| an enum or literal gets more values, or becomes its str or int | as is |
| plain data, as JSON has it, becomes `Any` | as is |
| a field added that has a default; a field removed; fields in another order | migration |
| a record of another kind: a dataclass, a Struct, a NamedTuple, a TypedDict | migration |
| a record that may lack fields, from before descriptions said `whole` | migration |
| bool becomes int; int becomes float or Decimal | migration |
| a pickle of another class | migration |
| a field added without a default; anything else | incompatible |

Pickles of the same class are as is, even if the class has changed: their content is not known.

Snapshots from before this rule have records without `whole`, possibly of several versions: they are
read with the defaults of the first version that declares them, and written again. If their log is
in other types than its base, each becomes a table of its own, and a row that the log sets or
removes is removed from the other one (`holdfast.backends.keyed.undeclared_state`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

from holdfast.backends.values.type_descriptions import SIMPLE_TYPES, Schema
from holdfast.storage.errors import Invalid

__all__ = ["Step", "Verdict", "step_between"]

_Convert = Callable[[Any], Any]


class Verdict(IntEnum):
    """What has to happen before values of one schema can be read as values of another."""

    COMPATIBLE_AS_IS = 0
    """Nothing: the reader would have written the same bytes."""
    AFTER_MIGRATION = 1
    """Values are converted and written again once."""
    INCOMPATIBLE = 2


@dataclass(frozen=True)
class Step:
    """From one type to another: the verdict, the reasons, and the conversion if any."""

    verdict: Verdict = Verdict.COMPATIBLE_AS_IS
    reasons: tuple[str, ...] = ()
    convert: _Convert | None = None


def step_between(writer: Schema, reader: Schema) -> Step:
    """The step from the type of stored values to the declared type."""
    return _Walk().step(writer, reader, "")


def _float_of_int(value: Any) -> Any:
    if int(float(value)) != value:
        raise Invalid(
            "a value cannot be migrated",
            expected="an int that a float can hold exactly",
            found=str(value),
            fix="Declare int or Decimal",
        )
    return float(value)


_AS_IT_IS = Step()
_WIDENED: dict[tuple[str, str], _Convert] = {
    ("bool", "int"): int,
    ("int", "float"): _float_of_int,
    ("int", "decimal"): str,
}
_SIMPLE = frozenset(SIMPLE_TYPES.values())
_OF_BYTES = frozenset({"bytes", "bytearray"})
_PLAIN = frozenset({"none", "bool", "int", "float", "str", "bytes", "any"})
_ARRAYS = frozenset({"list", "set", "frozenset", "sequence", "tuple"})
_INTO = {
    "list": frozenset({"list", "sequence"}),
    "sequence": frozenset({"list", "sequence"}),
    "tuple": frozenset({"list", "sequence"}),
    "set": frozenset({"set", "frozenset", "list", "sequence"}),
    "frozenset": frozenset({"set", "frozenset", "list", "sequence"}),
}
"""The types to which arrays convert unchanged; a list may have equal items, so never to a set."""


def _was_taken_for_recursive(writer: Schema, reader: Schema) -> bool:
    """Whether a generic class within itself was described as the class around it.

    Earlier versions did so; its arguments are not known, and reading shows whether they fit.
    """
    outer = f"{writer.get('name')}["
    return writer["type"] == "recursive" and str(reader.get("name")).startswith(outer)


def _incompatible(path: str, reason: str) -> Step:
    return Step(Verdict.INCOMPATIBLE, (f"{path or 'the value'}: {reason}",))


def _named(schema: Schema) -> str:
    name = schema.get("name")
    return f"{schema['type']} {name}" if name else str(schema["type"])


def _joined(steps: Iterable[Step], *more: str, convert: _Convert | None) -> Step:
    """The worst verdict of the parts, and all reasons."""
    steps = list(steps)
    verdict = max((step.verdict for step in steps), default=Verdict.COMPATIBLE_AS_IS)
    reasons = [reason for step in steps for reason in step.reasons]
    return Step(verdict, (*reasons, *more), convert)


class _Walk:
    """A walk over a pair of schemas. It remembers records, which can contain themselves."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], Schema] = {}
        self._steps: dict[tuple[int, int], Step | None] = {}

    def step(self, writer: Schema, reader: Schema, path: str) -> Step:
        if _was_taken_for_recursive(writer, reader):
            return Step(Verdict.AFTER_MIGRATION, (f"{path}: {_named(reader)} was not described",))
        writer, reader = self._found("writer", writer), self._found("reader", reader)
        if "union" in {writer["type"], reader["type"]}:
            return self._union(writer, reader, path)
        if reader["type"] == "any":
            return self._any(writer, path)
        if "values" in writer and writer["type"] != "dict":
            return self._values(writer, reader, path)
        return self._simple(writer, reader, path) or self._parts(writer, reader, path)

    def _found(self, side: str, schema: Schema) -> Schema:
        if schema["type"] == "recursive":
            return self._records[side, schema["name"]]
        if schema["type"] == "record":
            self._records[side, schema["name"]] = schema
        return schema

    def _simple(self, writer: Schema, reader: Schema, path: str) -> Step | None:
        pair = (writer["type"], reader["type"])
        if pair == ("pickle", "pickle") and writer["name"] != reader["name"]:
            reason = f"{path or 'the value'}: {_named(writer)} becomes {_named(reader)}"
            return Step(Verdict.AFTER_MIGRATION, (reason,))
        if pair[0] == pair[1] and (pair[0] in _SIMPLE or pair[0] == "pickle"):
            return _AS_IT_IS
        if _OF_BYTES.issuperset(pair):
            return _AS_IT_IS
        if pair in _WIDENED:
            reason = f"{path or 'the value'}: {pair[0]} becomes {pair[1]}"
            return Step(Verdict.AFTER_MIGRATION, (reason,), _WIDENED[pair])
        return None

    def _parts(self, writer: Schema, reader: Schema, path: str) -> Step:
        pair = (writer["type"], reader["type"])
        if pair == ("record", "record"):
            return self._record(writer, reader, path)
        if pair == ("dict", "dict"):
            return self._dict(writer, reader, path)
        if pair == ("tuple", "tuple") and len(writer["items"]) == len(reader["items"]):
            return self._tuple(writer["items"], reader["items"], path)
        if pair[1] in _INTO.get(pair[0], ()):
            if pair[0] == "tuple":
                items = writer["items"]
                return self._tuple(items, [reader["items"]] * len(items), path)
            return self._array(writer, reader, path)
        return _incompatible(path, f"{_named(writer)} cannot become {_named(reader)}")

    def _any(self, writer: Schema, path: str) -> Step:
        if writer["type"] in _PLAIN or writer["type"] == "literal":
            return _AS_IT_IS
        if writer["type"] == "list":
            return self.step(writer["items"], {"type": "any"}, f"{path}[]")
        if writer["type"] == "dict" and writer["keys"]["type"] in _PLAIN:
            return self.step(writer["values"], {"type": "any"}, f"{path}[]")
        return _incompatible(path, f"{_named(writer)} would come back as other data without a type")

    def _values(self, writer: Schema, reader: Schema, path: str) -> Step:
        """An enum or a literal, whose values are stored."""
        if "values" in reader and reader["type"] != "dict":
            known = {(type(value), value) for value in reader["values"]}
            gone = [value for value in writer["values"] if (type(value), value) not in known]
            if not gone:
                return _AS_IT_IS
            return _incompatible(path, f"{_named(reader)} has no {', '.join(map(repr, gone))}")
        if {type(value).__name__ for value in writer["values"]} == {reader["type"]}:
            return _AS_IT_IS
        return _incompatible(path, f"{_named(writer)} cannot become {_named(reader)}")

    def _union(self, writer: Schema, reader: Schema, path: str) -> Step:
        """Every stored member needs a declared member that it converts to."""
        members = [self._found("writer", each) for each in writer.get("members", [writer])]
        targets = reader.get("members", [reader])
        steps = [self._member(each, targets, path) for each in members]
        converts = [(each, step.convert) for each, step in zip(members, steps, strict=True)]

        def convert(value: Any) -> Any:
            for member, change in converts:
                if _is_written_as(member, value):
                    return value if change is None else change(value)
            return value

        is_changed = any(change is not None for _, change in converts)
        return _joined(steps, convert=convert if is_changed else None)

    def _member(self, writer: Schema, targets: list[Schema], path: str) -> Step:
        steps = [self.step(writer, target, path) for target in targets]
        best = min(steps, key=lambda step: step.verdict)
        if best.verdict is Verdict.INCOMPATIBLE and len(targets) > 1:
            names = ", ".join(map(_named, targets))
            return _incompatible(path, f"{_named(writer)} can become none of {names}")
        return best

    def _array(self, writer: Schema, reader: Schema, path: str) -> Step:
        item = self.step(writer["items"], reader["items"], f"{path}[]")
        change = item.convert
        if change is None:
            return item
        return _joined([item], convert=lambda values: list(map(change, values)))

    def _tuple(self, writer: list[Schema], reader: list[Schema], path: str) -> Step:
        pairs = enumerate(zip(writer, reader, strict=True))
        steps = [self.step(one, other, f"{path}[{place}]") for place, (one, other) in pairs]
        if all(step.convert is None for step in steps):
            return _joined(steps, convert=None)
        changes = [step.convert or _unchanged for step in steps]

        def convert(values: Any) -> Any:
            return [change(value) for change, value in zip(changes, values, strict=True)]

        return _joined(steps, convert=convert)

    def _dict(self, writer: Schema, reader: Schema, path: str) -> Step:
        keys = self.step(writer["keys"], reader["keys"], f"{path}{{}}")
        values = self.step(writer["values"], reader["values"], f"{path}[]")
        if keys.convert is None and values.convert is None:
            return _joined([keys, values], convert=None)
        change_key, change = keys.convert or _unchanged, values.convert or _unchanged

        def convert(entries: Any) -> Any:
            return {_hashable(change_key(key)): change(each) for key, each in entries.items()}

        return _joined([keys, values], convert=convert)

    def _record(self, writer: Schema, reader: Schema, path: str) -> Step:
        pair = (id(writer), id(reader))
        if pair in self._steps:
            return self._steps[pair] or Step(convert=self._later(pair))
        self._steps[pair] = None
        self._steps[pair] = step = self._fields(writer, reader, path)
        return step

    def _later(self, pair: tuple[int, int]) -> _Convert:
        """The conversion of a record within itself, which is known once the walk ends."""

        def convert(value: Any) -> Any:
            step = self._steps[pair]
            return value if step is None or step.convert is None else step.convert(value)

        return convert

    def _fields(self, writer: Schema, reader: Schema, path: str) -> Step:
        if writer.get("tag") != reader.get("tag"):
            return _incompatible(path, f"{_named(writer)} and {_named(reader)} have other tags")
        change = _FieldChange(writer, reader)
        steps = {
            name: self.step(change.written[name]["schema"], field["schema"], f"{path}.{name}")
            for name, field in change.declared.items()
            if name in change.written
        }
        problem = change.problem(path)
        if problem is not None:
            return _joined([*steps.values(), problem], convert=None)
        converts = {name: step.convert for name, step in steps.items()}
        reasons = change.reasons(path)
        every = [Step(Verdict.AFTER_MIGRATION) if reasons else _AS_IT_IS, *steps.values()]
        if change.is_in_place and all(each is None for each in converts.values()):
            return _joined(every, *reasons, convert=None)
        convert = partial(change.converted, converts)
        return _joined(every, *reasons, convert=convert)


class _FieldChange:
    """Changes of the fields of a record, without their types."""

    def __init__(self, writer: Schema, reader: Schema) -> None:
        self._writer, self._reader = writer, reader
        self.written = {field["name"]: field for field in writer["fields"]}
        self.declared = {field["name"]: field for field in reader["fields"]}
        self._added = [name for name in self.declared if name not in self.written]
        self._removed = [name for name in self.written if name not in self.declared]

    @property
    def is_in_place(self) -> bool:
        """Whether the reader finds each field where it looks for it."""
        if self._reader["layout"] != self._writer["layout"]:
            return False
        if self._reader["layout"] == "array":
            return list(self.declared)[: len(self.written)] == list(self.written)
        return not (self._removed and self._reader.get("closed"))

    def problem(self, path: str) -> Step | None:
        """The reason why the record cannot be read, if there is one."""
        for name, field in self.declared.items():
            written = self.written.get(name)
            if not field["required"] or (written and written["required"]):
                continue
            if written is None:
                return _incompatible(f"{path}.{name}", "was added without a default")
            if self._writer.get("sparse"):
                return _incompatible(f"{path}.{name}", "may be missing, and has no default now")
        return self._gap(path) if self._reader["layout"] == "array" else None

    def _gap(self, path: str) -> Step | None:
        """A field by place that may have no value, where others come after it."""
        for name in list(self.declared)[: len(self.declared) - len(self._added)]:
            if name not in self.written:
                return _incompatible(f"{path}.{name}", "was added before others, not at the end")
            if self._writer.get("sparse") and not self.written[name]["required"]:
                return _incompatible(f"{path}.{name}", "may be missing, and now has a place")
        return None

    def reasons(self, path: str) -> list[str]:
        """Why the reader would have written other bytes, for people; none if it would not."""
        changed = [f"{path}.{name}: added with a default" for name in self._added]
        changed += [f"{path}.{name}: removed" for name in self._removed]
        writer, reader, what = self._writer, self._reader, path or "the value"
        if changed:
            return changed
        if list(self.written) != list(self.declared) or writer["layout"] != reader["layout"]:
            return [f"{what}: its fields are in other places"]
        if writer.get("sparse") != reader.get("sparse"):
            return [f"{what}: fields that it does not need are left out in one of both"]
        are_needed = all(field["required"] for field in writer["fields"])
        if not (are_needed or writer.get("whole") or writer.get("sparse")):
            return [f"{what}: it may have been written before it had all its fields"]
        return []

    def converted(self, converts: dict[str, _Convert | None], value: Any) -> Any:
        """The record as the reader's type is written."""
        tag = self._writer.get("tag")
        if self._writer["layout"] == "array":
            value = dict(zip(self.written, value[1:] if tag else value, strict=False))
        kept = {}
        for name in self.declared:
            if name in value:
                change = converts[name]
                kept[name] = value[name] if change is None else change(value[name])
        if self._reader["layout"] == "array":
            return [*(tag[1:] if tag else ()), *kept.values()]
        return {tag[0]: tag[1], **kept} if tag else kept


def _unchanged(value: Any) -> Any:
    return value


def _hashable(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


def _is_written_as(schema: Schema, value: Any) -> bool:
    """Whether plain data can be of this member of a union; msgspec sees to it that one can."""
    kind = schema["type"]
    if kind == "record":
        name, tag = schema.get("tag", (None, None))
        if schema["layout"] == "array":
            return isinstance(value, list) and (name is None or value[:1] == [tag])
        return isinstance(value, dict) and (name is None or value.get(name) == tag)
    if kind in _ARRAYS:
        return isinstance(value, list | tuple)
    if kind in {"enum", "literal"}:
        return value in schema["values"]
    exact = {"none": type(None), "bool": bool, "int": int, "float": float, "dict": dict}
    if kind in exact:
        return type(value) is exact[kind]
    return isinstance(value, str | bytes) or type(value).__name__ == "datetime"
