"""The current key of a backend: checks of its type, its key group, and that it is set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from holdfast.backends.arrow.batches import to_list
from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.keys.codec import is_without_classes, key_codec_described, key_codec_for
from holdfast.backends.keys.groups import KeyGroupRange, key_group, key_groups
from holdfast.backends.schema.evolution import compare_keys
from holdfast.backends.values.codec import misfit_in
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
    """The keys of one operator in one slot: their type, and the slot's key groups.

    Refused with `Invalid` are a type that keys cannot have, or that is not the one of a snapshot,
    and a key that is not of the type, or not of the slot's key groups.
    """

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
        """Take this as the type of keys."""
        codec = key_codec_for(key_type)
        if self._written is not None:
            compare_keys(self._written, codec.describe()).require(
                "the keys of the snapshot", where=self._where
            )
        self._use(codec)

    def written(self, description: dict[str, Any]) -> None:
        """Take over the type of keys of a snapshot."""
        if self._codec is None:
            self._written = description
            if is_without_classes(description):
                self._use(key_codec_described(description))
        else:
            compare_keys(description, self._codec.describe()).require(
                "the keys of the snapshot", where=self._where
            )

    def _use(self, codec: KeyCodec[Any]) -> None:
        self._codec = codec
        if self._has_all_groups:
            self.plain = {"int": int, "str": str}.get(codec.describe()["type"])

    def admit(self, key: Any) -> Any:
        """The canonical form of a key."""
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
        """The canonical form of many keys, from an Arrow column or from a sequence."""
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
