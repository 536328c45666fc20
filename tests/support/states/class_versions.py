"""Classes that change from version to version, and what becomes of values of them.

`Version` says in words what a class has; the model of a value is a dict of its fields. What a
later version makes of such a dict is computed here from the words alone, without Holdfast.
"""

from __future__ import annotations

import dataclasses
import random
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

import msgspec

__all__ = ["Fields", "Version", "first_version", "later_version"]

Fields = dict[str, Any]
"""A value of a class, as the model has it."""

_TYPES: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "int?": int | None,
    "float": float,
    "float?": float | None,
    "word": Literal["a", "b"],
    "words": Literal["a", "b", "c"],
    "str": str,
    "list": list[int],
    "sequence": tuple[int, ...],
}
_WIDER: dict[str, tuple[str, ...]] = {
    "bool": ("int", "int?"),
    "int": ("int?", "float", "float?"),
    "int?": ("float?",),
    "float": ("float?",),
    "word": ("words", "str"),
    "words": ("str",),
    "list": ("sequence",),
    "sequence": ("list",),
}
_BEGINNINGS = ("bool", "int", "word", "list", "int?")
_VALUES: dict[str, tuple[Any, ...]] = {
    "bool": (False, True),
    "int": (0, 1, 2, -70_000),
    "int?": (None, 0, 1, 2),
    "float": (0.0, 1.0, 2.5),
    "float?": (None, 0.0, 2.5),
    "word": ("a", "b"),
    "words": ("a", "b", "c"),
    "str": ("a", "c", "other"),
    "list": ([], [1], [2, 3]),
    "sequence": ((), (1,), (2, 3)),
}
_MAKERS = ("dataclass", "slots", "struct", "omitting", "rows", "tuple", "dict")
_ARRAYS = ("rows", "tuple")
_NAMES = ("a", "b", "c", "d")
_CHANGES = ("add", "add", "remove", "default", "default", "need", "widen", "widen", "turn")
_NONE = ...
"""No default; it is itself after a copy, too."""


@dataclass(frozen=True)
class _Field:
    kind: str
    default: Any = _NONE

    @property
    def is_required(self) -> bool:
        return self.default is _NONE


@dataclass(frozen=True)
class Version:
    """What one version of a job declares."""

    number: int
    maker: str
    module: str
    fields: Mapping[str, _Field]
    inner: Version | None = None
    """The class of one more field, which is always there."""

    @property
    def cls(self) -> Any:
        """The class; another one at each call."""
        return self.named(f"Value{self.number}")

    def named(self, name: str) -> Any:
        """The class with such a name."""
        maker = self.maker if self._takes(self.maker) else "dataclass"
        made = _MADE[maker](self, name)
        made.__module__ = self.module
        return made

    @property
    def is_array(self) -> bool:
        """Whether fields are written by place."""
        return self.maker in _ARRAYS and self._takes(self.maker)

    def value(self, rng: random.Random) -> Fields:
        """Some value; defaults are frequent."""
        made = {}
        for name, field in self.fields.items():
            made[name] = rng.choice(_VALUES[field.kind])
            if not field.is_required and rng.random() < 0.4:
                made[name] = field.default
        if self.inner is not None:
            made["inner"] = self.inner.value(rng)
        return made

    def object_of(self, value: Fields, cls: Any) -> Any:
        """The same as an object of the class, which may leave defaults to it."""
        parts = dict(value)
        if self.inner is not None:
            parts["inner"] = self.inner.object_of(value["inner"], _type_of(cls, "inner"))
        return cls(**parts)

    def fields_of(self, value: Any) -> Fields:
        """What the model has of such an object."""
        read: Callable[[str], Any] = (
            value.__getitem__ if isinstance(value, dict) else lambda name: getattr(value, name)
        )
        found = {name: read(name) for name in self.fields}
        if self.inner is not None:
            found["inner"] = self.inner.fields_of(read("inner"))
        return found

    def written(self, value: Fields) -> Any:
        """What msgpack has of it without a type."""
        parts = {
            name: list(part) if isinstance(part, tuple) else part for name, part in value.items()
        }
        if self.inner is not None:
            parts["inner"] = self.inner.written(value["inner"])
        return list(parts.values()) if self.is_array else parts

    def takes(self, before: Version) -> bool:
        """Whether values of that version can become such of this one."""
        added = [name for name in self.fields if name not in before.fields]
        if any(self.fields[name].is_required for name in added):
            return False
        if self.is_array:
            places = [*self.fields, *(("inner",) if self.inner else ())]
            if any(name in added for name in places[: len(places) - len(added)]):
                return False
        for name, field in self.fields.items():
            old = before.fields.get(name)
            if old and field.kind != old.kind and field.kind not in _all_wider(old.kind):
                return False
        return self.inner is None or before.inner is None or self.inner.takes(before.inner)

    def migrated(self, value: Fields) -> Fields:
        """What a value becomes that is written anew under this version."""
        made = {}
        for name, field in self.fields.items():
            part = value.get(name, field.default)
            if part is not None and name in value:
                part = _CONVERT.get(field.kind, _same)(part)
            made[name] = part
        if self.inner is not None:
            made["inner"] = self.inner.migrated(value["inner"])
        return made

    def _takes(self, maker: str) -> bool:
        """Whether such a class can have these fields: some have defaults only at their end."""
        needs = [field.is_required for field in self.fields.values()]
        if maker == "dict":
            return all(needs)
        by_place = maker in _ARRAYS
        return not by_place or (needs == sorted(needs, reverse=True) and self._ends_well(needs))

    def _ends_well(self, needs: list[bool]) -> bool:
        return self.inner is None or all(needs)


def first_version(rng: random.Random) -> Version:
    """The first of a chain."""
    inner = _first(rng, rng.sample(_NAMES, 2)) if rng.random() < 0.5 else None
    return replace(_first(rng, rng.sample(_NAMES, rng.randint(1, 3))), inner=inner)


def _first(rng: random.Random, names: list[str]) -> Version:
    fields = {name: _some_field(rng, rng.choice(_BEGINNINGS), 0.5) for name in names}
    return Version(0, rng.choice(_MAKERS), "jobs.v0", fields)


def later_version(rng: random.Random, before: Version) -> Version:
    """Another one, with few changes; most can be read."""
    fields = dict(before.fields)
    for _ in range(rng.randint(0, 2)):
        _change(rng, fields)
    inner = before.inner
    if inner is not None and rng.random() < 0.5:
        inner = later_version(rng, inner)
    number = before.number + 1
    maker = rng.choice(_MAKERS) if rng.random() < 0.2 else before.maker
    module = f"jobs.v{number}" if rng.random() < 0.3 else before.module
    return Version(number, maker, module, fields, inner)


def _change(rng: random.Random, fields: dict[str, _Field]) -> None:
    missing = [name for name in _NAMES if name not in fields]
    name = rng.choice(list(fields))
    match rng.choice(_CHANGES):
        case "add" if missing:
            is_fine = 0.95
            fields[rng.choice(missing)] = _some_field(rng, rng.choice(_BEGINNINGS), is_fine)
        case "remove" if len(fields) > 1:
            del fields[name]
        case "default":
            fields[name] = _some_field(rng, fields[name].kind, 1.0)
        case "need":
            fields[name] = _Field(fields[name].kind)
        case "widen" if fields[name].kind in _WIDER:
            fields[name] = _some_field(rng, rng.choice(_WIDER[fields[name].kind]), 0.5)
        case "turn":
            turned = list(fields.items())
            rng.shuffle(turned)
            fields.clear()
            fields.update(turned)


def _some_field(rng: random.Random, kind: str, share: float) -> _Field:
    return _Field(kind, rng.choice(_VALUES[kind])) if rng.random() < share else _Field(kind)


def _all_wider(kind: str) -> set[str]:
    found: set[str] = set()
    left = [kind]
    while left:
        for each in _WIDER.get(left.pop(), ()):
            if each not in found:
                found.add(each)
                left.append(each)
    if kind == "bool":  # which is no float, and no int that might become one
        found -= {"float", "float?"}
    return found


def _same(value: Any) -> Any:
    return value


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "int?": int,
    "float": float,
    "float?": float,
    "list": list,
    "sequence": tuple,
}


def _type_of(cls: Any, name: str) -> Any:
    return cls.__annotations__[name]


def _types(version: Version) -> dict[str, Any]:
    types = {name: _TYPES[field.kind] for name, field in version.fields.items()}
    if version.inner is not None:
        types["inner"] = version.inner.named(f"Inner{version.inner.number}")
    return types


def _factory(default: Any) -> Callable[[], Any]:
    return lambda: list(default)


def _dataclass(version: Version, name: str, **options: Any) -> Any:
    parts: list[Any] = []
    for field_name, kind in _types(version).items():
        field = version.fields.get(field_name)
        if field is None or field.is_required:
            parts.append((field_name, kind))
        elif isinstance(field.default, list):
            made = dataclasses.field(default_factory=_factory(field.default))
            parts.append((field_name, kind, made))
        else:
            parts.append((field_name, kind, dataclasses.field(default=field.default)))
    return dataclasses.make_dataclass(name, parts, kw_only=True, **options)


def _struct(version: Version, name: str, **options: Any) -> Any:
    parts: list[Any] = []
    for field_name, kind in _types(version).items():
        field = version.fields.get(field_name)
        if field is None or field.is_required:
            parts.append((field_name, kind))
        elif field.default == []:
            parts.append((field_name, kind, msgspec.field(default_factory=list)))
        elif isinstance(field.default, list):
            made = msgspec.field(default_factory=_factory(field.default))
            parts.append((field_name, kind, made))
        else:
            parts.append((field_name, kind, field.default))
    return msgspec.defstruct(name, parts, **options)


def _named_tuple(version: Version, name: str) -> Any:
    types = _types(version)
    defaults = [each.default for each in version.fields.values() if not each.is_required]
    make: Any = namedtuple  # noqa: PYI024 - one that is made of names
    made = make(name, list(types), defaults=defaults)
    made.__annotations__ = types
    return made


def _typed_dict(version: Version, name: str) -> Any:
    return TypedDict(name, _types(version))  # type: ignore[operator]


_MADE: dict[str, Callable[[Version, str], Any]] = {
    "dataclass": _dataclass,
    "slots": lambda version, name: _dataclass(version, name, slots=True, frozen=True),
    "struct": lambda version, name: _struct(version, name, kw_only=True),
    "omitting": lambda version, name: _struct(version, name, kw_only=True, omit_defaults=True),
    "rows": lambda version, name: _struct(version, name, array_like=True),
    "tuple": _named_tuple,
    "dict": _typed_dict,
}
