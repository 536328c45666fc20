"""The driver's ways to the slots of an attempt, for what its deciding thread has to say."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple, Protocol

from holdfast.runtime.driver.daemon_threads import DaemonThreads
from holdfast.runtime.driver.events import EventQueue, SlotLost
from holdfast.runtime.protocol.messages import ToSlot
from holdfast.storage import Clock, HoldfastError

__all__ = ["SlotLines", "SlotLink"]

_ANSWERED_WITHIN_S = 2.0
_CLOSED_WITHIN_S = 10.0
_logger = logging.getLogger(__name__)


class SlotLink(Protocol):
    """The driver's connection to a slot. Safe to call from any thread."""

    def call(self, message: ToSlot) -> bool:
        """Send a message; the docstring of the message says what the answer means.

        Raises:
            Unavailable: the slot does not answer.
            Fenced: the slot is of another attempt.
        """

    def watch(self, on_lost: Callable[[HoldfastError], None]) -> None:
        """Have `on_lost` called, once, as soon as the process of the slot is gone."""

    def close(self) -> None:
        """Give the connection back."""


class _Line(NamedTuple):
    link: SlotLink
    thread: DaemonThreads


class SlotLines:
    """Says everything in a thread for each slot, in order: neither the caller nor a slot waits.

    A slot that cannot be reached, and one whose process is gone, is reported as `SlotLost`. Used by
    one thread.
    """

    def __init__(self, events: EventQueue, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._lines: dict[int, _Line] = {}

    def add(self, slot: int, link: SlotLink) -> None:
        """From now on this slot is told what all are told."""
        self._lines[slot] = _Line(link, DaemonThreads(1, f"commands to slot {slot}"))
        link.watch(lambda error: self._lose(slot, str(error)))

    @property
    def links(self) -> Sequence[SlotLink]:
        """The connections, in the order of the slots."""
        return [self._lines[slot].link for slot in sorted(self._lines)]

    def tell(self, message: ToSlot, *, may_be_gone: bool = False) -> Sequence[Future[bool]]:
        """Send a message to all slots; the answers come later.

        `may_be_gone`: slots may have ended as they were told to, which is no loss.
        """
        return [
            line.thread.submit(partial(self._tell, slot, message, may_be_gone=may_be_gone))
            for slot, line in self._lines.items()
        ]

    def tell_last(self, message: ToSlot, *, in_order: bool) -> set[int]:
        """Send a message to all slots; the answer is those which did not answer soon.

        It overtakes what else a slot is to be told, which may stand still, unless it is `in_order`.
        """
        threads = DaemonThreads(max(len(self._lines), 1), "last command")
        answers = {
            slot: (line.thread if in_order else threads).submit(line.link.call, message)
            for slot, line in self._lines.items()
        }
        threads.shutdown(wait=False)
        silent = set()
        end_s = self._clock.monotonic_s() + _ANSWERED_WITHIN_S
        for slot, answer in answers.items():
            try:
                answer.result(max(0.0, end_s - self._clock.monotonic_s()))
            except Exception:  # noqa: BLE001 - whatever it is, there was no answer
                silent.add(slot)
        return silent

    def close(self) -> None:
        """Say nothing more, and give the connections back, side by side and in a bounded time."""
        threads = DaemonThreads(max(len(self._lines), 1), "closing connections")
        end_s = self._clock.monotonic_s() + _CLOSED_WITHIN_S
        with ExitStack() as closing:
            for slot, line in self._lines.items():
                line.thread.shutdown(wait=False, cancel_futures=True)
                closing.callback(self._await_closed, slot, threads.submit(line.link.close), end_s)
        threads.shutdown(wait=False)

    def _await_closed(self, slot: int, closing: Future[None], end_s: float) -> None:
        try:
            closing.result(max(0.0, end_s - self._clock.monotonic_s()))
        except TimeoutError:
            _logger.warning("the connection to slot %d is not closed yet", slot)

    def _tell(self, slot: int, message: ToSlot, *, may_be_gone: bool) -> bool:
        try:
            return self._lines[slot].link.call(message)
        except HoldfastError as error:
            if not may_be_gone:
                self._lose(slot, str(error))
            raise
        except Exception as error:  # unreported, the attempt would wait for ever
            self._lose(slot, repr(error))
            raise

    def _lose(self, slot: int, reason: str) -> None:
        self._events.put(SlotLost(slot, reason))
