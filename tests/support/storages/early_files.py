"""A writer that begins files before the checkpoint that refers to them, as a changelog does.

It stands for one slot, and knows of the job only what a slot would. Pieces of its log are written
between snapshots, and each snapshot refers to all pieces since the last *base*; a base takes long
to be written, several checkpoints perhaps, and then takes the place of the pieces before it. What
is in a file follows from its key, so that a reader of a checkpoint can tell whether it is right.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from holdfast.storage import Handle, JobStorage, SegmentWriter, StateSnapshot

__all__ = ["EARLY_KIND", "EarlyWriter", "check_early"]

EARLY_KIND = "test-early/1"
_SIZE = 300


class EarlyWriter:
    """`first` is a number that no checkpoint of an earlier attempt has had."""

    def __init__(
        self,
        job: JobStorage,
        chance: random.Random,
        first: int,
        restored: Iterable[StateSnapshot] = (),
    ) -> None:
        self._job = job
        self._chance = chance
        self._next = first
        """Above every barrier that it has seen."""
        self._pieces: dict[str, Handle] = {}
        """What a snapshot refers to, in order; a base comes first, if there is one."""
        self._base: SegmentWriter | None = None
        self._base_number = 0
        self._base_key = ""
        self._base_covers = 0
        """How many of the pieces it takes the place of."""
        self._made = 0
        for part in restored:
            self._pieces |= part.handles

    def act(self) -> None:
        """Do one thing that falls between two barriers."""
        chance = self._chance.random()
        if chance < 0.6:
            self._write_piece()
        elif self._base is None:
            self._begin_base()
        elif chance < 0.75:
            self._end_base(self._base)
        elif chance < 0.78:
            self._give_base_up(self._base)

    def snapshot(self, number: int, *, slot: int | None = None) -> StateSnapshot:
        """What it has, at the barrier of this number."""
        self._next = number + 1
        return StateSnapshot(
            kind=EARLY_KIND,
            handles=dict(self._pieces),
            slot=slot,
            begun_from=self.begun_from,
        )

    @property
    def begun_from(self) -> int | None:
        """The lowest number of what it has begun, and has not in its snapshots yet."""
        return self._next if self._base is None else self._base_number

    def close(self) -> None:
        """Leave what is not finished."""
        if self._base is not None:
            self._give_base_up(self._base)

    def _key(self, what: str) -> str:
        self._made += 1
        return f"{what}-{self._next}-{self._made}"

    def _write_piece(self) -> None:
        key = self._key("piece")
        with self._job.shared_segments(self._next, "early") as segments:
            self._pieces[key] = segments.add(_content(key))

    def _begin_base(self) -> None:
        self._base = self._job.shared_segments(self._next, "early")
        self._base_number, self._base_key = self._next, self._key("base")
        self._base_covers = len(self._pieces)
        self._base_handle = self._base.add(_content(self._base_key))

    def _end_base(self, base: SegmentWriter) -> None:
        base.close()
        later = list(self._pieces.items())[self._base_covers :]
        self._pieces = {self._base_key: self._base_handle, **dict(later)}
        self._base = None

    def _give_base_up(self, base: SegmentWriter) -> None:
        if self._chance.random() < 0.5:
            base.close()  # and no snapshot will refer to it
        else:
            base.abort()
        self._base = None


def check_early(job: JobStorage, part: StateSnapshot) -> None:
    """Read all of it, as a restore does."""
    assert part.kind == EARLY_KIND
    for key, handle in part.handles.items():
        assert job.read(handle) == _content(key), key


def _content(key: str) -> bytes:
    return key.encode().ljust(_SIZE, b".") * 3
