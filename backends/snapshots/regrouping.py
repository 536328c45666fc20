"""Rows that were written with another max parallelism: their key groups, found from their keys.

Each slot reads all files for that, hashes keys by the column, and holds one row group at a time.
What is carried in memory is put in order as a whole, since segments are cut by key groups. Only the
canonical form can be read so: files of RocksDB and logs would change what is where.
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
    """To the key groups of this max parallelism. Raises `Corrupt` for no description of keys."""

    def __init__(self, keys: Schema, max_parallelism: int) -> None:
        self._keys = KeyForm(keys)
        self._max_parallelism = max_parallelism

    def regrouped(self, block: Block, wanted: KeyGroupRange) -> Iterator[Block]:
        """The rows of the wanted key groups, if there are some, in order of key group.

        Rows of one key group stay in their order, so the elements of a list stay side by side, and
        in their order, from one block to the next.
        """
        hashes = self._keys.hashes(block.keys, block.count)
        groups = key_groups(hashes, self._max_parallelism).astype(np.uint16)
        places = np.flatnonzero((groups >= wanted.first) & (groups <= wanted.last))
        if len(places):
            order = places[np.argsort(groups[places], kind="stable")]
            found = msgspec.structs.replace(block, groups=groups.tobytes())
            yield found.taken(order)


def in_order(blocks: Sequence[Block]) -> list[Block]:
    """The rows of blocks that overlap in key groups, in blocks that ascend."""
    if not blocks:
        return []
    whole = Block.joined(blocks)
    whole = whole.taken(np.argsort(whole.group_array, kind="stable"))
    starts = range(0, whole.count, _HELD_ROWS)
    return [whole.rows(start, min(start + _HELD_ROWS, whole.count)) for start in starts]
