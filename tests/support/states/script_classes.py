"""A script whose classes are used in another process: run as `__main__`, as users' scripts are.

It prints what it knows of its classes, and writes pickles of them; `read` does the same in the
other process. Annotations are text here; `annotations=evaluated` in place of the line below makes
them what they say.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

import attrs
import msgspec

from holdfast.backends.values.codec import value_codec_for
from holdfast.runtime.spark.launching.pickling import pickled
from holdfast.storage import HoldfastError

__all__ = ["EXAMPLES"]

T = TypeVar("T")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


@dataclass
class Plain:
    first: int
    day: date
    color: Color = Color.RED
    many: list[int] = field(default_factory=lambda: [7])
    kind: ClassVar[str] = "plain"

    def total(self) -> int:
        return self.first + sum(self.many)


@dataclass(frozen=True, slots=True)
class Slotted:
    first: int
    second: int = 2


@dataclass
class Keywords:
    first: int
    _: KW_ONLY
    third: int
    second: int = 2


@dataclass
class Derived(Plain):
    last: int = 3


@dataclass
class Tree:
    first: int
    below: list[Tree]


@dataclass
class Box(Generic[T]):
    first: int
    what: T


class Struct(msgspec.Struct):
    first: int
    day: date
    many: list[int] = msgspec.field(default_factory=lambda: [7])
    second: int = 2

    def total(self) -> int:
        return self.first + sum(self.many)


class DerivedStruct(Struct, kw_only=True):
    last: int = 3
    needed: Decimal


class Tagged(msgspec.Struct, tag="t", rename="camel", frozen=True, omit_defaults=True):
    first: int
    the_second: int = 2

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ValueError("negative")


class ArrayStruct(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    first: int
    below: ArrayStruct | None


class BoxStruct(msgspec.Struct, Generic[T]):
    first: int
    what: T


class Named(NamedTuple):
    first: int
    day: date
    second: int = 2


class Typed(TypedDict):
    first: int
    day: NotRequired[date]


@attrs.define
class Attrs:
    first: int
    day: date
    second: int = 2
    many: list[int] = attrs.field(factory=list)

    def total(self) -> int:
        return self.first + sum(self.many)


class Counted(msgspec.Struct, kw_only=True, array_like=True, gc=False):
    first: int

    def __post_init__(self) -> None:
        self.first += 1


class CountedTwice(Counted):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.first += 10


def made_in_a_function() -> Any:
    """A class that no module has."""

    @dataclass
    class Local:
        first: int
        color: Color
        second: int = 2

    return Local


_LOCAL = made_in_a_function()
_DAY = date(2024, 5, 17)
EXAMPLES: dict[str, tuple[Any, Callable[[], Any]]] = {
    "enum": (Color, lambda: Color.BLUE),
    "int enum": (Level, lambda: Level.LOW),
    "dataclass": (Plain, lambda: Plain(1, _DAY)),
    "dataclass with slots": (Slotted, lambda: Slotted(1)),
    "dataclass with keywords": (Keywords, lambda: Keywords(1, third=3)),
    "derived dataclass": (Derived, lambda: Derived(1, _DAY, last=4)),
    "recursive dataclass": (Tree, lambda: Tree(1, [Tree(2, [])])),
    "generic dataclass": (Box[int], lambda: Box(1, 2)),
    "struct": (Struct, lambda: Struct(1, _DAY)),
    "derived struct": (DerivedStruct, lambda: DerivedStruct(1, _DAY, needed=Decimal(5))),
    "tagged struct": (Tagged, lambda: Tagged(1)),
    "array struct": (ArrayStruct, lambda: ArrayStruct(1, ArrayStruct(2, None))),
    "generic struct": (BoxStruct[int], lambda: BoxStruct(1, 2)),
    "struct that counts": (Counted, lambda: Counted(first=1)),
    "struct that counts twice": (CountedTwice, lambda: CountedTwice(first=1)),
    "class of a function": (_LOCAL, lambda: _LOCAL(1, Color.RED)),
    "NamedTuple": (Named, lambda: Named(1, _DAY)),
    "TypedDict": (Typed, lambda: Typed(first=1)),
    "attrs class": (Attrs, lambda: Attrs(1, _DAY)),
}


def facts(cls: Any, make: Callable[[], Any]) -> dict[str, Any]:
    """What a process knows of a class: all of it is the same in every process."""
    codec = value_codec_for(cls)
    example = make()
    found = {
        "schema": codec.describe(),
        "example": repr(example),
        "read back": repr(codec.decode(codec.encode(example))),
        "total": example.total() if hasattr(example, "total") else None,
    }
    for missing in ({}, {"first": 1}, {"type": "t", "first": -1}, [1]):
        try:
            found[f"from {missing}"] = repr(codec.decode(msgspec.msgpack.encode(missing)))
        except HoldfastError as error:
            found[f"from {missing}"] = f"{type(error).__name__}: {error.__cause__!r}"
    # A class of which a codec was made is sent as well as one that is new
    found["sent on"] = bool(pickled((cls, make)))
    return found


def main(directory: Path) -> None:
    """Write pickles of each class, from before and after it was used, and what is known of it."""
    first = {name: pickled((facts, *each)) for name, each in EXAMPLES.items()}
    known = {name: facts(*each) for name, each in EXAMPLES.items()}
    sent = [first, {name: pickled((facts, *each)) for name, each in EXAMPLES.items()}]
    (directory / "known.json").write_text(json.dumps(known))
    (directory / "sent.pickle").write_bytes(pickle.dumps(sent))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
