"""Checks of values with parts: containers, records, unions; compiled from msgspec's type info.

A container is returned as it is if no part had to be converted, else as a new one.
"""

from __future__ import annotations

import copy
import dataclasses
import typing
from collections.abc import Callable
from inspect import get_annotations, getattr_static
from typing import Any

import msgspec
from msgspec import inspect

from holdfast.backends.values.checks import (
    SCALAR_CHECKS,
    Check,
    Misfit,
    any_check,
    are_same,
    never_many,
    one_by_one,
)
from holdfast.backends.values.normalizing import full_name, to_plain

__all__ = ["Unsupported", "check_for"]


class Unsupported(Exception):
    """A type, or a part of it, is not supported; the message names it."""


def check_for(node: inspect.Type) -> Check:
    """The check of a type.

    Raises:
        Unsupported: the type, or a part of it, is not supported.
    """
    return _Compiler().check(node)


class _Compiler:
    """Makes the checks of one type and its parts. Records may be recursive."""

    def __init__(self) -> None:
        self._done: dict[int, Check] = {}
        self._begun: set[int] = set()

    def check(self, node: inspect.Type) -> Check:
        simple = any_check if isinstance(node, inspect.AnyType) else SCALAR_CHECKS.get(type(node))
        if simple is not None:
            if node != type(node)():
                raise Unsupported(f"values are not checked for constraints, as in {node}")
            return simple
        if id(node) in self._begun and id(node) not in self._done:
            return self._later(node)
        self._begun.add(id(node))
        self._done[id(node)] = self._made(node)
        return self._done[id(node)]

    def _later(self, node: inspect.Type) -> Check:
        """For a recursive record: its check is looked up when it is used."""
        cls = getattr(node, "cls", object)

        def one(value: Any) -> Any:
            return self._done[id(node)].one(value)

        return Check(full_name(cls), frozenset({cls}), one, never_many, is_immutable=False)

    def _made(self, node: inspect.Type) -> Check:
        match node:
            case inspect.LiteralType(values=values):
                return _literal(values)
            case inspect.EnumType(cls=cls):
                return _enum(cls)
        return self._container(node)

    def _container(self, node: inspect.Type) -> Check:
        match node:
            case inspect.UnionType(types=types):
                return _union([self.check(each) for each in types])
            case inspect.TupleType(item_types=types):
                return _tuple([self.check(each) for each in types])
            case inspect.DictType(key_type=keys, value_type=values):
                _refuse_lengths(node)
                return _dict(self.check(keys), self.check(values))
            case inspect.CollectionType(item_type=item):
                _refuse_lengths(node)
                return _collection(_COLLECTIONS[type(node)], self.check(item))
        return self._record(node)

    def _record(self, node: inspect.Type) -> Check:
        if not isinstance(node, _RECORDS):
            name = getattr(node, "cls", type(node)).__name__
            raise Unsupported(f"{name} cannot be a value, or part of one")
        cls: Any = typing.get_origin(node.cls) or node.cls
        _refuse_lost_defaults(cls, node)
        fields = {field.name: self.check(field.type) for field in node.fields}
        if isinstance(node, inspect.TypedDictType):
            return _typed_dict(cls, fields, {each.name for each in node.fields if each.required})
        if isinstance(node, inspect.NamedTupleType):
            return _named_tuple(cls, list(fields.values()))
        return _object(cls, fields)


_RECORDS = (
    inspect.DataclassType,
    inspect.StructType,
    inspect.NamedTupleType,
    inspect.TypedDictType,
)
_COLLECTIONS: dict[type[inspect.Type], type] = {
    inspect.ListType: list,
    inspect.SetType: set,
    inspect.FrozenSetType: frozenset,
    inspect.VarTupleType: tuple,
}


def _refuse_lost_defaults(cls: Any, node: Any) -> None:
    """Refuse a class that has lost defaults or fields by pickling, or whose fields may be UNSET.

    A class that is pickled by value, other than by `holdfast.runtime.spark.launching.pickling`,
    has sentinel objects as defaults of fields without one, and a Struct loses all fields: state
    would be read wrong.
    """
    is_struct = isinstance(node, inspect.StructType)
    declared = map(str, get_annotations(cls).values())
    if is_struct and not node.fields and not all("ClassVar" in each for each in declared):
        raise Unsupported(f"{cls.__qualname__} has lost its fields where it was pickled by value")
    for field in node.fields:
        if isinstance(field.default, type(dataclasses.MISSING)):
            lost = f"{cls.__qualname__} has lost that {field.name!r} has no default"
            raise Unsupported(f"{lost}, where it was pickled by value")
        has_none = field.default is field.default_factory is msgspec.NODEFAULT
        if is_struct and not field.required and has_none:
            raise Unsupported(
                f"{field.name!r} of {cls.__qualname__} may be UNSET; let it be None instead"
            )


def _refuse_lengths(node: inspect.CollectionType | inspect.DictType) -> None:
    if node.min_length is not None or node.max_length is not None:
        raise Unsupported(f"values are not checked for constraints, as in {node}")


def _collection(cls: Any, item: Check) -> Check:
    name = f"tuple[{item.name}, ...]" if cls is tuple else f"{cls.__name__}[{item.name}]"
    is_immutable = cls in {tuple, frozenset} and item.is_immutable
    check, many = item.one, item.many

    def one(value: Any) -> Any:
        values = value if type(value) is cls else _as_instance(cls, name, value)
        if many(values):
            return values
        checked = one_by_one(check, values)
        return values if are_same(checked, values) else cls(checked)

    return Check(name, frozenset({cls}), one, never_many, is_immutable)


def _as_instance(cls: Any, name: str, value: Any) -> Any:
    plain = to_plain(value)
    # The names of a NamedTuple would be lost.
    is_record = isinstance(plain, tuple) and hasattr(plain, "_fields")
    if isinstance(plain, cls) and not is_record:
        return cls(plain)
    raise Misfit(name, value)


def _tuple(items: list[Check]) -> Check:
    name = f"tuple[{', '.join(item.name for item in items) or '()'}]"
    checks = [item.one for item in items]

    def one(value: Any) -> Any:
        values = value if type(value) is tuple else _as_instance(tuple, name, value)
        if len(values) != len(checks):
            raise Misfit(name, value)
        return _fields_of(values, checks, tuple)

    is_immutable = all(item.is_immutable for item in items)
    return Check(name, frozenset({tuple}), one, never_many, is_immutable)


def _fields_of(
    values: tuple[Any, ...], checks: list[Callable[[Any], Any]], build: Callable[[Any], Any]
) -> Any:
    """The fields of a tuple, each passed through its own check."""
    pairs = zip(checks, values, strict=True)
    checked = one_by_one(lambda pair: pair[0](pair[1]), pairs)
    return values if are_same(checked, values) else build(checked)


def _dict(keys: Check, values: Check) -> Check:
    name = f"dict[{keys.name}, {values.name}]"

    def one(value: Any) -> Any:
        entries = value if type(value) is dict else _as_instance(dict, name, value)
        if keys.many(entries.keys()) and values.many(entries.values()):
            return entries
        checked = {}
        for key, each in entries.items():
            try:
                checked[keys.one(key)] = values.one(each)
            except Misfit as misfit:
                raise misfit.inside(f"[{key!r}]") from None
        is_same = are_same(checked, entries) and are_same(checked.values(), entries.values())
        return entries if is_same else checked

    return Check(name, frozenset({dict}), one, never_many, is_immutable=False)


def _typed_dict(cls: Any, fields: dict[str, Check], required: set[str]) -> Check:
    name = full_name(cls)

    def one(value: Any) -> Any:
        entries = value if type(value) is dict else _as_instance(dict, name, value)
        if not required <= entries.keys() <= fields.keys():
            raise Misfit(f"{name} with the keys {', '.join(map(repr, fields))}", value)
        checked = {}
        for key, each in entries.items():
            try:
                checked[key] = fields[key].one(each)
            except Misfit as misfit:
                raise misfit.inside(f"[{key!r}]") from None
        return entries if are_same(checked.values(), entries.values()) else checked

    return Check(name, frozenset({dict}), one, never_many, is_immutable=False)


def _named_tuple(cls: Any, fields: list[Check]) -> Check:
    name = full_name(cls)
    checks = [field.one for field in fields]

    def one(value: Any) -> Any:
        if type(value) is not cls:
            raise Misfit(name, value)
        return _fields_of(value, checks, cls._make)

    is_immutable = all(field.is_immutable for field in fields)
    return Check(name, frozenset({cls}), one, never_many, is_immutable)


def _object(cls: Any, fields: dict[str, Check]) -> Check:
    """A dataclass or a Struct. A subclass is refused: its additional fields would be lost.

    An object may lack a field whose default is an attribute of the class. Such a field would not be
    written, and would be read as the default of that time, so it is set in a copy.
    """
    name = full_name(cls)
    checks = [(field, check.one) for field, check in fields.items()]
    of_class = frozenset(
        field for field in fields if not hasattr(getattr_static(cls, field, _SLOT), "__set__")
    )

    def one(value: Any) -> Any:
        if type(value) is not cls:
            raise Misfit(name, value)
        changed = {}
        field = ""
        try:
            for field, check in checks:
                part = getattr(value, field)
                checked = check(part)
                if checked is not part:
                    changed[field] = checked
        except Misfit as misfit:
            raise misfit.inside(f".{field}") from None
        except AttributeError:
            raise Misfit(f"{name} with a field {field!r}", value) from None
        if of_class and not of_class.issubset(value.__dict__):
            changed = {field: getattr(value, field) for field in of_class} | changed
        return _with_fields(value, changed) if changed else value

    return Check(
        name,
        frozenset({cls}),
        one,
        never_many,
        _is_frozen(cls) and all(check.is_immutable for check in fields.values()),
    )


_SLOT = property()
"""Stands for a field without an attribute in the class."""


def _is_frozen(cls: Any) -> bool:
    if issubclass(cls, msgspec.Struct):
        # Only codecs write all fields of a Struct that omits defaults.
        return bool(cls.__struct_config__.frozen and not cls.__struct_config__.omit_defaults)
    parameters = getattr(cls, "__dataclass_params__", None)
    # attrs does not tell. Values that might change are kept as their bytes, which is always right
    return parameters is not None and bool(parameters.frozen)


def _with_fields(value: Any, changed: dict[str, Any]) -> Any:
    """A copy with other values in some fields, made without calling the class."""
    changed_copy = copy.copy(value)
    is_struct = isinstance(value, msgspec.Struct)
    put = msgspec.structs.force_setattr if is_struct else object.__setattr__
    for field, part in changed.items():
        put(changed_copy, field, part)
    return changed_copy


def _enum(cls: Any) -> Check:
    # By identity: members may have a user's `__eq__`. Not every value of a flag is a member
    members = {id(member) for member in cls}

    def one(value: Any) -> Any:
        if type(value) is not cls or id(value) not in members:
            raise Misfit(full_name(cls), value)
        return value

    return Check(full_name(cls), frozenset({cls}), one, never_many)


def _literal(values: tuple[Any, ...]) -> Check:
    name = f"one of {', '.join(map(repr, values))}"
    allowed = {(type(value), value) for value in values}
    types = frozenset(map(type, values))

    def one(value: Any) -> Any:
        plain = to_plain(value)
        # Test the type first: other values may be unhashable
        if type(plain) not in types or (type(plain), plain) not in allowed:
            raise Misfit(name, value)
        return plain

    return Check(name, types, one, never_many)


def _union(members: list[Check]) -> Check:
    name = " | ".join(member.name for member in members)
    by_type = {each: member.one for member in members for each in member.types}

    def one(value: Any) -> Any:
        check = by_type.get(type(value))
        if check is not None:
            return check(value)
        for member in members:
            try:
                return member.one(value)
            except Misfit:
                continue
        raise Misfit(name, value)

    is_immutable = all(member.is_immutable for member in members)
    return Check(name, frozenset(by_type), one, never_many, is_immutable)
