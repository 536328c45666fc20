"""What functions over batches may ask while they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from holdfast.backends import KeyedStateBackend
from holdfast.backends.arrow.batches import to_list
from holdfast.runtime.operators.contexts import Timers
from holdfast.storage import Invalid

__all__ = ["TimedBatchContext"]


class TimedBatchContext:
    """The context of a batch, or of timers; see `BatchContext`."""

    def __init__(self, keyed: KeyedStateBackend, timers: Timers) -> None:
        self._keyed = keyed
        self._timers = timers
        self.batch_keys: pa.Array | None = None
        self.batch_times: pa.Array | None = None

    def current_watermark(self) -> int:
        """How far event time has got."""
        return self._timers.watermark

    def current_processing_time(self) -> int:
        """The clock of this machine, in milliseconds."""
        return self._timers.current_processing_time()

    def keys(self) -> pa.Array:
        """The key of each row of the batch in hand."""
        if self.batch_keys is None:
            raise Invalid(
                "there is no batch while timers fire",
                where=f"operator {self._keyed.uid!r}",
                fix="The keys of the timers are an argument of on_timers",
            )
        return self.batch_keys

    def timestamps(self) -> pa.Array | None:
        """When each row of the batch in hand happened, if anything tells."""
        return self.batch_times

    def register_event_time_timers(self, keys: Any, timestamps: Any) -> None:
        """A timer for each key and time."""
        self._timers.check_event_time()
        self._each(self._timers.service.register_event_time_timer, keys, timestamps)

    def register_processing_time_timers(self, keys: Any, timestamps: Any) -> None:
        """A timer for each key and time."""
        self._each(self._timers.service.register_processing_time_timer, keys, timestamps)

    def delete_event_time_timers(self, keys: Any, timestamps: Any) -> None:
        """Take requests back."""
        self._each(self._timers.service.delete_event_time_timer, keys, timestamps)

    def delete_processing_time_timers(self, keys: Any, timestamps: Any) -> None:
        """Take requests back."""
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
