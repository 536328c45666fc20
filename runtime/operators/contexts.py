"""Contexts that functions over rows and batches are called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import pyarrow as pa

from holdfast.backends import KeyedStateBackend, TimerService
from holdfast.backends.arrow.batches import to_list
from holdfast.runtime.api.functions import TimeDomain, TimerAccess
from holdfast.runtime.protocol.elements import MIN_WATERMARK
from holdfast.storage import Clock, Invalid

__all__ = ["HasKey", "RowContext", "TimeKeeper", "TimedBatchContext", "Timers", "TimersContext"]


class HasKey(Protocol):
    """Something with a current key: keyed state, or a stand-in without one."""

    key: Any
    """The current key. Setting one that was admitted before costs nothing."""


class TimeKeeper:
    """`TimerAccess` of a stream without keys, which has times and no timers."""

    def __init__(self, clock: Clock, uid: str) -> None:
        self.watermark = MIN_WATERMARK
        self._clock = clock
        self._uid = uid

    def current_processing_time(self) -> int:
        return self._clock.now_ms()

    def current_watermark(self) -> int:
        return self.watermark

    def register_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise Invalid(
            "there are no timers without keys",
            where=f"operator {self._uid!r}",
            expected="a keyed stream",
            fix="Call key_by first, and process with a KeyedProcessFunction",
        )


class Timers(TimeKeeper):
    """`TimerAccess` of a keyed stream: timers are those of the current key."""

    def __init__(
        self, service: TimerService, clock: Clock, uid: str, *, has_event_time: bool
    ) -> None:
        super().__init__(clock, uid)
        self.service = service
        self._has_event_time = has_event_time

    def register_event_time_timer(self, timestamp: int) -> None:
        self.check_event_time()
        self.service.register_event_time_timer(timestamp)

    def check_event_time(self) -> None:
        """Check that event-time timers can fire.

        No watermark comes before the end of all input, so such a timer would never fire in a
        stream without end. Flink takes it in silence.

        Raises:
            Invalid: the stream has no event time.
        """
        if not self._has_event_time:
            raise Invalid(
                "an event-time timer would never fire: the stream has no event time",
                where=f"operator {self._uid!r}",
                fix="Call with_watermark before key_by, or use a processing-time timer",
            )

    def register_processing_time_timer(self, timestamp: int) -> None:
        self.service.register_processing_time_timer(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self.service.delete_event_time_timer(timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self.service.delete_processing_time_timer(timestamp)


class RowContext:
    """See `KeyedContext`; in a stream without keys the key is None."""

    __slots__ = ("_keys", "_timers", "time")

    def __init__(self, keys: HasKey, timers: TimerAccess) -> None:
        self._keys = keys
        self._timers = timers
        self.time: int | None = None

    def timestamp(self) -> int | None:
        return self.time

    def timer_service(self) -> TimerAccess:
        return self._timers

    def get_current_key(self) -> Any:
        return self._keys.key


class TimersContext(RowContext):
    """See `OnTimerContext`."""

    __slots__ = ("domain",)

    def __init__(self, keys: HasKey, timers: TimerAccess) -> None:
        super().__init__(keys, timers)
        self.domain = TimeDomain.EVENT_TIME

    def time_domain(self) -> TimeDomain:
        return self.domain


class TimedBatchContext:
    """The context of a batch, or of timers; see `BatchContext`."""

    def __init__(self, keyed: KeyedStateBackend, timers: Timers) -> None:
        self._keyed = keyed
        self._timers = timers
        self.batch_keys: pa.Array | None = None
        self.batch_times: pa.Array | None = None

    def current_watermark(self) -> int:
        return self._timers.watermark

    def current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def keys(self) -> pa.Array:
        if self.batch_keys is None:
            raise Invalid(
                "there is no batch while timers fire",
                where=f"operator {self._keyed.uid!r}",
                fix="The keys of the timers are an argument of on_timers",
            )
        return self.batch_keys

    def timestamps(self) -> pa.Array | None:
        return self.batch_times

    def register_event_time_timers(self, keys: Any, timestamps: Any) -> None:
        self._timers.check_event_time()
        self._each(self._timers.service.register_event_time_timer, keys, timestamps)

    def register_processing_time_timers(self, keys: Any, timestamps: Any) -> None:
        self._each(self._timers.service.register_processing_time_timer, keys, timestamps)

    def delete_event_time_timers(self, keys: Any, timestamps: Any) -> None:
        self._each(self._timers.service.delete_event_time_timer, keys, timestamps)

    def delete_processing_time_timers(self, keys: Any, timestamps: Any) -> None:
        self._each(self._timers.service.delete_processing_time_timer, keys, timestamps)

    def _each(self, act: Callable[[int], None], keys: Any, timestamps: Any) -> None:
        keyed = self._keyed
        admitted, moments = keyed.keys_of(keys), to_list(timestamps)
        where = f"operator {keyed.uid!r}"
        if len(admitted) != len(moments):
            raise Invalid(
                "columns of keys and of times are not of one length",
                where=where,
                expected=f"{len(admitted)} times",
                found=str(len(moments)),
            )
        moments = [self._timers.service.moment(each) for each in moments]
        before = keyed.key
        try:
            for keyed.key, moment in dict.fromkeys(zip(admitted, moments, strict=True)):
                act(moment)
        finally:
            keyed.key = before
