"""What readers of a simulated job may see while it runs, and have to see in its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from support.simulations.jobs import Row

__all__ = ["AtLeastOnce", "ExactlyOnce", "Rule"]

Seen = Mapping[str, Counter[Row]]
"""By uid of the sink."""
_STAGES = 3
"""Places where a row may be counted once more by one restore: each chain on its way."""


class Rule(Protocol):
    """What a mode of checkpoints promises of a job's rows."""

    def is_sound(self, part: str, more: Counter[Row], seen: Counter[Row]) -> bool:
        """Whether readers may see the rows of this part too; `seen` is what they see then."""
        ...

    def is_complete(self, seen: Seen) -> bool:
        """Whether readers see all that they should, when the job has ended."""
        ...


class ExactlyOnce:
    """Each row of the answer, once."""

    def __init__(self, right: Seen) -> None:
        self._right = right

    def is_sound(self, part: str, more: Counter[Row], seen: Counter[Row]) -> bool:
        return seen <= self._right[_uid(part)]

    def is_complete(self, seen: Seen) -> bool:
        return seen == self._right


class AtLeastOnce:
    """Each row counts once at least, and more often only in what a restore repeats.

    A window may fire once more for rows that come again. So sums over all results of a window are
    compared, but for those that were committed before the first restored checkpoint began: no row
    of them comes again. What one restore repeats may come after the next one only.
    """

    def __init__(
        self,
        right: Seen,
        committed: Mapping[str, Sequence[Row]],
        restored: Mapping[str, int],
        *,
        is_one_at_once: bool,
    ) -> None:
        self._least = {uid: _sums(rows) for uid, rows in right.items()}
        self._single = {
            uid: {key for key, count in Counter(map(_key, rows.elements())).items() if count == 1}
            for uid, rows in right.items()
        }
        self._committed = committed
        self._restored = restored
        self._is_one_at_once = is_one_at_once

    def is_sound(self, part: str, more: Counter[Row], seen: Counter[Row]) -> bool:
        uid, attempt, _, _ = part.split("/")
        # Rows behind the barriers of one checkpoint may be in an older one that is under way too.
        if self._is_one_at_once and self._restored[attempt]:
            settled = self._settled(uid, min(filter(None, self._restored.values())))
            if any(_key(row) in settled for row in more):
                return False
        most = len(self._restored) ** _STAGES
        return _sums(seen) <= Counter({key: n * most for key, n in self._least[uid].items()})

    def is_complete(self, seen: Seen) -> bool:
        return all(least <= _sums(seen[uid]) for uid, least in self._least.items())

    def _settled(self, uid: str, restored: int) -> set[Row]:
        """What was committed with checkpoints before this one, of windows with one result."""
        parts = (
            rows
            for part, rows in self._committed.items()
            if _uid(part) == uid and int(part.split("/")[2]) < restored
        )
        return {_key(row) for rows in parts for row in rows} & self._single[uid]


def _uid(part: str) -> str:
    return part.partition("/")[0]


def _key(row: Row) -> Row:
    """Town and time; the last column of all results is an amount."""
    return row[:-1]


def _sums(rows: Counter[Row]) -> Counter[Row]:
    sums: Counter[Row] = Counter()
    for row, count in rows.items():
        sums[_key(row)] += row[-1] * count
    return sums
