"""The plan of a conversion: which operators, in which pieces. Decides only, without I/O.

A plan is noted in the destination, with a fingerprint of source and options: a run that resumes
does the same pieces, and a run with other options is refused. There are several pieces for each
worker, so that none idles for long at the end.

Another max parallelism takes two phases. Reading the whole source for each new range of key groups
would cost the square of its size. So each old range is read once and its rows are put aside by new
range; then each new range, which fits into memory, is sorted and written.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import xxhash

from holdfast.backends import key_groups_of_slots
from holdfast.backends.keys.groups import KeyGroupRange, check_parallelism
from holdfast.backends.snapshots.neutral import ENTRIES_KIND, PARQUET_KIND
from holdfast.backends.snapshots.restores import KEYED_KINDS
from holdfast.savepoints.finding import StoredSnapshot
from holdfast.storage import CheckpointMetadata, Invalid, NotFound, OperatorState, StateSnapshot
from holdfast.storage.jobs.metadata import METADATA

__all__ = ["ConversionOptions", "ConversionPlan", "OperatorPlan", "Span", "plan_conversion"]

_PIECE_BYTES = 128 * 1024 * 1024
"""Stored bytes of the source in one piece, at most about: a kill loses no more than this for each
worker."""
_LEAST_BYTES = 16 * 1024 * 1024
"""A source is not cut finer than this just to give every worker a piece."""
_SORTED_BYTES = 16 * 1024 * 1024
"""Bytes that one piece sorts in memory, about, if key groups change."""
_MOST_SORTED = 2048
"""Each spreading piece has a buffer and a segment for every sorted piece: so there is a bound."""
_PACKED = 4
"""Assumed ratio of bytes in memory to compressed bytes."""
_FILES_BYTES = 4 * 1024 * 1024 * 1024
"""Bytes of one database, about, if files of a store are written; a restore merges several
databases of one slot."""
_SHARED_BYTES = 64 * 1024 * 1024
"""Each piece of files of a store downloads all files of its part: so it must be worth this much."""


class ConversionOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the caller. `backend` is None for a savepoint that any backend restores."""

    backend: str | None
    is_canonical: bool
    max_parallelism: int | None = None
    parallelism: int | None = None
    operators: tuple[str, ...] = ()


class Span(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Key groups from first to last, inclusive."""

    first: int
    last: int

    @property
    def key_groups(self) -> KeyGroupRange:
        """The same, as a range."""
        return KeyGroupRange(self.first, self.last)


class OperatorPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The plan for one operator.

    If keys get other key groups, rows are *spread* first: each of the ranges `spread` of the
    source's key groups is read, and its rows are put aside by their new piece.
    """

    uid: str
    parallelism: int
    max_parallelism: int
    pieces: tuple[Span, ...] = ()
    """Ranges of new key groups; none if the operator has no keyed state."""
    spread: tuple[Span, ...] = ()


class ConversionPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole plan. `fingerprint` is a hash of the source's metadata and the options."""

    fingerprint: str
    options: ConversionOptions
    operators: tuple[OperatorPlan, ...]


def plan_conversion(
    source: StoredSnapshot, options: ConversionOptions, *, is_files: bool, workers: int
) -> ConversionPlan:
    """Plan a conversion for a number of workers; `is_files`: files of a store are written.

    Raises:
        NotFound: the options name an unknown operator, or there is no state.
        Invalid: the parallelism is above the max parallelism, or out of range.
    """
    metadata = source.metadata
    for uid in options.operators:
        source.check_uid(uid)
    if not metadata.operators:
        raise NotFound(
            "there is no state to convert",
            where=str(source.point),
            expected="operators that have left state",
            found="none",
        )
    wanted = options.operators or sorted(metadata.operators)
    planned = [
        _operator(uid, metadata.operators[uid], options, is_files=is_files, workers=workers)
        for uid in wanted
    ]
    return ConversionPlan(
        fingerprint=_fingerprint(metadata, options), options=options, operators=tuple(planned)
    )


def _operator(
    uid: str, left: OperatorState, options: ConversionOptions, *, is_files: bool, workers: int
) -> OperatorPlan:
    parallelism = options.parallelism or left.parallelism
    max_parallelism = options.max_parallelism or left.max_parallelism
    try:
        check_parallelism(parallelism, max_parallelism)
    except Invalid as error:
        raise Invalid(
            f"operator {uid!r} cannot have this parallelism",
            expected=f"{error.expected or 'at most the max parallelism'}",
            found=f"parallelism {parallelism}, max parallelism {max_parallelism}",
            fix="Pass --max-parallelism and --parallelism that go together",
        ) from error
    keyed = [part for part in left.parts if part.kind in KEYED_KINDS and part.key_groups]
    if not keyed:
        return OperatorPlan(uid=uid, parallelism=parallelism, max_parallelism=max_parallelism)
    size_bytes = sum(part.size_bytes for part in keyed)
    is_spread = max_parallelism != left.max_parallelism
    is_streamed = all(part.kind in (ENTRIES_KIND, PARQUET_KIND) for part in keyed)
    reading = (
        _cut(KeyGroupRange(0, left.max_parallelism - 1), _even(size_bytes, workers))
        if is_streamed
        else [
            span
            for part in keyed
            for span in _cut(
                KeyGroupRange(*part.key_groups or ()),
                _shares(part.size_bytes, _SHARED_BYTES, len(keyed), workers),
            )
        ]
    )
    if is_files:
        slots = key_groups_of_slots(parallelism, max_parallelism)
        each_bytes = size_bytes // len(slots)
        databases = (
            _ceil(each_bytes, _FILES_BYTES)
            if is_streamed or is_spread
            else _shares(each_bytes, _FILES_BYTES, len(slots), workers)
        )
        pieces = [span for slot in slots for span in _cut(slot, databases)]
    elif is_spread:
        count = min(_ceil(sum(map(_unpacked_bytes, keyed)), _SORTED_BYTES), _MOST_SORTED)
        pieces = _cut(KeyGroupRange(0, max_parallelism - 1), count)
    else:
        pieces = list(reading)
    return OperatorPlan(
        uid=uid,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        pieces=tuple(sorted(pieces, key=_first)),
        spread=tuple(sorted(reading, key=_first)) if is_spread else (),
    )


def _cut(key_groups: KeyGroupRange, pieces: int) -> list[Span]:
    """Up to `pieces` ranges of nearly the same number of key groups."""
    count = max(1, min(pieces, len(key_groups)))
    bounds = [key_groups.first + len(key_groups) * number // count for number in range(count + 1)]
    return [Span(bounds[at], bounds[at + 1] - 1) for at in range(count)]


def _unpacked_bytes(part: StateSnapshot) -> int:
    """Estimated bytes of a part in memory."""
    state_bytes = sum(handle.state_bytes for handle in part.handles.values())
    return state_bytes if part.kind == ENTRIES_KIND else state_bytes * _PACKED


def _shares(size_bytes: int, least_bytes: int, parts: int, workers: int) -> int:
    """The number of pieces of each part if every piece downloads the whole part.

    No more than it takes to give each worker one piece.
    """
    return min(_ceil(size_bytes, least_bytes), -(-workers // parts))


def _even(size_bytes: int, workers: int) -> int:
    """The number of pieces for a size: a multiple of the workers, so that they end together."""
    pieces = _ceil(size_bytes, _PIECE_BYTES)
    if pieces > workers:
        return -(-pieces // workers) * workers
    return max(pieces, min(workers, _ceil(size_bytes, _LEAST_BYTES)))


def _ceil(size_bytes: int, each_bytes: int) -> int:
    return -(-size_bytes // each_bytes)


def _first(span: Span) -> int:
    return span.first


def _fingerprint(metadata: CheckpointMetadata, options: ConversionOptions) -> str:
    parts: Sequence[bytes] = (METADATA.seal(metadata), msgspec.json.encode(options))
    return xxhash.xxh3_128_hexdigest(b"\x00".join(parts))
