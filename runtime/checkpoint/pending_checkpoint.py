"""One checkpoint in progress: which slots and sources have answered."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from holdfast.runtime.checkpoint.commands import Begin, Store
from holdfast.runtime.protocol.checkpoints import OperatorStatistics, SlotStatistics
from holdfast.storage import StateSnapshot

__all__ = ["PendingCheckpoint"]


class PendingCheckpoint:
    """The answers to one `Begin`. Of two answers from one place the first counts.

    `slots` says how long it took in those that have answered, `size_bytes` what all answers take in
    storage, and `written_bytes` how much of that was written for this checkpoint.
    """

    def __init__(self, begun: Begin, *, slots: int, sources: Collection[str]) -> None:
        self.begun = begun
        self.slots: dict[int, SlotStatistics] = {}
        self.size_bytes = self.written_bytes = 0
        self.is_storing = False
        """Whether it is with the storage, where it may be complete already."""
        self._parts: dict[int, dict[str, tuple[StateSnapshot, ...]]] = {}
        self._in_flight: dict[int, tuple[StateSnapshot, ...]] = {}
        self._positions: dict[str, StateSnapshot] = {}
        self._missing_slots = set(range(slots))
        self._missing_sources = set(sources)

    @property
    def checkpoint_id(self) -> int:
        return self.begun.checkpoint_id

    @property
    def is_ready(self) -> bool:
        return not self._missing_slots and not self._missing_sources

    @property
    def is_aside(self) -> bool:
        """Whether it is a savepoint with which the job goes on.

        What is complete after it does not make it obsolete, nor it what came before.
        """
        request = self.begun.savepoint
        return request is not None and not request.purpose.ends_job

    def acknowledge(
        self,
        now_ms: int,
        slot: int,
        parts: Mapping[str, Sequence[StateSnapshot]],
        statistics: SlotStatistics,
        in_flight: Sequence[StateSnapshot] = (),
    ) -> None:
        """Take in what a slot has left."""
        if slot in self._missing_slots:
            self._missing_slots.discard(slot)
            self._parts[slot] = {uid: tuple(some) for uid, some in parts.items()}
            self._in_flight[slot] = tuple(in_flight)
            self.slots[slot] = self._completed(statistics, now_ms, parts, in_flight)
            self.size_bytes += self.slots[slot].size_bytes
            self.written_bytes += self.slots[slot].written_bytes

    def locate(self, uid: str, position: StateSnapshot) -> None:
        if uid in self._missing_sources:
            self._missing_sources.discard(uid)
            self._positions[uid] = position
            size, written = self._weighed([position])
            self.size_bytes += size
            self.written_bytes += written

    def _weighed(self, parts: Iterable[StateSnapshot]) -> tuple[int, int]:
        """What they take in storage, and what of it was written for this checkpoint."""
        listed = list(parts)
        size = sum(part.size_bytes for part in listed)
        if self.begun.savepoint is not None:
            return size, size
        return size, sum(part.written_bytes(self.checkpoint_id) for part in listed)

    def _completed(
        self,
        statistics: SlotStatistics,
        now_ms: int,
        parts: Mapping[str, Sequence[StateSnapshot]],
        in_flight: Sequence[StateSnapshot],
    ) -> SlotStatistics:
        """What a slot has measured, with what is known here."""
        operators = {}
        for uid, some in parts.items():
            size, written = self._weighed(some)
            known = statistics.operators.get(uid, OperatorStatistics())
            operators[uid] = replace(known, size_bytes=size, written_bytes=written)
        size, written = self._weighed(
            part for some in (*parts.values(), in_flight) for part in some
        )
        end_to_end_ms = now_ms - self.begun.triggered_ms
        return replace(
            statistics,
            start_delay_ms=max(end_to_end_ms - statistics.alignment_ms - statistics.async_ms, 0),
            end_to_end_ms=end_to_end_ms,
            size_bytes=size,
            written_bytes=written,
            persisted_in_flight_bytes=self._weighed(in_flight)[0],
            operators=statistics.operators | operators,
        )

    def missing(self) -> str:
        """The slots and sources that have not answered, for messages."""
        slots = ", ".join(str(slot) for slot in sorted(self._missing_slots))
        sources = ", ".join(repr(uid) for uid in sorted(self._missing_sources))
        named = ((slots, f"slots {slots}"), (sources, f"sources {sources}"))
        return " and ".join(text for names, text in named if names) or "none"

    def store(self) -> Store:
        """The command to store what was answered.

        Uids come in an order that does not depend on which slot was the fastest.
        """
        operators: dict[str, tuple[StateSnapshot, ...]] = {}
        for slot in sorted(self._parts):
            for uid, some in self._parts[slot].items():
                operators[uid] = operators.get(uid, ()) + some
        return Store(
            checkpoint_id=self.checkpoint_id,
            triggered_ms=self.begun.triggered_ms,
            trigger=self.begun.trigger,
            operators=dict(sorted(operators.items())),
            sources=dict(sorted(self._positions.items())),
            in_flight=tuple(
                part for slot in sorted(self._in_flight) for part in self._in_flight[slot]
            ),
            savepoint=self.begun.savepoint,
        )
