"""What a conversion does, decided before it begins: which operators, in which pieces.

Only decisions: nothing is read or written here. A plan is written down in the destination, so that
whoever resumes does the same.

It has the fingerprint of source and options, so a re-run does the same pieces or none. There are
several pieces for each worker, so that none waits for long. Another max parallelism takes two
steps: to read all of the source for each new range would cost the square of its size. So each range
is read once and put aside by new range, and a new range, which fits into memory, is sorted.
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
from holdfast.storage.jobs.metadata import encode_metadata

__all__ = ["ConversionOptions", "ConversionPlan", "OperatorPlan", "Span", "plan_conversion"]

_PIECE_BYTES = 128 * 1024 * 1024
"""About so much of the source, as it is stored, is one piece of work, or less for short ones: what
is done before a kill stays done."""
_LEAST_BYTES = 16 * 1024 * 1024
"""Less than this is not cut, so that more workers have some."""
_SORTED_BYTES = 16 * 1024 * 1024
"""About so much is put in order in memory at once, where key groups are others."""
_MOST_SORTED = 2048
_PACKED = 4
"""What is compressed may be so many times as much in memory."""
_FILES_BYTES = 4 * 1024 * 1024 * 1024
"""About so much is one database, if files of a store are written: whoever restores puts several of
one slot together."""
_SHARED_BYTES = 64 * 1024 * 1024
"""Who reads a piece of files of a store brings all of them here: not for less than this."""


class ConversionOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody has asked for. `backend` is None for one that any backend restores."""

    backend: str | None
    is_canonical: bool
    max_parallelism: int | None = None
    parallelism: int | None = None
    operators: tuple[str, ...] = ()


class Span(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Key groups from first to last, both inclusive."""

    first: int
    last: int

    @property
    def key_groups(self) -> KeyGroupRange:
        """The same, as a range."""
        return KeyGroupRange(self.first, self.last)


class OperatorPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is done with an operator.

    If its keys come to other key groups, its rows are first *spread*: read by the pieces `spread`
    of the source's key groups, and put aside by the piece that they come to.
    """

    uid: str
    parallelism: int
    max_parallelism: int
    pieces: tuple[Span, ...] = ()
    """Of the key groups as they are then; none if it has no keyed state."""
    spread: tuple[Span, ...] = ()


class ConversionPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that is done. `fingerprint` is of the source and of what was asked for."""

    fingerprint: str
    options: ConversionOptions
    operators: tuple[OperatorPlan, ...]


def plan_conversion(
    source: StoredSnapshot, options: ConversionOptions, *, is_files: bool, workers: int
) -> ConversionPlan:
    """What is to be done, by so many workers; `is_files` says that files of a store are written.

    Raises:
        NotFound: an operator is named that there is not.
        Invalid: the parallelism is above the max parallelism, or not legal.
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
    """Ranges of about as many key groups, as many of them as there can be."""
    count = max(1, min(pieces, len(key_groups)))
    bounds = [key_groups.first + len(key_groups) * number // count for number in range(count + 1)]
    return [Span(bounds[at], bounds[at + 1] - 1) for at in range(count)]


def _unpacked_bytes(part: StateSnapshot) -> int:
    """About what all of a part is in memory."""
    state_bytes = sum(handle.state_bytes for handle in part.handles.values())
    return state_bytes if part.kind == ENTRIES_KIND else state_bytes * _PACKED


def _shares(size_bytes: int, least_bytes: int, parts: int, workers: int) -> int:
    """Into how many pieces each of so many parts is cut, if every piece brings all of it here.

    No more than it takes for each worker to have one.
    """
    return min(_ceil(size_bytes, least_bytes), -(-workers // parts))


def _even(size_bytes: int, workers: int) -> int:
    """Into how many pieces so much is cut: as many for each worker, so that none waits for long."""
    pieces = _ceil(size_bytes, _PIECE_BYTES)
    if pieces > workers:
        return -(-pieces // workers) * workers
    return max(pieces, min(workers, _ceil(size_bytes, _LEAST_BYTES)))


def _ceil(size_bytes: int, each_bytes: int) -> int:
    return -(-size_bytes // each_bytes)


def _first(span: Span) -> int:
    return span.first


def _fingerprint(metadata: CheckpointMetadata, options: ConversionOptions) -> str:
    parts: Sequence[bytes] = (encode_metadata(metadata), msgspec.json.encode(options))
    return xxhash.xxh3_128_hexdigest(b"\x00".join(parts))
