"""Raw tables, whose values stay the stored bytes since the job has not declared their types.

The description in a snapshot is enough to split keys into their parts, and to copy values as bytes.
It is not enough to make objects of a user's classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.codec import key_codec_described
from holdfast.backends.snapshots.neutral import TableInfo, keys_not_described
from holdfast.backends.tables.contract import StateKind, TableSpec
from holdfast.backends.values.codec import ValueCodec
from holdfast.backends.values.type_descriptions import Schema
from holdfast.storage import Corrupt

__all__ = ["is_known_kind", "is_raw", "raw_spec"]

_KINDS: Mapping[str, StateKind] = {
    "value": StateKind.VALUE,
    "reducing": StateKind.VALUE,
    "aggregating": StateKind.VALUE,
    "list": StateKind.LIST,
    "map": StateKind.MAP,
    "timers": StateKind.MAP,
}


@dataclass(frozen=True, slots=True)
class _RawValues(ValueCodec[bytes]):
    """Values that stay the stored bytes."""

    schema: Schema
    name = "bytes as they were written"
    is_immutable = False  # so tables of objects keep the bytes

    def check(self, value: object) -> bytes:
        assert isinstance(value, bytes)
        return value

    def encode(self, value: object) -> bytes:
        return self.check(value)

    def decode(self, data: bytes) -> bytes:
        return data

    def describe(self) -> Schema:
        return self.schema


def is_known_kind(info: TableInfo) -> bool:
    """Whether the kind of the table is known."""
    return info.kind in _KINDS


def is_raw(spec: TableSpec) -> bool:
    """Whether it is the spec of a raw table."""
    return isinstance(spec.values, _RawValues)


def raw_spec(name: str, info: TableInfo, keys: Schema | None) -> TableSpec:
    """The spec of the raw table `name`, with keys of the operator's schema.

    Raises:
        Corrupt: its kind is not known.
    """
    kind = _KINDS.get(info.kind)
    if kind is None:
        raise Corrupt(
            "a snapshot has a table of an unknown kind",
            where=f"table {info.name!r}",
            expected=", ".join(_KINDS),
            found=info.kind,
        )

    def key_codec() -> KeyCodec[Any]:
        if keys is None:
            raise keys_not_described(f"table {info.name!r}")
        return key_codec_described(keys)

    return TableSpec(
        name=name,
        kind=kind,
        key_type=key_codec,
        namespaces=None if info.namespaces is None else key_codec_described(info.namespaces),
        map_keys=None if info.map_keys is None else key_codec_described(info.map_keys),
        values=_RawValues(info.values),
        stamped=info.stamped,
    )
