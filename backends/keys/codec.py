"""Finding the codec of keys for a Python type, or for a description in a snapshot."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, TypeVar

from msgspec import inspect

from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.composite import OptionalKey, RecordKey, SequenceKey, TupleKey
from holdfast.backends.keys.decimals import DecimalKey
from holdfast.backends.keys.scalars import BoolKey, FloatKey, IntKey, NoneKey
from holdfast.backends.keys.strings import BytesKey, StrKey
from holdfast.backends.keys.times import DateKey, DateTimeKey
from holdfast.storage.errors import Corrupt, Invalid

__all__ = ["is_without_classes", "key_codec_described", "key_codec_for"]

_K = TypeVar("_K")

_SIMPLE: dict[type[inspect.Type], type[KeyCodec[Any]]] = {
    inspect.NoneType: NoneKey,
    inspect.BoolType: BoolKey,
    inspect.IntType: IntKey,
    inspect.FloatType: FloatKey,
    inspect.StrType: StrKey,
    inspect.BytesType: BytesKey,
    inspect.DateType: DateKey,
    inspect.DateTimeType: DateTimeKey,
    inspect.DecimalType: DecimalKey,
}
_DESCRIBED = {codec.kind: codec for codec in _SIMPLE.values()}
_SUPPORTED = (
    "int, str, bytes, bool, float, date, datetime, Decimal; tuples, NamedTuples and frozen "
    "dataclasses of those; T | None"
)


@typing.overload
def key_codec_for(annotation: type[_K]) -> KeyCodec[_K]: ...
@typing.overload
def key_codec_for(annotation: Any) -> KeyCodec[Any]: ...


def key_codec_for(annotation: Any) -> KeyCodec[Any]:
    """The codec of keys of this type: a class, or any other annotation.

    Raises:
        Invalid: keys of this type are not supported; lists the types that are.
    """
    try:
        node = inspect.type_info(annotation)
    except (TypeError, NameError) as error:
        raise _unsupported(annotation, str(error)) from error
    try:
        return _codec(node, ())
    except _Unsupported as error:
        raise _unsupported(annotation, str(error)) from None


def key_codec_described(description: dict[str, Any]) -> KeyCodec[Any]:
    """A codec for keys of a description, without the user's classes.

    Records are decoded as tuples; the bytes are the same.

    Raises:
        Corrupt: the description is not known.
    """
    match description:
        case {"type": "tuple", "items": list(items)}:
            return TupleKey(list(map(key_codec_described, items)))
        case {"type": "record", "fields": list(fields)}:
            return TupleKey([key_codec_described(field["schema"]) for field in fields])
        case {"type": "sequence", "items": dict(item)}:
            return SequenceKey(key_codec_described(item))
        case {"type": "union", "members": [dict(member), {"type": "none"}]}:
            return OptionalKey(key_codec_described(member))
    simple = _DESCRIBED.get(str(description.get("type")))
    if simple is None:
        raise Corrupt(
            "a description of keys has an unknown type",
            expected=", ".join(_DESCRIBED),
            found=str(description),
        )
    return simple()


def is_without_classes(description: dict[str, Any]) -> bool:
    """Whether such keys are of no class of the user's, so that the description is enough for them.

    A variable number of items is not, either: a key given as a tuple has a fixed number.
    """
    parts = [*description.get("items", ()), *description.get("members", ())]
    return description["type"] not in ("record", "sequence") and all(map(is_without_classes, parts))


class _Unsupported(Exception):
    """A part of the type cannot be part of a key; the message names it and the reason."""


def _unsupported(annotation: Any, why: str) -> Invalid:
    return Invalid(
        "a type of keys is not supported", expected=_SUPPORTED, found=f"{annotation!r}: {why}"
    )


def _codec(node: inspect.Type, outer: tuple[type, ...]) -> KeyCodec[Any]:
    match node:
        case inspect.TupleType(item_types=items):
            return TupleKey([_codec(item, outer) for item in items])
        case inspect.VarTupleType(item_type=item):
            return SequenceKey(_codec(item, outer))
        case inspect.UnionType(types=(one, inspect.NoneType()) | (inspect.NoneType(), one)):
            return OptionalKey(_codec(one, outer))
        case inspect.NamedTupleType(cls=cls) | inspect.DataclassType(cls=cls):
            return _record(cls, node, outer)
        case _ if type(node) not in _SIMPLE:
            raise _Unsupported(f"{_named(node)} cannot be a key, or part of one")
        case _ if node != type(node)():
            raise _Unsupported(f"keys are not checked for constraints, as in {node}")
    return _SIMPLE[type(node)]()


def _record(
    annotated: type, node: inspect.NamedTupleType | inspect.DataclassType, outer: tuple[type, ...]
) -> KeyCodec[Any]:
    cls: type = typing.get_origin(annotated) or annotated
    if cls in outer:
        raise _Unsupported(f"{cls.__qualname__} contains itself")
    if isinstance(node, inspect.DataclassType):
        _check_dataclass(cls)
    fields = {field.name: _codec(field.type, (*outer, cls)) for field in node.fields}
    return RecordKey(cls, fields)


def _check_dataclass(cls: Any) -> None:
    parameters = getattr(cls, "__dataclass_params__", None)
    if parameters is None or not (parameters.frozen and parameters.eq):
        raise _Unsupported(f"{cls.__qualname__} is not declared @dataclass(frozen=True)")
    for field in dataclasses.fields(cls):
        if not field.compare or not field.init:
            odd = "compare=False" if field.init else "init=False"
            raise _Unsupported(f"field {field.name!r} of {cls.__qualname__} has {odd}")


def _named(node: inspect.Type) -> str:
    cls = getattr(node, "cls", None)
    return cls.__qualname__ if isinstance(cls, type) else type(node).__name__.removesuffix("Type")
