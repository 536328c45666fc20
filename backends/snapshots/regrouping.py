"""Assigning rows that were written with another max parallelism to their new key groups.

Each slot reads all files for that, hashes keys by the column, and holds one row group at a time.
Undeclared state that is held in memory is sorted as a whole, since segments are cut by key groups.
Only the canonical form supports this: in files of RocksDB and in logs rows are kept by key group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from holdfast.backends.arrow.keys import KeyForm
from holdfast.backends.blocks.block import Block
from holdfast.backends.keys.groups import KeyGroupRange, key_groups
from holdfast.backends.values.type_descriptions import Schema

__all__ = ["Regrouping", "in_order"]

_HELD_ROWS = 8 * 1024


class Regrouping:
    """Assigns key groups of this max parallelism. Raises `Corrupt` for an unknown type of keys."""

    def __init__(self, keys: Schema, max_parallelism: int) -> None:
        self._keys = KeyForm(keys)
        self._max_parallelism = max_parallelism

    def regrouped(self, block: Block, wanted: KeyGroupRange) -> Iterator[Block]:
        """The rows of the wanted key groups, if any, in order of key group.

        The sort is stable, so the elements of a list stay together and in order, also across
        blocks.
        """
        hashes = self._keys.hashes(block.keys, block.count)
        groups = key_groups(hashes, self._max_parallelism).astype(np.uint16)
        places = np.flatnonzero((groups >= wanted.first) & (groups <= wanted.last))
        if len(places):
            order = places[np.argsort(groups[places], kind="stable")]
            found = msgspec.structs.replace(block, groups=groups.tobytes())
            yield found.taken(order)


def in_order(blocks: Sequence[Block]) -> list[Block]:
    """The rows of blocks whose key groups overlap, as blocks in order of key group."""
    if not blocks:
        return []
    whole = Block.joined(blocks)
    whole = whole.taken(np.argsort(whole.group_array, kind="stable"))
    starts = range(0, whole.count, _HELD_ROWS)
    return [whole.rows(start, min(start + _HELD_ROWS, whole.count)) for start in starts]
