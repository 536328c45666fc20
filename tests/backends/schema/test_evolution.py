import datetime as dt
import enum
import json
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from itertools import product
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.schema.evolution import (
    check_pickle_allowed,
    compare_keys,
    compare_values,
    migration_for,
)
from holdfast.backends.schema.steps import Verdict
from holdfast.backends.values.codec import value_codec_for
from holdfast.backends.values.type_descriptions import are_alike
from holdfast.storage.errors import Corrupt, Invalid
from state_values import VALUES, Color, Fixed, Item, Node, Pair
from support.states.key_types import KEY_TYPES, Place

AS_IS, MIGRATION, INCOMPATIBLE = Verdict


def record(name: str, /, **fields: Any) -> Any:
    """A dataclass; a field is a type, or a type and its default."""
    parts = [
        (key, kind[0], field(default=kind[1])) if isinstance(kind, tuple) else (key, kind)
        for key, kind in fields.items()
    ]
    return make_dataclass(name, parts)


Old = record("Order", user=str, amount=int)
Added = record("Order", user=str, amount=int, note=(str, "none"))
AddedFirst = make_dataclass("Order", [("note", str, ""), ("user", str, ""), ("amount", int, 0)])
AddedBare = record("Order", user=str, amount=int, note=str)
Removed = record("Order", user=str)
Widened = record("Order", user=str, amount=float)
Everything = record("Order", amount=Decimal, user=(str | None, None), note=(int, 7))
Narrowed = record("Order", user=str, amount=str)
Moved = record("Purchase", amount=int, user=str)


class OldPair(NamedTuple):
    left: int
    right: float


class SwappedPair(NamedTuple):
    right: float
    left: int


class LongerPair(NamedTuple):
    left: int
    right: float
    weight: float = 1.0


class ShorterPair(NamedTuple):
    left: int


class GappedPair(NamedTuple):
    left: int
    weight: float = 1.0
    right: float = 0.0


PairRecord = record("Pair", left=int, right=float)


class OldColor(enum.Enum):
    RED = "red"


class OldOptions(TypedDict):
    limit: int
    name: NotRequired[str]


class FullOptions(TypedDict):
    limit: int
    name: str


class ShortOptions(TypedDict):
    limit: float


OptionsRecord = record("Options", limit=int, name=(str, "unnamed"))


class OptionsPair(NamedTuple):
    limit: int
    name: str = ""


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    user: str


class Cat(msgspec.Struct, tag="cat"):
    age: int


class Dog(msgspec.Struct, tag="dog"):
    age: int


class OlderCat(msgspec.Struct, tag="cat"):
    age: float


class OlderDog(msgspec.Struct, tag="dog"):
    age: float


class CatRow(msgspec.Struct, tag="cat", array_like=True):
    age: int


@dataclass
class Tree:
    value: float
    children: list["Tree"] = field(default_factory=list)
    other: "Tree | None" = None
    note: str = ""


CHANGES: list[tuple[Any, Any, Verdict, Any, Any]] = [
    (int, int, AS_IS, 1, 1),
    (int, int | None, AS_IS, 1, 1),
    (int, int | str, AS_IS, 1, 1),
    (int, Any, AS_IS, 1, 1),
    (dict[str, list[int | None]], Any, AS_IS, {"a": [1, None]}, {"a": [1, None]}),
    (bytes, bytearray, AS_IS, b"a", bytearray(b"a")),
    (list[int], list, AS_IS, [1], [1]),
    (list[int], tuple[int, ...], AS_IS, [1], (1,)),
    (tuple[int, int], list[int], AS_IS, (1, 2), [1, 2]),
    (set[int], frozenset[int], AS_IS, {1}, frozenset({1})),
    (set[int], list[int], AS_IS, {1}, [1]),
    (OldColor, Color, AS_IS, OldColor.RED, Color.RED),
    (Color, str, AS_IS, Color.RED, "red"),
    (Literal["red"], Color, AS_IS, "red", Color.RED),
    (Literal["a"], Literal["a", "b"], AS_IS, "a", "a"),
    (Literal["a"], str, AS_IS, "a", "a"),
    (Literal[1], int, AS_IS, 1, 1),
    (Literal["a"], Any, AS_IS, "a", "a"),
    (Old, Added, MIGRATION, Old("ann", 1), Added("ann", 1, "none")),
    (Old, AddedFirst, MIGRATION, Old("ann", 1), AddedFirst("", "ann", 1)),
    (Old, Removed, MIGRATION, Old("ann", 1), Removed("ann")),
    (Old, Moved, MIGRATION, Old("ann", 1), Moved(1, "ann")),
    (OldPair, LongerPair, MIGRATION, OldPair(1, 2.0), LongerPair(1, 2.0, 1.0)),
    (OldOptions, OptionsRecord, MIGRATION, {"limit": 1}, OptionsRecord(1)),
    (FullOptions, OldOptions, AS_IS, {"limit": 1, "name": "a"}, {"limit": 1, "name": "a"}),
    (Cat, Cat | Dog, AS_IS, Cat(1), Cat(1)),
    (bool, int, MIGRATION, True, 1),
    (int, float, MIGRATION, 1, 1.0),
    (int, float | None, MIGRATION, 1, 1.0),
    (int | None, float | None, MIGRATION, None, None),
    (int, Decimal | None | int, AS_IS, 1, 1),
    (int, Decimal, MIGRATION, -5, Decimal(-5)),
    (list[int], list[float], MIGRATION, [1, 2], [1.0, 2.0]),
    (list[int], tuple[float, ...], MIGRATION, [1, 2], (1.0, 2.0)),
    (tuple[int, str], tuple[float, str], MIGRATION, (1, "a"), (1.0, "a")),
    (tuple[int, bool], list[int], MIGRATION, (5, True), [5, 1]),
    (dict[int, bool], dict[float, int], MIGRATION, {1: True}, {1.0: 1}),
    (
        dict[tuple[int, int], int],
        dict[tuple[float, int], int],
        MIGRATION,
        {(1, 2): 3},
        {(1.0, 2): 3},
    ),
    (Old, Widened, MIGRATION, Old("ann", 1), Widened("ann", 1.0)),
    (Old, Everything, MIGRATION, Old("ann", 1), Everything(Decimal(1), "ann", 7)),
    (Old, Closed, MIGRATION, Old("ann", 1), Closed("ann")),
    (OldPair, SwappedPair, MIGRATION, OldPair(1, 2.0), SwappedPair(2.0, 1)),
    (LongerPair, OldPair, MIGRATION, LongerPair(1, 2.0, 3.0), OldPair(1, 2.0)),
    (OldPair, ShorterPair, MIGRATION, OldPair(1, 2.0), ShorterPair(1)),
    (OldPair, PairRecord, MIGRATION, OldPair(1, 2.0), PairRecord(1, 2.0)),
    (PairRecord, LongerPair, MIGRATION, PairRecord(1, 2.0), LongerPair(1, 2.0)),
    (OldOptions, ShortOptions, MIGRATION, {"limit": 1, "name": "a"}, {"limit": 1.0}),
    (Cat | Dog, OlderCat | OlderDog, MIGRATION, Dog(3), OlderDog(3.0)),
    (Cat, CatRow, MIGRATION, Cat(3), CatRow(3)),
    (CatRow, Cat, MIGRATION, CatRow(3), Cat(3)),
    (CatRow, OlderCat | OlderDog, MIGRATION, CatRow(3), OlderCat(3.0)),
    (
        Node,
        Tree,
        MIGRATION,
        Node(1, [Node(2, [Node(3)])], Node(4)),
        Tree(1.0, [Tree(2.0, [Tree(3.0)])], Tree(4.0)),
    ),
]


@pytest.mark.parametrize(("old", "new", "verdict", "value", "expected"), CHANGES)
def test_values_are_read_as_they_are_declared_now(
    old: Any, new: Any, verdict: Verdict, value: Any, expected: Any
) -> None:
    writer, reader = value_codec_for(old), value_codec_for(new)
    schema = json.loads(json.dumps(writer.describe()))
    change = compare_values(schema, reader.describe())
    assert change.verdict is verdict
    assert verdict is AS_IS or change.reasons
    change.require("the state")
    migrated = migration_for(schema, reader)(writer.encode(value))
    assert migrated == expected
    assert type(migrated) is type(expected)
    assert reader.check(migrated) is migrated
    if verdict is AS_IS:
        assert reader.encode(expected) == writer.encode(value)


BREAKS: list[tuple[Any, Any, str]] = [
    (int, str, "the value: int cannot become str"),
    (float, int, "the value: float cannot become int"),
    (int, bool, "the value: int cannot become bool"),
    (int | None, int, "the value: none cannot become int"),
    (int | str, int | None, "the value: str can become none of int, none"),
    (Any, int, "any cannot become int"),
    (Item, Any, "would come back as other data"),
    (dict[dt.date, int], Any, "would come back as other data"),
    (list[Decimal], list, r"\[\]: decimal would come back"),
    (list[int], set[int], "list cannot become set"),
    (list[int], tuple[int, int], "list cannot become tuple"),
    (tuple[int, int], tuple[int, int, int], "tuple cannot become tuple"),
    (tuple[int, str], list[int], r"\[1\]: str cannot become int"),
    (dict[str, int], dict[int, int], r"\{\}: str cannot become int"),
    (dict[str, int], dict[str, str], r"\[\]: int cannot become str"),
    (dict[str, int], Old, "dict cannot become record"),
    (str, Color, "str cannot become enum"),
    (Color, OldColor, "has no 'blue'"),
    (Color, int, "cannot become int"),
    (Literal["a", "b"], Literal["a"], "has no 'b'"),
    (Old, AddedBare, r"\.note: was added without a default"),
    (Old, Narrowed, r"\.amount: int cannot become str"),
    (OldPair, GappedPair, r"\.weight: was added before others, not at the end"),
    (OldOptions, FullOptions, r"\.name: may be missing, and has no default now"),
    (OldOptions, OptionsPair, r"\.name: may be missing, and now has a place"),
    (Cat, Dog, "other tags"),
    (Cat | Dog, Cat, "other tags"),
    (dt.date, dt.datetime, "date cannot become datetime"),
    (Node, Old, r"\.user: was added without a default"),
]


@pytest.mark.parametrize(("old", "new", "reason"), BREAKS)
def test_a_break_names_both_schemas_and_why(old: Any, new: Any, reason: str) -> None:
    writer, reader = value_codec_for(old), value_codec_for(new)
    change = compare_values(writer.describe(), reader.describe())
    assert change.verdict is INCOMPATIBLE
    with pytest.raises(Invalid, match=reason) as caught:
        change.require("value state 'total'", where="operator 'count'")
    assert caught.value.where == "operator 'count'"
    for schema in (writer.describe(), reader.describe()):
        assert msgspec.json.encode(schema).decode() in str(caught.value)
    with pytest.raises(Invalid, match=reason):
        migration_for(writer.describe(), reader)


def test_reasons_say_what_changed() -> None:
    change = compare_values(*(value_codec_for(each).describe() for each in (Old, Everything)))
    assert change.reasons == (
        ".amount: int becomes decimal",
        ".note: added with a default",
    )
    change = compare_values(*(value_codec_for(each).describe() for each in (Old, Removed)))
    assert change.reasons == (".amount: removed",)
    change = compare_values(*(value_codec_for(each).describe() for each in (OldPair, SwappedPair)))
    assert change.reasons == ("the value: its fields are in other places",)


def test_an_int_that_no_float_holds_is_not_rounded() -> None:
    migrate = migration_for({"type": "int"}, value_codec_for(float))
    with pytest.raises(Invalid, match="found 9007199254740993"):
        migrate(value_codec_for(int).encode(2**53 + 1))


def test_damaged_bytes_are_not_migrated() -> None:
    migrate = migration_for(value_codec_for(Old).describe(), value_codec_for(Widened))
    whole = value_codec_for(Old).encode(Old("ann", 1))
    for damaged in (b"", b"\xc1", whole[:-1], value_codec_for(int).encode(5), b"\x92\x01\x02"):
        with pytest.raises(Corrupt):
            migrate(damaged)


PAIRS = [
    (old, new, values)
    for (old, values, _), (new, _, _) in product(VALUES, VALUES)
    if compare_values(value_codec_for(old).describe(), value_codec_for(new).describe()).verdict
    is not INCOMPATIBLE
]


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.parametrize(
    ("old", "new", "values"), PAIRS, ids=[f"{one}-{two}" for one, two, _ in PAIRS]
)
@given(data=st.data())
def test_types_called_compatible_read_each_other_s_values(
    old: Any, new: Any, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    """Every pair of types that the rules let through, with drawn values: equal, or refused."""
    writer, reader = value_codec_for(old), value_codec_for(new)
    migrate = migration_for(writer.describe(), reader)
    value = data.draw(values)
    try:
        migrated = migrate(writer.encode(value))
    except Invalid:
        assert compare_values(writer.describe(), reader.describe()).verdict is MIGRATION
        return
    assert reader.check(migrated) is migrated
    if not isinstance(value, set | frozenset | tuple | list | bytes | enum.Enum | Fixed | Pair):
        assert migrated == value
    is_as_is = compare_values(writer.describe(), reader.describe()).verdict is AS_IS
    if is_as_is and not isinstance(value, set | frozenset):  # of sets the order may be another
        assert reader.encode(migrated) == writer.encode(value)


def test_most_pairs_are_tried() -> None:
    assert len(PAIRS) > len(VALUES)


@pytest.mark.parametrize("name", KEY_TYPES)
def test_equal_key_types_are_compatible(name: str) -> None:
    described = key_codec_for(KEY_TYPES[name].annotation).describe()
    assert compare_keys(described, json.loads(json.dumps(described))).verdict is AS_IS


class MovedPlace(NamedTuple):
    city: str
    number: int | None


class OtherPlace(NamedTuple):
    town: str
    number: int | None


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (Place, MovedPlace, AS_IS),
        (tuple[MovedPlace, int], tuple[Place, int], AS_IS),
        (MovedPlace, OtherPlace, INCOMPATIBLE),
        (MovedPlace, tuple[str, int | None], INCOMPATIBLE),
        (int, float, INCOMPATIBLE),
        (int, int | None, INCOMPATIBLE),
        (str, bytes, INCOMPATIBLE),
    ],
)
def test_the_type_of_a_key_cannot_change(old: Any, new: Any, verdict: Verdict) -> None:
    change = compare_keys(key_codec_for(old).describe(), key_codec_for(new).describe())
    assert change.verdict is verdict
    if verdict is INCOMPATIBLE:
        with pytest.raises(Invalid, match="the type of a key cannot change"):
            change.require("the key of operator 'count'")


def test_pickle_stays_pickle_and_is_marked() -> None:
    pickled = value_codec_for(int, pickle=True).describe()
    plain = value_codec_for(int).describe()
    assert compare_values(pickled, pickled).verdict is AS_IS
    assert compare_values(pickled, plain).verdict is INCOMPATIBLE
    assert compare_values(plain, pickled).verdict is INCOMPATIBLE
    check_pickle_allowed(plain, allowed=False, what="the state")
    check_pickle_allowed(pickled, allowed=True, what="the state")
    with pytest.raises(Invalid, match=r"the state is pickled.*operator 'a'"):
        check_pickle_allowed(pickled, allowed=False, what="the state", where="operator 'a'")


class Jar:
    pass


def test_a_pickle_of_another_class_is_pickled_anew() -> None:
    """Its bytes have the name of the class, which may be gone with the next version."""
    before = {**value_codec_for(Jar, pickle=True).describe(), "name": "old.Jar"}
    reader = value_codec_for(Jar, pickle=True, allow_pickle=True)
    change = compare_values(before, reader.describe())
    assert change.verdict is MIGRATION
    assert "pickle old.Jar becomes pickle" in change.reasons[0]
    assert isinstance(migration_for(before, reader)(reader.encode(Jar())), Jar)


class Frugal(msgspec.Struct, omit_defaults=True, frozen=True, rename="camel"):
    first_one: int = 1
    the_rest: list[int] = []
    inner: "Frugal | None" = None


class FrugalCat(msgspec.Struct, omit_defaults=True, tag="cat"):
    age: int = 0


class FrugalRow(msgspec.Struct, omit_defaults=True, array_like=True, tag="row"):
    age: int = 0


@dataclass
class Late:
    name: str
    count: int = field(default=5, init=False)


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        (
            Frugal,
            Frugal(inner=Frugal(2)),
            {
                "firstOne": 1,
                "theRest": [],
                "inner": {"firstOne": 2, "theRest": [], "inner": None},
            },
        ),
        (
            dict[str, list[Frugal]],
            {"a": [Frugal()]},
            {"a": [{"firstOne": 1, "theRest": [], "inner": None}]},
        ),
        (FrugalCat | Dog, FrugalCat(), {"type": "cat", "age": 0}),
        (FrugalRow, FrugalRow(), ["row", 0]),
        (Late, Late("a"), {"name": "a", "count": 5}),
        (list[Late], [Late("a")], [{"name": "a", "count": 5}]),
    ],
)
def test_a_record_is_written_with_all_its_fields(kind: Any, value: Any, written: Any) -> None:
    """So no default of a later version gets into it."""
    codec = value_codec_for(kind)
    assert msgspec.msgpack.decode(codec.encode(value)) == written
    assert codec.decode(codec.encode(value)) == value
    assert msgspec.msgpack.decode(codec.encode_many([value])[0]) == written
    assert "sparse" not in str(codec.describe())


def test_a_class_with_omit_defaults_is_refused_as_the_key_of_a_dict() -> None:
    with pytest.raises(Invalid, match="the key of a dict is declared with omit_defaults"):
        value_codec_for(dict[tuple[Frugal, int], int])


def test_records_from_before_may_lack_fields_and_are_written_anew() -> None:
    """Once, a Struct could leave out defaults, and a field could be added without a word."""
    described = value_codec_for(Added).describe()
    assert described.pop("whole")
    change = compare_values(described, value_codec_for(Added).describe())
    assert change.verdict is MIGRATION
    assert change.reasons == ("the value: it may have been written before it had all its fields",)
    migrate = migration_for(described, value_codec_for(Added))
    found = migrate(value_codec_for(Old).encode(Old("ann", 1)))
    assert vars(found) == {"user": "ann", "amount": 1, "note": "none"}
    described["sparse"] = True
    change = compare_values(described, value_codec_for(Added).describe())
    assert change.verdict is MIGRATION


def test_descriptions_are_alike_but_for_the_names_of_classes() -> None:
    described = value_codec_for(Node).describe()
    renamed = json.loads(json.dumps(described).replace(described["name"], "elsewhere.Knot"))
    assert renamed != described
    assert are_alike(described, renamed)
    assert compare_values(described, renamed).verdict is AS_IS
    for one, other in ((Old, Added), (Color, OldColor), (int, int | None), (Cat, Dog)):
        assert not are_alike(value_codec_for(one).describe(), value_codec_for(other).describe())


def test_a_type_from_a_newer_version_is_incompatible() -> None:
    assert compare_values({"type": "vector"}, {"type": "int"}).verdict is INCOMPATIBLE
