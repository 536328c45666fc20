"""Sets of changes: the changes of one table between two seals, in memory until written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from holdfast.backends.blocks.changes import Added, Change, Removed, SetHead, encode_set
from holdfast.backends.tables.contract import TableStore
from holdfast.changelog.recording.recorders import Recorded
from holdfast.changelog.recording.store import TakenChanges
from holdfast.storage import Handle

__all__ = ["ChangeSet", "Encoded"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A set as bytes, with its key groups and number of rows."""

    data: bytes
    first_group: int
    last_group: int
    rows: int


class ChangeSet:
    """One set of changes in memory. It is encoded once, by the first thread that needs it."""

    def __init__(
        self,
        store: TableStore,
        taken: TakenChanges,
        head: SetHead,
        seal: int,
        row_bytes: float,
        learn: Callable[[int, int], None],
    ) -> None:
        self.number = head.number
        self.seal = seal
        self.about_rows = taken.rows
        self.upload: Future[Handle] | None = None
        """Its upload between checkpoints, if one was requested."""
        self._store = store
        self._spec = taken.spec
        self._head = head
        self._about_bytes = round(taken.rows * row_bytes)
        self._learn = learn
        self._recorded: Recorded | None = taken.recorded
        self._encoded: Encoded | None = None
        self._lock = threading.Lock()

    @property
    def about_bytes(self) -> int:
        """Its size in bytes; an estimate until it is encoded."""
        return self._about_bytes if self._encoded is None else len(self._encoded.data)

    def encoded(self) -> Encoded:
        """The encoded set. Any thread."""
        with self._lock:
            if self._encoded is None:
                assert self._recorded is not None
                self._encoded = self._encode(self._recorded)
                self._recorded = None
            return self._encoded

    def _encode(self, recorded: Recorded) -> Encoded:
        changes: list[Change] = []
        for some in recorded():
            kind = Removed if some.cells is None else Added
            changes += map(kind, self._store.blocks(self._spec, some))
        blocks = [change.block for change in changes if change.block.count]
        data = encode_set(self._head, changes)
        rows = sum(block.count for block in blocks)
        self._learn(rows, len(data))
        return Encoded(
            data,
            min((int(block.group_array[0]) for block in blocks), default=0),
            max((int(block.group_array[-1]) for block in blocks), default=0),
            rows,
        )
