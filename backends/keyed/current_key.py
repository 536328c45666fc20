"""The current key of a backend: checks of its type, its key group, and that it is set."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from holdfast.backends.arrow.batches import to_list
from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.keys.groups import KeyGroupRange, key_group, key_groups
from holdfast.backends.schema.evolution import compare_keys
from holdfast.backends.values.codec import misfit_in
from holdfast.backends.values.normalizing import has_none
from holdfast.storage import Invalid

__all__ = ["NoKey", "OperatorKeys"]


class NoKey:
    """Stands for the current key when none is set: hashing it raises."""

    def __init__(self, what: str, *, where: str, fix: str) -> None:
        self._why = (what, where, fix)

    def __hash__(self) -> NoReturn:
        what, where, fix = self._why
        raise Invalid(what, where=where, fix=fix)

    def __eq__(self, other: object) -> bool:
        return self is other


class OperatorKeys:
    """The keys of one operator in one slot: their type, and the slot's key groups."""

    def __init__(
        self, uid: str, key_groups: KeyGroupRange, max_parallelism: int, key_type: Any
    ) -> None:
        self._where = f"operator {uid!r}"
        self.key_groups = key_groups
        self.max_parallelism = max_parallelism
        self._written: dict[str, Any] | None = None
        self._codec: KeyCodec[Any] | None = None
        self._has_all_groups = len(key_groups) == max_parallelism
        self.plain: type | None = None
        """int or str, if that is the type of keys and the slot has all key groups: such a key needs
        no more checks if it is in range, or ASCII."""
        if key_type is not None:
            self.declare(key_type)

    @property
    def codec(self) -> KeyCodec[Any]:
        """The codec of the keys.

        Raises:
            Invalid: no type was declared, and there was no key yet.
        """
        if self._codec is None:
            raise Invalid(
                "the type of keys is not known",
                where=self._where,
                fix="Pass key_type to open, or set a key first",
            )
        return self._codec

    @property
    def description(self) -> dict[str, Any] | None:
        """The type of keys as JSON, if it is known."""
        return self._written if self._codec is None else self._codec.describe()

    def declare(self, key_type: Any) -> None:
        """Take this as the type of keys.

        Raises:
            Invalid: keys cannot be of this type, or a snapshot has keys of another.
        """
        codec = key_codec_for(key_type)
        if self._written is not None:
            compare_keys(self._written, codec.describe()).require(
                "the keys of the snapshot", where=self._where
            )
        self._use(codec)

    def written(self, description: dict[str, Any]) -> None:
        """Take over the type of keys of a snapshot.

        Raises:
            Invalid: it is not the declared type.
        """
        if self._codec is None:
            self._written = description
            known = _type_of(description)
            if known is not None:
                self._use(key_codec_for(known))
        else:
            compare_keys(description, self._codec.describe()).require(
                "the keys of the snapshot", where=self._where
            )

    def _use(self, codec: KeyCodec[Any]) -> None:
        self._codec = codec
        if self._has_all_groups:
            self.plain = {"int": int, "str": str}.get(codec.describe()["type"])

    def admit(self, key: Any) -> Any:
        """The canonical form of a key.

        Raises:
            Invalid: the key is not of the type of keys, or not of this slot's key groups.
        """
        if self._codec is None:
            self.declare(_inferred(key))
        try:
            canonical = self.codec.canonical(key)
        except Invalid as error:
            what = "a key does not fit the keys of its operator"
            raise misfit_in(what, self._where, error) from None
        if not self._has_all_groups:
            group = key_group(self.codec.hash(canonical), self.max_parallelism)
            if group not in self.key_groups:
                raise self._outside(group)
        return canonical

    def admit_many(self, keys: Any) -> Sequence[Any]:
        """The canonical form of many keys, from an Arrow column or from a sequence.

        Raises:
            Invalid: as `admit` does, for any of them.
        """
        if not isinstance(keys, pa.Array | pa.ChunkedArray):
            return list(map(self.admit, keys))
        if len(keys) == 0:
            return []
        if self._codec is None:
            self.declare(_inferred(to_list(keys[:1])[0]))
        if not self._has_all_groups:
            self._check_groups(keys)
        return self.codec.canonical_column(keys)

    def _check_groups(self, keys: Any) -> None:
        groups = key_groups(self.codec.hash_column(keys), self.max_parallelism)
        outside = (groups < self.key_groups.first) | (groups > self.key_groups.last)
        if outside.any():
            raise self._outside(int(groups[np.argmax(outside)]))

    def _outside(self, group: int) -> Invalid:
        return Invalid(
            "a key belongs to another slot",
            where=self._where,
            expected=f"a key group within {self.key_groups}",
            found=f"key group {group} of {self.max_parallelism}",
            fix="Send each key to the slot that has its key group",
        )


def _inferred(key: Any) -> Any:
    """The type of a key as an annotation; tuples by their items."""
    if type(key) is tuple:
        return tuple.__class_getitem__(tuple(map(_inferred, key)))
    if isinstance(key, np.generic):
        return type(key.item())
    return type(key)


_SIMPLE: dict[str, Any] = {
    "int": int,
    "str": str,
    "bytes": bytes,
    "bool": bool,
    "float": float,
    "date": dt.date,
    "datetime": dt.datetime,
    "decimal": Decimal,
    "none": type(None),
}


def _type_of(description: dict[str, Any]) -> Any:
    """The annotation for a description of keys; None where the user's class is needed."""
    kind = description["type"]
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind == "tuple":
        items = tuple(map(_type_of, description["items"]))
        return None if has_none(items) else tuple.__class_getitem__(items)
    if kind == "union":
        members = [_type_of(member) for member in description["members"]]
        return None if has_none(members) else members[0] | members[1]
    return None
