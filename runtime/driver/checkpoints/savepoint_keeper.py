"""Commits the savepoints of a run beside its checkpoints, and deletes failed ones.

A savepoint may go to another storage than checkpoints do, and that may be slow or down. No
checkpoint waits for it: savepoints have a thread of their own, and a limited number of tries.

What has failed is deleted, and again when later checkpoints are complete and when the attempt has
ended: a slot may not have heard of it, or wait for the storage, and still write. A driver that is
killed leaves a folder without `_metadata`.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from holdfast.runtime.checkpoint.savepoint_orders import SavepointOrder
from holdfast.storage import CheckpointMetadata, HoldfastError, Unavailable
from holdfast.storage.bounded_calls import begun
from holdfast.storage.retries import Backoff, repeat_while_unavailable

__all__ = ["SavepointKeeper"]

_logger = logging.getLogger(__name__)
_PAUSES = Backoff(first_s=0.2)
_TRIES = 6
_PATIENCE_S = 10.0
_PLACE_TIMEOUT_S = 60.0
_LOOK_S = 0.1


class _Silent(Unavailable):
    """A call has not returned, and may still be under way."""


@dataclass(slots=True)
class _Discarded:
    """A failed savepoint. Slots may still be writing to it."""

    order: SavepointOrder
    number: float
    due: float
    """It is deleted again when a checkpoint of this number, or a later one, is complete."""


class SavepointKeeper:
    """One background thread. `gives_up` is set when results are no longer waited for.

    A storage may not answer at all, not even with an error, as a mount whose server is gone. So
    each call has a timeout. While a call has not returned, no other is made for the same savepoint;
    when it returns after all, its effect is undone if the savepoint was discarded.
    """

    def __init__(self, gives_up: threading.Event) -> None:
        self._gives_up = gives_up
        self._thread = ThreadPoolExecutor(1, "holdfast-savepoints")
        self._lock = threading.Lock()
        self._discarded: dict[str, _Discarded] = {}
        """By folder, as the next one."""
        self._hanging: dict[str, Future[object]] = {}
        self._passed = -math.inf
        """The newest completed checkpoint that no deletion has followed yet."""
        self._is_closing = False

    def submit(self, act: Callable[[], None]) -> None:
        """Call it in the background, after all that was submitted before."""
        self._thread.submit(act)

    def commit(self, order: SavepointOrder, metadata: CheckpointMetadata) -> None:
        """Commit a savepoint, with a limited number of tries. Safe to call from any thread.

        Raises:
            Unavailable: the storage did not answer.
            HoldfastError: the commit failed for good.
        """

        def failed(error: Unavailable, _: int) -> None:
            if isinstance(error, _Silent):
                raise error  # that call may still take effect

        repeat_while_unavailable(
            partial(self._bounded, order, partial(order.folder.commit, metadata)),
            _PAUSES,
            pause=self._gives_up.wait,
            most=_TRIES,
            failed=failed,
        )

    def discard(self, order: SavepointOrder, checkpoint_id: int) -> None:
        """Delete the files of a failed savepoint.

        A slot that has not received the abort, or waits for the storage, may still write. So files
        are deleted again after later checkpoints, ever more rarely, and at the attempt's end.
        """
        with self._lock:
            self._discarded[order.folder.url] = _Discarded(order, checkpoint_id, checkpoint_id)
        self._pass(checkpoint_id)

    def passed(self, checkpoint_id: float) -> None:
        """A checkpoint of this number is complete."""
        if self._discarded:
            self._pass(checkpoint_id)

    def ended(self) -> None:
        """No attempt runs any more, so no slot writes."""
        self.passed(math.inf)

    def settle(self) -> None:
        """Return when all submitted calls are done, or after a bounded time."""
        with suppress(TimeoutError):
            self._thread.submit(lambda: None).result(_PATIENCE_S)

    def close(self) -> None:
        """Wait for running calls, but not for storages that do not answer."""
        self._is_closing = True
        self.ended()
        self._thread.shutdown(wait=True)

    def _bounded(self, order: SavepointOrder, act: Callable[[], object]) -> None:
        """Call it with a timeout, unless the call before has not returned.

        Raises:
            Unavailable: it did not return in time. It may still take effect.
            HoldfastError: the error of the call.
        """
        url = order.folder.url
        if url in self._hanging:
            raise _silent(url, "the call before has not returned")
        future, waited_s = begun(act), 0.0
        while wait([future], _LOOK_S).not_done:
            waited_s += _LOOK_S
            is_late = self._is_closing or self._gives_up.is_set()
            limit_s = _PATIENCE_S if is_late else _PLACE_TIMEOUT_S
            if waited_s >= limit_s:
                self._hanging[url] = future
                future.add_done_callback(lambda _: self._returned(url))
                raise _silent(url, f"none within {limit_s:g} s")
        future.result()

    def _returned(self, url: str) -> None:
        """An overdue call has returned. It may have written to a savepoint that was discarded."""
        del self._hanging[url]
        with self._lock:
            each = self._discarded.get(url)
        if each is not None:
            with suppress(HoldfastError, OSError):
                each.order.folder.discard()

    def _pass(self, passed: float) -> None:
        """Submit the deletions that are due; calls that still wait are merged into one."""
        with self._lock:
            is_waiting = self._passed > -math.inf
            self._passed = max(self._passed, passed)
        if not is_waiting:
            self._thread.submit(self._discard_due)

    def _discard_due(self) -> None:
        with self._lock:
            passed, self._passed = self._passed, -math.inf
            due = [(url, each) for url, each in self._discarded.items() if passed >= each.due]
        for url, each in due:
            try:
                self._bounded(each.order, each.order.folder.discard)
            except _Silent as error:
                _logger.warning("what is left of a savepoint is not deleted yet: %s", error)
                return  # others are likely to be in the same storage
            except (HoldfastError, OSError) as error:
                _logger.warning("what is left of a savepoint is not deleted yet: %s", error)
                continue
            each.due = passed + max(1, passed - each.number)
            if passed == math.inf:
                with self._lock:
                    del self._discarded[url]


def _silent(url: str, found: str) -> _Silent:
    return _Silent(
        "the place of a savepoint does not answer",
        where=url,
        expected="an answer",
        found=found,
        fix="Look whether it can be reached, or have the savepoint taken elsewhere; if it answers "
        "later, what is there then is deleted",
    )
