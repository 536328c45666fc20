"""How elements and entries of operator state are represented in memory and in blocks.

As in the hashmap backend, values of immutable types are kept as objects and other values as their
bytes. So an object that was passed in or handed out cannot change state, or a snapshot that is
being written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.backends.blocks.block import Block, BlockRows, Column
from holdfast.backends.blocks.columns import (
    decode_keys,
    decode_values,
    encode_keys,
    encode_values,
    join_values,
    split_values,
)
from holdfast.backends.keys.base import KeyCodec
from holdfast.backends.operator_state.redistribution import Mode
from holdfast.backends.operator_state.snapshots import OperatorTable
from holdfast.backends.values.codec import ValueCodec, misfit_in
from holdfast.storage import Invalid

__all__ = ["OperatorForm"]

# Few at first: a single element may be long. Blocks grow by the length of the rows so far.
_FIRST_BLOCK_ROWS = 4


@dataclass(frozen=True, slots=True)
class OperatorForm:
    """One state: its name, how it is redistributed, and its types; `where` names the operator.

    What does not fit a type is refused with `Invalid`, which names the state and the operator.
    """

    name: str
    mode: Mode
    values: ValueCodec[Any]
    map_keys: KeyCodec[Any] | None
    where: str

    @property
    def table(self) -> OperatorTable:
        """How the state is written."""
        return OperatorTable(
            name=self.name,
            mode=self.mode,
            map_keys=None if self.map_keys is None else self.map_keys.describe(),
            values=self.values.describe(),
        )

    def cell(self, value: Any) -> Any:
        """The representation of a value in memory."""
        codec = self.values
        try:
            return codec.check(value) if codec.is_immutable else codec.encode(value)
        except Invalid as error:
            raise self._misfit("a value", error) from None

    def cells(self, values: Sequence[Any]) -> list[Any]:
        codec = self.values
        try:
            return codec.check_many(values) if codec.is_immutable else codec.encode_many(values)
        except Invalid as error:
            raise self._misfit("a value", error) from None

    def value(self, cell: Any) -> Any:
        return cell if self.values.is_immutable else self.values.decode(cell)

    def listed(self, cells: Sequence[Any]) -> list[Any]:
        """The value of each cell, in a new list."""
        return list(cells) if self.values.is_immutable else self.values.decode_many(cells)

    def map_key(self, map_key: Any) -> Any:
        """The canonical form of a map key."""
        assert self.map_keys is not None
        try:
            return self.map_keys.canonical(map_key)
        except Invalid as error:
            raise self._misfit("a map key", error) from None

    def blocks(self, map_keys: Sequence[Any] | None, cells: Sequence[Any]) -> Iterator[Block]:
        """The rows as blocks of about equal size in bytes, by the length of the rows so far."""
        rows, start = BlockRows(_FIRST_BLOCK_ROWS), 0
        while start < len(cells):
            part = slice(start, start + rows.count)
            block = self._block(None if map_keys is None else map_keys[part], cells[part])
            yield block
            start += block.count
            size_bytes = len(block.values) + len(block.map_keys.data if block.map_keys else b"")
            rows.learn(block.count, size_bytes)

    def rows(self, block: Block) -> tuple[list[Any], list[Any]]:
        """The map keys (none where the state is no map) and the cells of a block."""
        map_keys: list[Any] = []
        if self.map_keys is not None and block.map_keys is not None:
            map_keys = decode_keys(self.map_keys, block.map_keys, block.count)
        read = decode_values if self.values.is_immutable else split_values
        return map_keys, read(self.values, block.values, self.where)

    def _block(self, map_keys: Sequence[Any] | None, cells: Sequence[Any]) -> Block:
        write = encode_values if self.values.is_immutable else join_values
        keys = None
        if self.map_keys is not None and map_keys is not None:
            keys = encode_keys(self.map_keys, map_keys)
        return Block(
            count=len(cells),
            groups=b"",
            keys=Column(b""),
            namespaces=None,
            map_keys=keys,
            values=write(self.values, cells),
            stamps=None,
        )

    def _misfit(self, what: str, error: Invalid) -> Invalid:
        return misfit_in(f"{what} does not fit state {self.name!r}", self.where, error)
