"""Keeps the savepoints of a run: commits them beside checkpoints, and deletes what has failed.

A savepoint may go to another storage than checkpoints do. That one may be slow or down, and no
checkpoint waits for it: all of this is done by a thread of its own, and not insisted on.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from holdfast.runtime.checkpoint import SavepointOrder
from holdfast.storage import CheckpointMetadata, HoldfastError, Unavailable
from holdfast.storage.deadlines import begun

__all__ = ["SavepointKeeper"]

_logger = logging.getLogger(__name__)
_FIRST_PAUSE_S = 0.2
_TRIES = 6
_PATIENCE_S = 10.0
_PLACE_TIMEOUT_S = 60.0
_LOOK_S = 0.1


class _Silent(Unavailable):
    """A call has not returned, and may still be under way."""


@dataclass(slots=True)
class _Discarded:
    """A savepoint that has failed, of this number; slots may still be writing to it."""

    order: SavepointOrder
    number: float
    due: float
    """It is deleted once more when a checkpoint of this number, or a later one, is complete."""


class SavepointKeeper:
    """One background thread; `gives_up` is set when nobody waits any longer."""

    def __init__(self, gives_up: threading.Event) -> None:
        self._gives_up = gives_up
        self._thread = ThreadPoolExecutor(1, "holdfast-savepoints")
        self._discarded: dict[str, _Discarded] = {}
        """By folder."""

    def submit(self, act: Callable[[], None]) -> None:
        """Have something done in the background, after what was submitted before."""
        self._thread.submit(act)

    def commit(self, order: SavepointOrder, metadata: CheckpointMetadata) -> None:
        """Make it a savepoint; tries for a while. Any thread.

        Raises:
            Unavailable: the storage did not answer, often enough.
            HoldfastError: it cannot be.
        """
        pause_s = _FIRST_PAUSE_S
        for last in (*[False] * (_TRIES - 1), True):
            try:
                self._bounded(order, partial(order.folder.commit, metadata))
            except _Silent:
                raise  # that call may still be at it
            except Unavailable:
                if last or self._gives_up.wait(pause_s):
                    raise
                pause_s *= 2
            else:
                return

    def discard(self, order: SavepointOrder, checkpoint_id: int) -> None:
        """Have deleted what there is of a savepoint that has failed.

        A slot that has not heard of it, or waits for the storage, may still write. So that is done
        again when later checkpoints are complete, ever more rarely, and at the attempt's end.
        """
        self._discarded[order.folder.url] = _Discarded(order, checkpoint_id, checkpoint_id)
        self._thread.submit(self._discard_due, checkpoint_id)

    def passed(self, checkpoint_id: float) -> None:
        """A checkpoint of this number is complete."""
        if self._discarded:
            self._thread.submit(self._discard_due, checkpoint_id)

    def ended(self) -> None:
        """No attempt runs, so nobody writes."""
        self.passed(math.inf)

    def settle(self) -> None:
        """Return when all is done that was begun, or takes too long to be waited for."""
        with suppress(TimeoutError):
            self._thread.submit(lambda: None).result(_PATIENCE_S)

    def close(self) -> None:
        """Wait for what is being done."""
        self.ended()
        self._thread.shutdown(wait=True)

    def _bounded(self, order: SavepointOrder, act: Callable[[], object]) -> None:
        """Do it, and do not wait for ever: a mount that is gone answers nothing, not even an error.

        Raises:
            Unavailable: it takes too long. It may still come about.
            HoldfastError: what it raises itself.
        """
        future, waited_s = begun(act), 0.0
        while wait([future], _LOOK_S).not_done:
            waited_s += _LOOK_S
            limit_s = _PATIENCE_S if self._gives_up.is_set() else _PLACE_TIMEOUT_S
            if waited_s >= limit_s:
                raise _Silent(
                    "the place of a savepoint does not answer",
                    where=order.folder.url,
                    expected=f"an answer within {limit_s:g} s",
                    fix="Look whether it can be reached, or have the savepoint taken elsewhere",
                )
        future.result()

    def _discard_due(self, passed: float) -> None:
        for url, each in list(self._discarded.items()):
            if passed < each.due:
                continue
            try:
                self._bounded(each.order, each.order.folder.discard)
            except (HoldfastError, OSError) as error:
                _logger.warning("what is left of a savepoint is not deleted yet: %s", error)
            else:
                each.due = passed + max(1, passed - each.number)
            if passed == math.inf:
                del self._discarded[url]
