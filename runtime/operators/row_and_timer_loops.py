"""The loops over rows and over due timers, in which a job with row functions spends its time.

Everything that does not depend on the row is done before or after the loop, for a whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from holdfast.backends import Timer
from holdfast.runtime.operators.contexts import HasKey, RowContext, TimersContext
from holdfast.runtime.operators.results import RowResults, moments_of
from holdfast.runtime.operators.user_code import NO_ROWS, USER_ERRORS, UserCode, answers_anything
from holdfast.storage import Clock

__all__ = ["MOST_RESULTS", "MOST_TIMERS", "RowLoop", "TimerLoop"]

MOST_RESULTS = 65536
"""After this many results, they are passed on at the end of the row."""

MOST_TIMERS = 8192
"""At most this many timers fire before other chains get the slot's thread."""

_LONGEST_FIRING_S = 0.02
"""Likewise, for functions that take long: other chains wait, and so do barriers."""

_Row = Callable[[Any, Any], Iterable[Any] | None]


class RowLoop:
    """Calls `process_element` for each row of a batch, under its key.

    Results are passed on outside of the `try`: they may go to the next operators, whose failures
    are not this one's.
    """

    def __init__(
        self, keys: HasKey, context: RowContext, code: UserCode, results: RowResults
    ) -> None:
        self._keys = keys
        self._context = context
        self._code = code
        self._process: _Row = code.function.process_element
        self._is_checked = answers_anything(self._process)
        self._results = results

    def run(self, keys: Iterable[Any], rows: Iterator[Any], times: pa.Array | None) -> None:
        """Process rows under their admitted keys; `times`: in a stream with event time."""
        if times is None:
            self._run_untimed(zip(keys, rows, strict=False))
        else:
            self._run_timed(zip(keys, rows, times.to_pylist(), strict=False), times)

    def _run_untimed(self, elements: Iterator[tuple[Any, Any]]) -> None:
        is_done = False
        while not is_done:
            made, is_done = self._some(elements)
            self._results.emit(made, None)

    def _some(self, elements: Iterator[tuple[Any, Any]]) -> tuple[list[Any], bool]:
        holder, context, process = self._keys, self._context, self._process
        is_checked = self._is_checked
        made: list[Any] = []
        extend = made.extend
        row = None
        try:
            for holder.key, row in elements:
                results = process(row, context)
                if results is not None:
                    if is_checked and type(results) in NO_ROWS:
                        raise self._code.no_rows(results)
                    extend(results)
                    if len(made) >= MOST_RESULTS:
                        return made, False
        except USER_ERRORS as error:
            raise self._failure(error, row) from error
        return made, True

    def _run_timed(self, elements: Iterator[tuple[Any, Any, int]], times: pa.Array) -> None:
        first, is_done = 0, False
        while not is_done:
            made, ends, is_done = self._some_timed(elements)
            self._results.emit(made, moments_of(times, ends, first))
            first += len(ends)

    def _some_timed(
        self, elements: Iterator[tuple[Any, Any, int]]
    ) -> tuple[list[Any], list[int], bool]:
        holder, context, process = self._keys, self._context, self._process
        is_checked = self._is_checked
        made: list[Any] = []
        ends: list[int] = []
        extend, end = made.extend, ends.append
        row = None
        try:
            for holder.key, row, context.time in elements:
                results = process(row, context)
                if results is not None:
                    if is_checked and type(results) in NO_ROWS:
                        raise self._code.no_rows(results)
                    extend(results)
                end(count := len(made))
                if count >= MOST_RESULTS:
                    return made, ends, False
        except USER_ERRORS as error:
            raise self._failure(error, row) from error
        return made, ends, True

    def _failure(self, error: BaseException, row: Any) -> Exception:
        return self._code.failure(error, "process_element", self._code.row(row))


class TimerLoop:
    """Calls `on_timer` for timers that are due, each under its key."""

    def __init__(
        self,
        keys: HasKey,
        context: TimersContext,
        code: UserCode,
        results: RowResults,
        clock: Clock,
    ) -> None:
        self._keys = keys
        self._context = context
        self._code = code
        self._results = results
        self._clock = clock

    def run(self, due: Iterator[Timer], *, has_time: bool) -> bool:
        """Fire a bounded number of timers; returns whether there may be more.

        With `has_time` their results have the time of the timer as event time.
        """
        made, moments, has_more = self._some(due)
        times = moments if has_time else [None] * len(moments)
        self._results.emit(made, pa.array(times, pa.int64()))
        return has_more

    def _some(self, due: Iterator[Timer]) -> tuple[list[Any], Sequence[int], bool]:
        holder, context, on_timer = self._keys, self._context, self._code.function.on_timer
        made: list[Any] = []
        moments: list[int] = []
        timer = None
        now_s = self._clock.monotonic_s
        until_s, left = now_s() + _LONGEST_FIRING_S, MOST_TIMERS
        try:
            for timer in islice(due, left):
                holder.key = timer.key
                context.time = timer.timestamp
                results = on_timer(timer.timestamp, context)
                if results is not None:
                    if type(results) in NO_ROWS:
                        raise self._code.no_rows(results)
                    made.extend(results)
                    moments.extend([timer.timestamp] * (len(made) - len(moments)))
                if len(made) >= MOST_RESULTS or now_s() > until_s:
                    return made, moments, True
                left -= 1
        except USER_ERRORS as error:
            raise self._failure(error, timer) from error
        return made, moments, left == 0

    def _failure(self, error: BaseException, timer: Timer | None) -> Exception:
        in_hand = f"timer at {timer.timestamp} of key {timer.key!r}" if timer else ""
        return self._code.failure(error, "on_timer", in_hand)
