"""Deadlines of an attempt for its slots: to start, to send heartbeats, and to end."""

from __future__ import annotations

__all__ = ["SlotDeadlines"]

_DEPLOY_TIMEOUT_S = 120.0
_HEARTBEAT_TIMEOUT_S = 30.0
_FINISH_TIMEOUT_S = 60.0
_LEAST_ROOM_TIMEOUT_S = 2.0
"""With a request timeout of zero, the answer that task slots are free still takes this long."""


class SlotDeadlines:
    """Deadlines, decided from events and times of a steady clock that the caller passes in.

    `heard` may be called from any thread, the rest from one. Slots that were told to finish first
    commit prepared output, which may take as long as the sink's storage takes. Heartbeats with
    `is_closing` say that a slot has committed and only closes its operators.
    """

    def __init__(self, slots: int, now_s: float, room_timeout_s: float) -> None:
        self._slots = slots
        self._came = 0
        self._room_timeout_s = room_timeout_s
        self._has_room = False
        self._deadline_s: float | None = now_s + max(room_timeout_s, _LEAST_ROOM_TIMEOUT_S)
        self._last_beat_s: dict[int, float] = {}
        self._is_finishing = False
        self._closing: set[int] = set()

    def found_room(self, now_s: float) -> None:
        """Task slots are free for all slots; Spark starts them."""
        self._has_room = True
        if self._came < self._slots:
            self._deadline_s = now_s + _DEPLOY_TIMEOUT_S

    def came(self, slot: int, now_s: float) -> None:
        """A slot has registered. The last one ends the deadline for registration."""
        self._last_beat_s[slot] = now_s
        self._came += 1
        if self._came == self._slots:
            self._deadline_s = None

    def heard(self, slot: int, now_s: float, *, is_closing: bool) -> None:
        self._last_beat_s[slot] = now_s
        if is_closing:
            self._closing.add(slot)
        elif self._is_finishing:
            self._deadline_s = now_s + _FINISH_TIMEOUT_S

    @property
    def all_is_committed(self) -> bool:
        """Whether every slot has committed all output: no failure after that loses anything."""
        return len(self._closing) == self._slots

    def finish(self, now_s: float) -> None:
        """The slots were told to finish. From now on a slot without heartbeats is no failure."""
        self._deadline_s = now_s + _FINISH_TIMEOUT_S
        self._is_finishing = True

    def lost(self, now_s: float) -> str:
        """The deadline that has passed, as a message; empty if none has."""
        if self._deadline_s is not None and now_s > self._deadline_s:
            if self._is_finishing:
                late = sorted({*range(self._slots)} - self._closing)
                which = f"slot{'s' * (len(late) > 1)} {', '.join(map(str, late))}"
                return f"{which if late else 'a slot'} did not end within {_FINISH_TIMEOUT_S:g} s"
            if not self._has_room:
                return (
                    f"there were too few task slots for {self._room_timeout_s:g} s "
                    "(slot.request.timeout)"
                )
            return (
                f"{self._came} of {self._slots} slots have come within {_DEPLOY_TIMEOUT_S:g} s: "
                "something else in the session takes the task slots, or executors cannot start "
                "Python; slots must all run at once"
            )
        for slot, last_s in list(self._last_beat_s.items()):
            if not self._is_finishing and now_s - last_s > _HEARTBEAT_TIMEOUT_S:
                return f"slot {slot} has not been heard of for {_HEARTBEAT_TIMEOUT_S:g} s"
        return ""
