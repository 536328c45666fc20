"""Starts and stops a source beside the driver's deciding thread, which a source may hold up."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

from holdfast.runtime.driver.daemon_threads import DaemonThreads
from holdfast.runtime.driver.events import EventQueue, SourceFailed
from holdfast.runtime.driver.outcomes import first_line_of
from holdfast.runtime.driver.source_feed import Feed, Source
from holdfast.storage import Clock, HoldfastError

__all__ = ["SourceThread"]

_STOPPED_WITHIN_S = 60.0
_logger = logging.getLogger(__name__)


class SourceThread:
    """One source in one attempt. `start` and `stop` run one after the other, and may hang."""

    def __init__(self, source: Source, events: EventQueue, clock: Clock) -> None:
        self._source = source
        self._events = events
        self._clock = clock
        self._thread = DaemonThreads(1, f"source {source.uid}")

    def start(self, feed: Feed) -> None:
        """Have it begin to feed. If it cannot, that is reported as `SourceFailed`."""
        self._thread.submit(self._start, feed)

    def stop(self) -> Callable[[], None]:
        """Have it stopped; call what this returns to wait for that, a minute from now at most.

        A source that is not stopped by then is left to itself: its feed refuses all that it says,
        and slots refuse its rows.
        """
        stopping = self._thread.submit(self._source.stop)
        end_s = self._clock.monotonic_s() + _STOPPED_WITHIN_S
        self._thread.shutdown(wait=False)

        def wait() -> None:
            try:
                stopping.result(max(0.0, end_s - self._clock.monotonic_s()))
            except TimeoutError:
                _logger.warning(
                    "source %r has not stopped for %g s, and is left to itself",
                    self._source.uid,
                    _STOPPED_WITHIN_S,
                )

        return wait

    def _start(self, feed: Feed) -> None:
        try:
            self._source.start(feed)
        except HoldfastError as error:
            self._events.put(SourceFailed(self._source.uid, str(error), ""))
        except Exception as error:  # noqa: BLE001 - Spark raises many kinds
            told = traceback.format_exc()
            self._events.put(SourceFailed(self._source.uid, first_line_of(error), told))
