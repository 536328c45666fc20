"""How long an attempt waits for its slots, and what is said when they keep it waiting longer."""

from __future__ import annotations

__all__ = ["SlotDeadlines"]

_DEPLOY_TIMEOUT_S = 120.0
_HEARTBEAT_TIMEOUT_S = 30.0
_FINISH_TIMEOUT_S = 60.0
_LEAST_ROOM_TIMEOUT_S = 2.0
"""Who does not want to wait for room still needs the time to hear that there is some."""


class SlotDeadlines:
    """Told what happens, with the time of a steady clock; `heard` by any thread, the rest by one.

    Slots that have been told to finish commit first what was prepared, which takes as long as the
    place of a sink takes; each says by its heartbeats when that is done, and it only closes.
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
        """There are task slots for all slots; these are being started."""
        self._has_room = True
        if self._came < self._slots:
            self._deadline_s = now_s + _DEPLOY_TIMEOUT_S

    def came(self, slot: int, now_s: float) -> None:
        """A slot has registered; the last one ends the wait for them."""
        self._last_beat_s[slot] = now_s
        self._came += 1
        if self._came == self._slots:
            self._deadline_s = None

    def heard(self, slot: int, now_s: float, *, is_closing: bool) -> None:
        """A heartbeat has come."""
        self._last_beat_s[slot] = now_s
        if is_closing:
            self._closing.add(slot)
        elif self._is_finishing:
            self._deadline_s = now_s + _FINISH_TIMEOUT_S

    @property
    def all_is_committed(self) -> bool:
        """Whether every slot has said that it only closes: nothing that happens then is lost."""
        return len(self._closing) == self._slots

    def finish(self, now_s: float) -> None:
        """The slots were told to end; from now on they fall silent one by one."""
        self._deadline_s = now_s + _FINISH_TIMEOUT_S
        self._is_finishing = True

    def lost(self, now_s: float) -> str:
        """What has taken too long; empty if nothing has."""
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
