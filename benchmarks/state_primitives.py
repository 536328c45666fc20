"""Keys and values of state: the key group of a column, bytes of keys and of values.

Figure of issue 2: the key group of an Arrow column at 50 million int64/s and 10 million short
strings/s, hash, murmur and modulo on one core. The peers are what one would write instead: a call
of xxhash for each string, and msgspec without a check.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from benchmarks.harness import Result, Scale, compare, rate
from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import key_group, key_groups
from holdfast.backends.keys.hashing import Hashes
from holdfast.backends.values.codec import value_codec_for

__all__ = ["run"]

_MAX_PARALLELISM = 128

Columns = dict[str, tuple[KeyCodec[Any], pa.Array]]


@dataclass(frozen=True)
class _Order:
    user: str
    amount: int
    price: float
    tags: list[str]
    note: str | None = None


def run(scale: Scale) -> Iterator[Result]:
    """Every figure of this module."""
    rows = scale.pick(1_000_000, 2_000)
    columns = _columns(rows)
    yield from _groups(scale, columns)
    yield from _against_calls(scale, columns)
    yield from _bytes_of_columns(scale, columns)
    yield from _rows(scale, columns)
    yield from _values(scale)


def _columns(rows: int) -> Columns:
    chance = random.Random(7)
    numbers = [chance.getrandbits(63) for _ in range(rows)]
    names = pa.array([f"user-{number % 1_000_000}" for number in numbers])
    few = pa.array([f"user-{number % (rows // 100)}" for number in numbers])
    longs = pa.array(numbers)
    strings = key_codec_for(str)
    return {
        "int64": (key_codec_for(int), longs),
        "string of 11 bytes": (strings, names),
        "string of 36 bytes": (strings, pa.array([f"{number:036x}" for number in numbers])),
        "dictionary of strings": (strings, few.dictionary_encode()),
        "struct of string and int64": (
            key_codec_for(tuple[str, int]),
            pa.StructArray.from_arrays([names, longs], ["user", "item"]),
        ),
    }


def _group(codec: KeyCodec[Any], column: pa.Array) -> Any:
    return key_groups(codec.hash_column(column), _MAX_PARALLELISM)


def _groups(scale: Scale, columns: Columns) -> Iterator[Result]:
    targets = {"int64": ">= 50000000", "string of 11 bytes": ">= 10000000"}
    for kind, (codec, column) in columns.items():
        yield Result(
            "state.key_group.column",
            f"{kind} keys/s",
            rate(partial(_group, codec, column), len(column), scale),
            _digest(_group(codec, column)),
            targets.get(kind, ""),
            {"rows": len(column), "max_parallelism": _MAX_PARALLELISM},
        )


def _call_for_each(column: pa.Array) -> Any:
    strings = column.cast(pa.binary()).to_pylist()
    return np.fromiter(map(xxhash.xxh32_intdigest, strings), np.uint32, len(strings))


def _against_calls(scale: Scale, columns: Columns) -> Iterator[Result]:
    codec, column = columns["string of 11 bytes"]
    yield Result(
        "state.key_hash.column",
        "times the speed of a call of xxhash for each string",
        compare(partial(codec.hash_column, column), partial(_call_for_each, column), scale),
        _digest(codec.hash_column(column)),
        parameters={"rows": len(column)},
    )


def _bytes_of_columns(scale: Scale, columns: Columns) -> Iterator[Result]:
    for kind, (codec, column) in columns.items():
        yield Result(
            "state.key_bytes.column",
            f"{kind} keys/s",
            rate(partial(codec.encode_column, column), len(column), scale),
            xxhash.xxh3_64_hexdigest(b"".join(codec.encode_column(column).to_pylist())),
            parameters={"rows": len(column)},
        )


def _rows(scale: Scale, columns: Columns) -> Iterator[Result]:
    count = scale.pick(200_000, 500)
    for kind in ("int64", "string of 11 bytes", "struct of string and int64"):
        codec, column = columns[kind]
        keys = column[:count].to_pylist()
        if kind.startswith("struct"):
            keys = [tuple(key.values()) for key in keys]
        hashes = codec.hash_many(keys).tolist()
        encoded = codec.encode_many(keys)
        yield _each(scale, "state.key.hash", kind, codec.hash, keys)
        yield _each(scale, "state.key.group", kind, _group_of_hash, hashes)
        yield _each(scale, "state.key.canonical", kind, codec.canonical, keys)
        yield _each(scale, "state.key.encode", kind, codec.encode, keys)
        yield _each(scale, "state.key.decode", kind, codec.decode, encoded)
        samples = rate(partial(codec.hash_many, keys), count, scale)
        answer = _digest(codec.hash_many(keys))
        yield Result("state.key.hash_many", f"{kind} keys/s", samples, answer)


def _group_of_hash(key_hash: int) -> int:
    return key_group(key_hash, _MAX_PARALLELISM)


def _each(
    scale: Scale, name: str, kind: str, action: Callable[[Any], Any], inputs: list[Any]
) -> Result:
    """How many calls a second, from a loop in C."""
    samples = rate(partial(_call_all, action, inputs), len(inputs), scale)
    answer = xxhash.xxh3_64_hexdigest(repr(_call_all(action, inputs)).encode())
    return Result(name, f"{kind} calls/s", samples, answer, parameters={"calls": len(inputs)})


def _call_all(action: Callable[[Any], Any], inputs: list[Any]) -> list[Any]:
    return list(map(action, inputs))


def _values(scale: Scale) -> Iterator[Result]:
    count = scale.pick(200_000, 500)
    chance = random.Random(7)
    ints = [chance.getrandbits(62) for _ in range(count)]
    names = [f"user-{number}" for number in ints]
    lists = [list(range(number % 1000, number % 1000 + 10)) for number in ints]
    orders = [_Order(f"user-{number}", number, number / 7, ["a", "b"]) for number in ints]
    yield from _values_of(scale, "int", int, ints)
    yield from _values_of(scale, "str", str, names)
    yield from _values_of(scale, "list of 10 int", list[int], lists)
    yield from _values_of(scale, "dataclass", _Order, orders)


def _values_of(scale: Scale, kind: str, annotation: Any, values: list[Any]) -> Iterator[Result]:
    codec = value_codec_for(annotation)
    encoded = codec.encode_many(values)
    answer = xxhash.xxh3_64_hexdigest(b"".join(encoded))
    bare_encode = msgspec.msgpack.Encoder().encode
    bare_decode = msgspec.msgpack.Decoder(annotation).decode
    yield _each(scale, "state.value.check", kind, codec.check, values)
    yield _each(scale, "state.value.encode", kind, codec.encode, values)
    yield _each(scale, "state.value.decode", kind, codec.decode, encoded)
    pairs = {
        "encode_many": (codec.encode_many, bare_encode, values),
        "decode_many": (codec.decode_many, bare_decode, encoded),
    }
    for name, (many, bare, inputs) in pairs.items():
        ours, peer = partial(many, inputs), partial(_call_all, bare, inputs)
        share = compare(ours, peer, scale)
        yield Result(f"state.value.{name}", f"share of msgspec alone, {kind}", share, answer)
        rates = rate(ours, len(inputs), scale)
        yield Result(f"state.value.{name}", f"{kind} values/s", rates, answer)


def _digest(hashes: Hashes) -> str:
    return xxhash.xxh3_64_hexdigest(hashes.tobytes())
