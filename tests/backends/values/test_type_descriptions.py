"""Descriptions of generic classes: with other arguments a class is another record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest

from holdfast.backends.schema.evolution import compare_values, migration_for
from holdfast.backends.schema.steps import Verdict
from holdfast.backends.values.codec import value_codec_for
from holdfast.backends.values.type_descriptions import Schema

T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    what: T


@dataclass
class Chain(Generic[T]):
    link: T
    next: Chain[T] | None = None


@dataclass
class Holder:
    boxes: list[Box[Box[str]]]
    other: Box[int]


BARE: Any = Box
OF_ANYTHING = Box[BARE]


def described(annotation: Any) -> Schema:
    return value_codec_for(annotation).describe()


NESTED: list[tuple[Any, Any]] = [
    (Box[Box[int]], Box(Box(1))),
    (Box[Box[str]], Box(Box("a"))),
    (Box[Box[Box[int]]], Box(Box(Box(1)))),
    (OF_ANYTHING, Box(Box(1))),
    (Box[list[Box[int]]], Box([Box(1)])),
    (Chain[int], Chain(1, Chain(2))),
    (Chain[Chain[int]], Chain(Chain(1, Chain(2)), Chain(Chain(3)))),
    (Box[Chain[Box[int]]], Box(Chain(Box(1), Chain(Box(2))))),
    (Holder, Holder([Box(Box("a"))], Box(1))),
]


@pytest.mark.parametrize(("annotation", "value"), NESTED, ids=str)
def test_generic_classes_within_themselves_are_told_apart(annotation: Any, value: Any) -> None:
    codec = value_codec_for(annotation)
    assert codec.decode(codec.encode(value)) == value
    for other, _ in NESTED:
        verdict = compare_values(described(other), codec.describe()).verdict
        # Plain data may become that of no type
        is_wider = annotation is OF_ANYTHING and other in (Box[Box[int]], Box[Box[str]])
        can_be_read = other is annotation or is_wider
        assert (verdict is not Verdict.INCOMPATIBLE) == can_be_read, other


def test_only_a_class_that_contains_itself_is_recursive() -> None:
    assert "recursive" not in str(described(Box[Box[Box[int]]]))
    assert str(described(Chain[int])).count("recursive") == 1


def test_a_schema_described_as_recursive_by_mistake_is_still_read() -> None:
    """Before this version: each box within a box was described as the outer one."""
    name = described(Box[int])["name"]
    what = {"name": "what", "schema": {"type": "recursive", "name": name}, "required": True}
    before = {"type": "record", "name": name, "layout": "map", "fields": [what]}
    codec = value_codec_for(Box[Box[int]])
    assert compare_values(before, codec.describe()).verdict is Verdict.AFTER_MIGRATION
    assert migration_for(before, codec)(codec.encode(Box(Box(1)))) == Box(Box(1))
