"""State without keys from columns of a DataFrame: the blocks of each slot."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa

from holdfast.backends.blocks.block import Block
from holdfast.backends.keys.codec import key_codec_for
from holdfast.backends.operator_state.forms import OperatorForm
from holdfast.backends.operator_state.redistribution import Mode
from holdfast.backends.operator_state.snapshots import OperatorTable
from holdfast.backends.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
)
from holdfast.backends.state.from_descriptors import shape_of
from holdfast.savepoints.writing.encoded_columns import KeyPart, ValuePart
from holdfast.savepoints.writing.keyed_rows import RowColumns
from holdfast.storage.errors import Invalid

__all__ = ["UnkeyedRows"]


class UnkeyedRows:
    """Encodes a state without keys from columns, as a whole in memory."""

    def __init__(self, descriptor: StateDescriptor, *, union: bool, where: str) -> None:
        """A list, which `union` gives to each slot as a whole; or a map, broadcast to all slots.

        Raises:
            Invalid: the descriptor is not of a list or a map, has a time to live, or asks for
                pickles; or `union` is set for a map.
        """
        if not isinstance(descriptor, ListStateDescriptor | MapStateDescriptor):
            raise Invalid(
                "state without keys is a list, or a map",
                where=where,
                expected="a ListStateDescriptor or a MapStateDescriptor",
                found=repr(descriptor),
            )
        if descriptor.ttl is not None or descriptor.pickle:
            raise Invalid(
                f"state {descriptor.name!r} cannot be written from columns",
                where=where,
                expected="no time to live, which state without keys does not have, and no pickles",
                found=repr(descriptor),
            )
        mode, map_keys, values = Mode.LIST, None, shape_of(descriptor, allow_pickle=False).values
        if union and isinstance(descriptor, MapStateDescriptor):
            raise Invalid(
                f"state {descriptor.name!r} is a map, which each slot has as a whole already",
                where=where,
                expected="union=True for a list only",
                found=repr(descriptor),
            )
        if isinstance(descriptor, MapStateDescriptor):
            mode, map_keys = Mode.BROADCAST, key_codec_for(descriptor.key_type)
        elif union:
            mode = Mode.UNION_LIST
        self._form = OperatorForm(descriptor.name, mode, values, map_keys, where)

    @property
    def table(self) -> OperatorTable:
        return self._form.table

    def dealt(self, rows: pa.Table, columns: RowColumns, slots: int) -> list[Iterator[Block]]:
        """The blocks of each slot, distributed to a number of slots.

        Raises:
            Invalid: a column does not fit, or a map has a key twice.
        """
        if columns.position is not None:
            rows = rows.sort_by(columns.position)
        assert columns.value is not None, "only timers have no values"
        values = ValuePart(self._form.values, is_packed=columns.is_packed)
        packed = values.packed(rows.column(columns.value).combine_chunks(), columns.value)
        items = self._form.values.decode_many(packed.to_pylist())
        cells = self._form.cells(items)
        keys = self._map_keys(rows, columns)
        if self._form.mode is Mode.LIST:
            ends = [slot * len(cells) // slots for slot in range(slots + 1)]
            parts = [slice(*pair) for pair in pairwise(ends)]
            return [self._form.blocks(None, cells[part]) for part in parts]
        full = slots if self._form.mode is Mode.BROADCAST else 1
        return [
            self._form.blocks(keys, cells) if slot < full else iter(()) for slot in range(slots)
        ]

    def _map_keys(self, rows: pa.Table, columns: RowColumns) -> list[Any] | None:
        codec = self._form.map_keys
        if codec is None:
            return None
        name = columns.map_key
        if name is None:
            raise Invalid(
                f"no column is named for the keys of map {self._form.name!r}",
                where=self._form.where,
                fix="Pass map_key=",
            )
        part = KeyPart(codec.describe(), "map key")
        encoded = part.encoded(rows.column(name).combine_chunks(), name)
        keys = list(map(codec.decode, encoded.to_pylist()))
        if len(set(keys)) < len(keys):
            twice = next(key for place, key in enumerate(keys) if key in keys[:place])
            raise Invalid(
                f"rows are not state {self._form.name!r}: a key of the map is there twice",
                where=self._form.where,
                expected="each of them in one row",
                found=f"two rows for {twice!r}",
            )
        return keys
